"""PINGs of gRPC clients, by which they keep connections alive that nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from struct import Struct
from typing import Final

from gateway.config.models.gateway import Address
from gateway.systems.grpc.ports import ServingOptions
from gateway.systems.grpc.server import Bounds, GrpcServer
from tests.breaking import abort
from tests.grpc_engine import port_of

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY, ACK = 4, 6, 7, 1
HEAD: Final = Struct(">HBBBI")
"""Of a frame (RFC 9113, 4.1): the length in two parts, the type, its flags and the stream."""
PATIENCE_S: Final = 30
CLOSED: Final = -1

Frame = tuple[int, int, bytes]


def _frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, 0) + payload


class _Client:
    """A connection of HTTP/2 that asks nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def hear(self, *kinds: int) -> Frame:
        """The next frame of one of these kinds; or the end, which is of the kind `CLOSED`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    head = await self._reader.readexactly(HEAD.size)
                    high, low, kind, flags, _ = HEAD.unpack(head)
                    payload = await self._reader.readexactly(high << 8 | low)
                except (asyncio.IncompleteReadError, ConnectionError):
                    return CLOSED, 0, b""
                if kind in kinds:
                    return kind, flags, payload

    async def ping(self, number: int) -> Frame:
        """What a PING is answered with."""
        self.writer.write(_frame(PING, number.to_bytes(8, "big")))
        return await self.answer()

    async def answer(self) -> Frame:
        """The next answer to a PING, or the end."""
        while True:
            answer = await self.hear(PING, GOAWAY)
            if answer[:2] == (PING, 0):
                # Its own, by which it measures the connection.
                self.writer.write(_frame(PING, answer[2], ACK))
                continue
            return answer


@asynccontextmanager
async def _client(bounds: Bounds) -> AsyncIterator[_Client]:
    server = GrpcServer([], bounds)
    port = port_of(await server.start(ServingOptions(Address("127.0.0.1", 0))))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(PREFACE + _frame(SETTINGS))
            client = _Client(reader, writer)
            await client.hear(SETTINGS)
            yield client
        finally:
            abort(writer)
    finally:
        await server.drain(0)


async def _spaced(seconds: float, ask: Callable[[int], Awaitable[Frame]], count: int) -> set[int]:
    """What so many questions are answered with, each this long after the answer before."""
    answers = set()
    for number in range(count):
        answers.add((await ask(number))[0])
        await asyncio.sleep(seconds)
    return answers


async def test_a_ping_a_second_keeps_an_idle_connection() -> None:
    """With nothing under way, as Envoy's `connection_keepalive` and Go's `keepalive.Time` send it.

    More than the two that are pardoned whatever they are. Half as far apart will do for a test.
    """
    async with _client(Bounds()) as client:
        assert await _spaced(0.55, client.ping, 6) == {PING}


async def test_a_flood_of_pings_is_ended() -> None:
    """Two that come too soon are pardoned; the third is the end of the connection."""
    # Longer apart than a busy machine could make them by being late.
    async with _client(Bounds(ping_us=60_000_000)) as client:
        answer: Frame = (PING, 0, b"")
        for number in range(8):
            if answer[0] == PING:
                answer = await client.ping(number)
        kind, _, payload = answer
        assert kind == GOAWAY
        assert payload[4:8] == b"\0\0\0\x0b", "ENHANCE_YOUR_CALM (RFC 9113, 7)"
        assert payload[8:] == b"too_many_pings"
        # What was on its way may still come; then the connection is gone.
        while (await client.answer())[0] != CLOSED:
            pass
