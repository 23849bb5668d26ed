"""Peers that speak Smockron's frames: a gatekeeper and a master of the tests' own, by pyzmq."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import zmq
import zmq.asyncio

WAIT_S: Final = 30.0
PROBE: Final = "probe"
"""A domain that every master of the tests has, with room for one request: who reports one is told
to wait, so the answer says that both connections stand and that all before it was dealt with."""

PROBE_LIMIT: Final = "1/h burst 1"


def now_ms() -> int:
    """The present, as it is on the wire."""
    return time.time_ns() // 1_000_000


class TestGatekeeper:
    """Reports whatever a test says, and keeps what the master says."""

    __test__ = False

    def __init__(self, context: zmq.asyncio.Context, port: int, domains: tuple[str, ...]) -> None:
        self._accounting = context.socket(zmq.PUB)
        self._control = context.socket(zmq.SUB)
        for domain in (*domains, PROBE):
            self._control.subscribe(domain.encode() + b"\0")
        self._accounting.connect(f"tcp://127.0.0.1:{port}")
        self._control.connect(f"tcp://127.0.0.1:{port + 1}")
        self.probes = 0
        self.heard: list[list[bytes]] = []

    async def send(self, *frames: bytes) -> None:
        """Send frames as they are."""
        await self._accounting.send_multipart(frames)

    async def report(
        self,
        domain: str,
        status: str,
        identifier: str,
        received_ms: int | None = None,
        delayed_ms: int | None = None,
        info: bytes = b"",
    ) -> None:
        """Report one request; its time is the present unless it is said."""
        received_ms = now_ms() if received_ms is None else received_ms
        delayed = b"" if delayed_ms is None else b"%d" % delayed_ms
        await self.send(
            *(domain.encode() + b"\0", status.encode(), identifier.encode()),
            *(b"%d" % received_ms, delayed, info),
        )

    async def settled(self, at_ms: int | None = None) -> list[list[bytes]]:
        """What the master has said since the last time, once it has dealt with all that was sent.

        A first time also waits for the connections.
        """
        self.probes += 1
        name = f"probe-{id(self)}-{self.probes}"
        async with asyncio.timeout(WAIT_S):
            while True:
                await self.report(PROBE, "ACCEPTED", name, at_ms)
                if await self._hear_until(name.encode()):
                    heard, self.heard = self.heard, []
                    return heard

    async def _hear_until(self, name: bytes) -> bool:
        while await self._control.poll(200):
            frames = await self._control.recv_multipart()
            if frames[0] == PROBE.encode() + b"\0":
                if frames[2] == name:
                    return True
            else:
                self.heard.append(frames)
        return False

    def close(self) -> None:
        """Close both sockets."""
        self._accounting.close(0)
        self._control.close(0)


class TestMaster:
    """Hears what gatekeepers report, and says whatever a test says."""

    __test__ = False

    def __init__(self, context: zmq.asyncio.Context, port: int) -> None:
        self._accounting = context.socket(zmq.SUB)
        # Tells when somebody subscribes, which a PUB socket does not.
        self._control = context.socket(zmq.XPUB)
        self._accounting.subscribe(b"")
        self._accounting.bind(f"tcp://127.0.0.1:{port}")
        self._control.bind(f"tcp://127.0.0.1:{port + 1}")

    async def subscribed(self) -> bytes:
        """The next topic that a gatekeeper subscribes to."""
        async with asyncio.timeout(WAIT_S):
            message: bytes = await self._control.recv()
        assert message[:1] == b"\x01", "it subscribes"
        return message[1:]

    async def hear(self) -> list[bytes]:
        """The next message of a gatekeeper."""
        async with asyncio.timeout(WAIT_S):
            frames: list[bytes] = await self._accounting.recv_multipart()
        return frames

    async def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes."""
        return not await self._accounting.poll(round(seconds * 1000))

    async def send(self, *frames: bytes) -> None:
        """Send frames as they are."""
        await self._control.send_multipart(frames)

    async def hold(self, domain: str, identifier: str, until_ms: int) -> None:
        """DELAY_UNTIL."""
        await self.send(
            domain.encode() + b"\0", b"DELAY_UNTIL", identifier.encode(), b"%d" % until_ms
        )

    def close(self) -> None:
        """Close both sockets."""
        self._accounting.close(0)
        self._control.close(0)


@asynccontextmanager
async def gatekeeper(port: int, *domains: str) -> AsyncIterator[TestGatekeeper]:
    """A gatekeeper of the master at this port, whose connections stand."""
    with zmq.asyncio.Context() as context:
        peer = TestGatekeeper(context, port, domains)
        try:
            await peer.settled()
            yield peer
        finally:
            peer.close()


@asynccontextmanager
async def master(port: int) -> AsyncIterator[TestMaster]:
    """A master at this port and the next."""
    with zmq.asyncio.Context() as context:
        peer = TestMaster(context, port)
        try:
            yield peer
        finally:
            peer.close()
