"""Calls of a gRPC server from their first byte on, so that its end knows of all of them.

A call begins with its headers, and its message may never come. grpcio says nothing of such a call
where a method is of one request, and waits for it at the end; so all methods read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast

import grpc
import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[bytes, Context], Awaitable[bytes]]
"""Answers one call: the bytes of a request, and the call itself; raises `DecodeError` for bytes
that are no such request. A method that cannot answer calls `Context.abort`.
"""

UNREADABLE: Final = "the request cannot be read"
ENDING: Final = "the server ends"
QUIET_S: Final = 0.002
"""Where nothing has begun for so long, little is on its way."""


class Calls:
    """Those that are under way."""

    def __init__(self) -> None:
        self._unread: set[Context] = set()
        self._begun = 0
        self._under_way = 0

    @property
    def is_none_under_way(self) -> bool:
        """Whether all that has begun has ended."""
        return not self._under_way

    def unary(self, answer: Answer) -> grpc.RpcMethodHandler[Any, Any]:
        """A method of one request and one answer.

        To grpcio it is one of many requests, since it would read a single one by itself.
        """

        async def call(_: object, context: Context) -> bytes:
            self._under_way += 1
            try:
                return await answer(await self.read(context), context)
            finally:
                self._under_way -= 1

        return grpc.stream_unary_rpc_method_handler(call)

    async def read(self, context: Context) -> bytes:
        """The request of a call; one that ends without it is answered `INTERNAL`."""
        self._begun += 1
        self._unread.add(context)
        try:
            data: object = await context.read()
        finally:
            self._unread.discard(context)
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)
        return cast("bytes", data)

    async def become_rare(self, within_s: float) -> None:
        """Wait for a moment in which none begins, but no longer than that."""
        loop = asyncio.get_running_loop()
        due, begun = loop.time() + within_s, -1
        while begun != self._begun and loop.time() < due:
            begun = self._begun
            await asyncio.sleep(QUIET_S)

    async def refuse_unread(self) -> None:
        """End those whose request has not come: it need not come any more."""
        await asyncio.gather(*(self._refuse(context) for context in self._unread))

    async def _refuse(self, context: Context) -> None:
        if context in self._unread:
            # Its client may be gone, and what reads it is told as well.
            with suppress(grpc.aio.AbortError, grpc.aio.InternalError):
                await context.abort(grpc.StatusCode.UNAVAILABLE, ENDING)
