"""gRPC's health service (`grpc.health.v1.Health`): load balancers ask it before they send calls.

Written here instead of using grpcio-health-checking, whose watches never end: a client that
watches would delay every shutdown of the gateway for as long as calls may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from gateway.systems.grpc.calls import UNREADABLE, Calls, Context
from gateway.systems.grpc.protobuf import DecodeError

HEALTH: Final = "grpc.health.v1.Health"
MAX_WATCHES: Final = 1_000
"""Most watches at a time: more than a limiter has clients."""
LOOK_S: Final = 0.5
"""Interval at which watchers are notified of changes."""
_List: Final[Any] = health_pb2.HealthListResponse  # type: ignore[attr-defined]  # newer than its stubs


class Health:
    """Reports whether a server should be used; the same for all of its services.

    Args:
        services: their full names and other names; the empty name stands for the server.
        is_able: returns whether it can answer now.
        malformed: called for every request that cannot be read.
        calls: reads requests.
    """

    def __init__(
        self,
        services: Iterable[str],
        is_able: Callable[[], bool],
        malformed: Callable[[], None],
        calls: Calls,
    ) -> None:
        self._services = frozenset(("", HEALTH, *services))
        self._is_able = is_able
        self._malformed = malformed
        self._calls = calls
        self._ending = asyncio.Event()
        self._watches = 0

    def end(self) -> None:
        """Report that the server is shutting down, and end the watches."""
        self._ending.set()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the methods, by name."""
        write = health_pb2.HealthCheckResponse.SerializeToString
        return {
            f"/{HEALTH}/Check": self._calls.unary(self._check),
            f"/{HEALTH}/List": self._calls.unary(self._list),
            f"/{HEALTH}/Watch": grpc.stream_stream_rpc_method_handler(self._watch, None, write),
        }

    async def _read(self, data: bytes, context: Context) -> health_pb2.HealthCheckRequest:
        try:
            return health_pb2.HealthCheckRequest.FromString(data)
        except DecodeError:
            self._malformed()
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)

    def _answer(self, service: str) -> health_pb2.HealthCheckResponse:
        found = health_pb2.HealthCheckResponse
        if service not in self._services:
            return found(status=found.SERVICE_UNKNOWN)
        is_serving = self._is_able() and not self._ending.is_set()
        return found(status=found.SERVING if is_serving else found.NOT_SERVING)

    async def _check(self, data: bytes, context: Context) -> bytes:
        request = await self._read(data, context)
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._answer(request.service).SerializeToString()

    async def _list(self, data: bytes, context: Context) -> bytes:
        # The request has no fields, so any request is valid.
        await self._read(data, context)
        statuses = {name: self._answer(name) for name in self._services}
        return bytes(_List(statuses=statuses).SerializeToString())

    async def _watch(
        self, _: object, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        request = await self._read(await self._calls.read(context), context)
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch already")
        self._watches += 1
        try:
            sent = None
            while True:
                # The state before an answer is sent: it may change meanwhile.
                is_ending = self._ending.is_set()
                answer = self._answer(request.service)
                if answer != sent:
                    sent = answer
                    yield answer
                if is_ending:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._ending.wait()
        finally:
            self._watches -= 1
