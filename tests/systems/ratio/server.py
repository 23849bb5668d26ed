"""A ratio server for tests: its algorithm as its papers tell it, and faults on demand.

Times are whole milliseconds, as ratio's are; hits of one millisecond are kept apart.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import grpc.aio

from gateway.base.clock import Clock, wall_us
from gateway.config.models.gateway import Address
from gateway.systems.grpc.calls import Context
from gateway.systems.grpc.ports import ServingOptions
from gateway.systems.grpc.server import Bounds, GrpcServer, Service
from gateway.systems.ratio.messages import (
    MESSAGES,
    METHOD,
    OK,
    OVER_LIMIT,
    SERVICE,
    RatioQuestion,
    read_question,
    write_code,
)
from tests.grpc_engine import port_of
from tests.processes import free_port


class RatioServer:
    """Serves one limit.

    Args:
        quantity: how many hits ...
        window_us: ... there may be in a window.
        clock: its time.

    Attributes:
        asked: the questions that came, in order.
        peers: where the calls came from.
        instead: answers in its place, if set.
        served: set by each call.
        is_serving: what health checks are told.
    """

    def __init__(self, quantity: int, window_us: int, clock: Clock = wall_us) -> None:
        self._quantity = quantity
        self._window_ms = window_us // 1000
        self._clock = clock
        self._hits: defaultdict[RatioQuestion, list[int]] = defaultdict(list)
        self._server: GrpcServer | None = None
        self.asked: list[RatioQuestion] = []
        self.peers: set[str] = set()
        self.instead: Callable[[Context], Awaitable[bytes]] | None = None
        self.served = asyncio.Event()
        self.is_serving = True
        # Not one that the system gives away: it is still free when the server starts again.
        self.port = free_port()

    async def start(self, service: str = SERVICE) -> None:
        """Serve, on the same port as before if it was started before."""
        described = Service(service, {METHOD: self._answer}, MESSAGES.files)
        self._server = GrpcServer([described], Bounds(), is_able=lambda: self.is_serving)
        door = ServingOptions(Address("127.0.0.1", self.port))
        self.port = port_of(await self._server.start(door))

    async def stop(self) -> None:
        """End, and forget everything."""
        if self._server is not None:
            await self._server.drain(0)
        self._hits.clear()

    async def _answer(self, data: bytes, context: Context) -> bytes:
        question = read_question(data)
        self.asked.append(question)
        self.peers.add(context.peer())
        self.served.set()
        if self.instead is not None:
            return await self.instead(context)
        now_ms = self._clock() // 1000
        hits = [hit for hit in self._hits[question] if hit >= now_ms - self._window_ms]
        self._hits[question] = [*hits, now_ms]
        return write_code(OK if len(hits) < self._quantity else OVER_LIMIT)


async def hang(context: Context) -> bytes:
    """Never answer."""
    await asyncio.Event().wait()
    return b""


def fail(code: grpc.StatusCode, details: str) -> Callable[[Context], Awaitable[bytes]]:
    """Answer with an error."""

    async def answer(context: Context) -> bytes:
        await context.abort(code, details)

    return answer


def say(data: bytes) -> Callable[[Context], Awaitable[bytes]]:
    """Answer with these bytes."""

    async def answer(context: Context) -> bytes:
        return data

    return answer
