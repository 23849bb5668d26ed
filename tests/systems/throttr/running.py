"""Throttr listeners in this process, and clients of them."""

from __future__ import annotations

import asyncio
import socket
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

from gateway.base.clock import Clock, monotonic_ns
from gateway.config.checking.check import check_text
from gateway.limiter.decider import Decider
from gateway.observe.metrics import FrontendMetrics, GatewayMetrics
from gateway.stores.memory.store import MemoryStore
from gateway.systems.throttr.listener import ThrottrFrontend, make_throttr
from tests.grpc_engine import port_of
from tests.systems.context import context_of

WAIT_S: Final = 20.0
INSERT: Final = bytes.fromhex("01 e803 06 0100 01 6b")
"""Version 5 with 16 bits: a quota of 1000 for an hour, under "k"."""
TAKE: Final = bytes.fromhex("03 00 02 0100 01 6b")
"""One of it."""


class Run:
    """A listener that serves."""

    def __init__(self, frontend: ThrottrFrontend, metrics: FrontendMetrics) -> None:
        self.frontend = frontend
        self.metrics = metrics
        self.port = port_of(frontend.address)

    def accepted(self) -> TransportSocket:
        """Of the one client, what is at this end."""
        (connection,) = self.frontend.connections
        assert connection._transport is not None
        sock: TransportSocket = connection._transport.get_extra_info("socket")
        return sock

    def answers(self) -> dict[tuple[str, str], int]:
        """How requests were answered."""
        self.metrics.refreshed()
        return dict(self.metrics.answers)


@asynccontextmanager
async def running(
    settings: str,
    store: str = "memory://",
    clock: Clock = monotonic_ns,
    port: int = 0,
    deadline: str = "20s",
) -> AsyncIterator[Run]:
    """A listener with what follows `throttr:` in YAML, and records in a store."""
    listener = f"{{ throttr: {settings}, bind: '127.0.0.1:{port}' }}"
    config = check_text(
        f"store: {{ url: '{store}', deadline: {deadline} }}\nlisteners: [{listener}]\n"
    ).config
    metrics = GatewayMetrics()
    memory = MemoryStore()
    decider = Decider(
        memory, deadline_us=1_000_000, share=None, max_waiting=1, metrics=metrics.store("main")
    )
    ground = context_of(config, decider, memory, metrics)
    frontend = make_throttr("throttr", config.listeners[0], ground, clock)
    await frontend.start()
    try:
        yield Run(frontend, metrics.frontend("throttr"))
    finally:
        await frontend.drain(1)
        assert not frontend.connections
        assert not frontend.metrics.open_connections


class Client:
    """One connection; every wait has an end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        # A stream writer names its transport by what it can write; that of a socket reads too.
        self._transport = cast("asyncio.Transport", writer.transport)

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        async with asyncio.timeout(WAIT_S):
            await self.writer.drain()

    def pause(self) -> None:
        """Take no more answers: those that wait fill the buffers on their way, then the gateway."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Take answers again."""
        self._transport.resume_reading()

    async def hear(self, size: int) -> bytes:
        """So many bytes of answers, or fewer if the connection ends before."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            return error.partial

    async def rest(self) -> bytes:
        """All answers until the connection ends."""
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read()

    async def ask(self, data: bytes, size: int) -> bytes:
        """Send bytes and await so many of answers."""
        await self.say(data)
        return await self.hear(size)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    """A client of a listener."""
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
