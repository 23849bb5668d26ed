"""gRPC's health service (`grpc.health.v1.Health`): what load balancers ask before they send calls.

Written here and not taken from grpcio-health-checking, whose watches never end: a client that
watches would hold up every end of the gateway for as long as calls may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

HEALTH: Final = "grpc.health.v1.Health"
MAX_WATCHES: Final = 1_000
"""Watches that are under way at a time: those of more clients than a limiter has."""

Context = grpc.aio.ServicerContext[Any, Any]


class Health:
    """Whether a server should be asked; the same for all of its services.

    Args:
        services: their full names; the empty name stands for the server.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", HEALTH, *services))
        self._is_serving = False
        self._is_ending = False
        self._watches = 0
        self._changed = asyncio.Event()

    def set_serving(self, *, is_serving: bool) -> None:
        """Change what is told, and tell those that watch."""
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            self._wake()

    def end(self) -> None:
        """Let those that watch go."""
        self._is_ending = True
        self._wake()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """What answers calls, by the name of the method."""
        read = health_pb2.HealthCheckRequest.FromString
        write = health_pb2.HealthCheckResponse.SerializeToString
        return {
            f"/{HEALTH}/Check": grpc.unary_unary_rpc_method_handler(self._check, read, write),
            f"/{HEALTH}/Watch": grpc.unary_stream_rpc_method_handler(self._watch, read, write),
        }

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _answer(self, service: str) -> health_pb2.HealthCheckResponse:
        found = health_pb2.HealthCheckResponse
        if service not in self._services:
            return found(status=found.SERVICE_UNKNOWN)
        return found(status=found.SERVING if self._is_serving else found.NOT_SERVING)

    async def _check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._answer(request.service)

    async def _watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch already")
        self._watches += 1
        try:
            told = None
            while True:
                # As they are before an answer is sent: they may change meanwhile.
                changed, is_ending = self._changed, self._is_ending
                answer = self._answer(request.service)
                if answer != told:
                    told = answer
                    yield answer
                if is_ending:
                    return
                await changed.wait()
        finally:
            self._watches -= 1
