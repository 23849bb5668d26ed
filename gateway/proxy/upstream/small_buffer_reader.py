"""Read in small pieces while many answers arrive together or many clients read slowly.

An event loop reads everything available, up to 256 KiB at a time, and all of that is buffered
while the client does not read it: for some hundred slow clients, some hundred MiB. Even with fast
clients, some hundred reads of that size in one turn of the loop delay all other requests. Small
pieces cost twice the time for each byte (bench: transfer), so they are used only where they are
needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

PIECE: Final = 32 * 1024
"""Bytes per read."""

MANY: Final = 16
"""This many slow clients have a large piece each; later ones have small pieces."""

MANY_STREAMS: Final = 32
"""This many answers are read in large pieces at the same time, however fast their clients are: a
turn of the loop that reads one of each takes some 5 ms."""

SLOW_S: Final = 0.1
"""A client that has read nothing for this long is slow, and not only busy."""


class LimitedReader(Protocol):
    """A connection that can read small pieces."""

    def limit_reads(self, buffer: bytearray) -> None:
        """Read at most as much at a time as fits the buffer."""


class SlowReaders:
    """The clients that do not read what they were sent, and for how long."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._since: dict[LimitedReader, float] = {}
        self._streams = 0

    def __repr__(self) -> str:
        return f"<SlowReaders: {len(self._since)} of {self._streams}>"

    @contextmanager
    def stream(self, connection: LimitedReader) -> Iterator[None]:
        """Count an incomplete answer while it is passed on."""
        self._streams += 1
        self.limit_reads_if_many(connection)
        try:
            yield
        finally:
            self._streams -= 1

    @contextmanager
    def one(self, connection: LimitedReader) -> Iterator[None]:
        """Record a client while it does not read what comes over this connection."""
        self._since[connection] = self._loop.time()
        self.limit_reads_if_many(connection)
        try:
            yield
        finally:
            del self._since[connection]

    def limit_reads_if_many(self, connection: LimitedReader) -> None:
        """Make a connection read small pieces, if there are many answers, or many slow clients."""
        if self._streams > MANY_STREAMS or self._are_many_slow:
            self._buffer = self._buffer or bytearray(PIECE)
            connection.limit_reads(self._buffer)

    @property
    def _are_many_slow(self) -> bool:
        if len(self._since) <= MANY:
            return False
        # They are in the order in which they became slow.
        since = next(islice(self._since.values(), MANY, None))
        return self._loop.time() - since >= SLOW_S


class SmallBufferReader(asyncio.BufferedProtocol):
    """Wraps a protocol whose transport is to read small pieces.

    Args:
        protocol: receives everything, as before.
        buffer: where pieces are read to. It may be shared within one event loop: its contents are
            taken out immediately.
    """

    __slots__ = ("_buffer", "_protocol", "_view")

    def __init__(self, protocol: asyncio.Protocol, buffer: bytearray) -> None:
        self._protocol = protocol
        self._buffer = buffer
        self._view = memoryview(buffer)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the bytes that were read."""
        self._protocol.data_received(bytes(self._view[:nbytes]))

    def eof_received(self) -> bool | None:
        """Pass the call on."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the call on."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass the call on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call on."""
        self._protocol.resume_writing()


def read_through(
    protocol: asyncio.BaseProtocol, transport: asyncio.Transport | None, *, is_paused: bool
) -> None:
    """Make a transport deliver what it reads to another protocol.

    Args:
        protocol: receives it.
        transport: reads; None or closed if it no longer does.
        is_paused: whether reading is paused now.
    """
    if transport is None or transport.is_closing():
        return
    # How a transport reads is fixed when it starts reading.
    if not is_paused:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if not is_paused:
        transport.resume_reading()
