"""Reading in small pieces, while many answers come at once or many clients are slow to take theirs.

An event loop reads as much as is there, up to 256 KiB at a time, and all of that lies here while
the client does not take it: for some hundred slow clients, some hundred MiB. Even with fast
clients, some hundred reads of that size in one turn of the loop are a time in which no other
request is served. Small pieces cost twice the time for each byte (bench: transfer), so answers are
read in them only where they are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

PIECE: Final = 32 * 1024
"""Bytes that are read at a time."""

MANY: Final = 16
"""So many slow clients have a large piece each; those who come later have small ones."""

MANY_STREAMS: Final = 32
"""So many answers are read in large pieces at the same time, whatever their clients do: a turn of
the loop that reads one of each takes some 5 ms."""

SLOW_S: Final = 0.1
"""A client that has taken nothing for so long is slow, and not only busy."""


class Narrowable(Protocol):
    """A connection that can read small pieces."""

    def narrow(self, buffer: bytearray) -> None:
        """Read no more at a time than fits the buffer."""


class SlowReaders:
    """Who does not take what it was sent, and for how long."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._since: dict[Narrowable, float] = {}
        self._streams = 0

    def __repr__(self) -> str:
        return f"<SlowReaders: {len(self._since)} of {self._streams}>"

    @contextmanager
    def stream(self, connection: Narrowable) -> Iterator[None]:
        """While an answer that has not come as a whole is passed on."""
        self._streams += 1
        self.narrow_if_many(connection)
        try:
            yield
        finally:
            self._streams -= 1

    @contextmanager
    def one(self, connection: Narrowable) -> Iterator[None]:
        """While a client does not take what comes over this connection."""
        self._since[connection] = self._loop.time()
        self.narrow_if_many(connection)
        try:
            yield
        finally:
            del self._since[connection]

    def narrow_if_many(self, connection: Narrowable) -> None:
        """Let a connection read small pieces, if there are many answers, or many slow clients."""
        if self._streams > MANY_STREAMS or self._are_many_slow:
            self._buffer = self._buffer or bytearray(PIECE)
            connection.narrow(self._buffer)

    @property
    def _are_many_slow(self) -> bool:
        if len(self._since) <= MANY:
            return False
        # They stand in the order in which they became slow.
        since = next(islice(self._since.values(), MANY, None))
        return self._loop.time() - since >= SLOW_S


class SmallBufferReader(asyncio.BufferedProtocol):
    """Stands before a protocol whose transport is to read small pieces.

    Args:
        protocol: gets everything, as before.
        buffer: where pieces are read to. It may be shared, within one event loop: what is in it
            is taken out at once.
    """

    __slots__ = ("_buffer", "_protocol", "_view")

    def __init__(self, protocol: asyncio.Protocol, buffer: bytearray) -> None:
        self._protocol = protocol
        self._buffer = buffer
        self._view = memoryview(buffer)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        self._protocol.data_received(bytes(self._view[:nbytes]))

    def eof_received(self) -> bool | None:
        """As before."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """As before."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """As before."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """As before."""
        self._protocol.resume_writing()


def read_through(
    protocol: asyncio.BaseProtocol, transport: asyncio.Transport | None, *, is_paused: bool
) -> None:
    """Let a transport bring what it reads to another protocol.

    Args:
        protocol: takes it.
        transport: reads; None or closed if it does so no more.
        is_paused: whether it does not read at the moment.
    """
    if transport is None or transport.is_closing():
        return
    # How it reads is settled when it begins to.
    if not is_paused:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if not is_paused:
        transport.resume_reading()
