"""Calls of a gRPC server from their first byte on, so that its shutdown knows all of them.

A call starts with its headers, and its message may never come. grpcio does not report such a call
to a unary method, and waits for it at shutdown; so all methods read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, cast

import grpc
import grpc.aio

from gateway.base.clock import US

Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[bytes, Context], Awaitable[bytes]]
"""Answers one call: takes the bytes of a request, and the call itself; raises `DecodeError` for
invalid bytes. A method that cannot answer calls `Context.abort`.
"""

UNREADABLE: Final = "the request cannot be read"
ENDING: Final = "the server ends"
LATE: Final = "the request did not come in time"
LONGEST_LOOK_S: Final = 1.0


class Calls:
    """The calls in flight.

    Args:
        patience_us: microseconds that a request may take to arrive, once its call has begun, or
            that what was asked before may take to be answered.
        quiet_us: microseconds without a new call before `wait_for_quiet` returns.

    Attributes:
        under_way: how many unary calls have begun and not ended.
    """

    def __init__(self, timeout_us: int, quiet_us: int) -> None:
        self._timeout_s = timeout_us / US
        self._quiet_s = quiet_us / US
        # Ordered by deadline, which is the order in which they began.
        self._unread: dict[Context, float] = {}
        self._begun = 0
        self.under_way = 0

    def unary(self, answer: Answer) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a unary method.

        grpcio sees a method of many requests, since it would read a single one by itself.
        """

        async def call(_: object, context: Context) -> bytes:
            self.under_way += 1
            try:
                return await answer(await self.read(context), context)
            finally:
                self.under_way -= 1

        return grpc.stream_unary_rpc_method_handler(call)

    async def read(self, context: Context) -> bytes:
        """Return the request of a call; one that ends without it is answered `INTERNAL`."""
        data = await self.read_next(context)
        if data is None:
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)
        return data

    async def read_next(self, context: Context) -> bytes | None:
        """Return one of several requests of a call; None if there are no more."""
        self._begun += 1
        self._unread[context] = asyncio.get_running_loop().time()
        try:
            data: object = await context.read()
        finally:
            del self._unread[context]
        return None if data is grpc.aio.EOF else cast("bytes", data)

    async def wait_for_quiet(self, within_s: float) -> None:
        """Wait for a moment in which no call begins, up to a limit."""
        loop = asyncio.get_running_loop()
        due, begun = loop.time() + within_s, -1
        while begun != self._begun and loop.time() < due:
            begun = self._begun
            await asyncio.sleep(self._quiet_s)

    async def refuse_unread(self) -> None:
        """End the calls whose request has not arrived."""
        await self._refuse(self._unread, grpc.StatusCode.UNAVAILABLE, ENDING)

    async def refuse_late(self) -> None:
        """End the calls whose request takes too long, repeatedly."""
        while True:
            await asyncio.sleep(min(self._timeout_s / 4, LONGEST_LOOK_S))
            await self._refuse(self._late(), grpc.StatusCode.DEADLINE_EXCEEDED, LATE)

    def _late(self) -> Iterable[Context]:
        since = asyncio.get_running_loop().time() - self._timeout_s
        return takewhile(lambda context: self._unread[context] <= since, self._unread)

    async def _refuse(self, contexts: Iterable[Context], code: grpc.StatusCode, why: str) -> None:
        async def refuse(context: Context) -> None:
            if context in self._unread:
                # Its client may be gone; the task that reads from it is notified too.
                with suppress(grpc.aio.AbortError, grpc.aio.InternalError):
                    await context.abort(code, why)

        await asyncio.gather(*map(refuse, list(contexts)))
