"""One client of a Throttr listener.

The requests of one read are answered in one write, in order. The connection is not read while
requests wait for Redis or answers wait for the client, so neither side can fill the memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, cast

from gateway.net.unsent import unsent_bytes
from gateway.observe.metrics import FrontendMetrics
from gateway.systems.throttr.codec import NO, Parser, Request
from gateway.systems.throttr.records_store import RecordStore

HIGH_WATER: Final = 256 * 1024
"""Bytes of answers that may wait for a client before its requests are no longer read."""


MAX_READS: Final = 4
"""The most reads that may wait behind one that is not answered yet."""
MAX_WAITING: Final = 64 * 1024
"""The most bytes of such reads; beyond that, reading pauses. A single read has 256 KiB at most."""


class ConnectionContext(Protocol):
    """The listener of a connection, as the connection sees it.

    Attributes:
        book: keeps the records.
        metrics: counters of the listener.
        connections: the open connections.
        watched: those with a time limit running: an incomplete request, or a close.
        is_draining: whether connections end as soon as they are idle.
    """

    book: RecordStore
    metrics: FrontendMetrics
    connections: set[ThrottrClientConnection]
    watched: set[ThrottrClientConnection]
    is_draining: bool

    def parser(self) -> Parser:
        """Return a parser for a new client."""

    def count_malformed(self, kind: str) -> None:
        """Count a malformed request, by kind."""

    @property
    def is_full(self) -> bool:
        """Whether new clients are refused."""


class ThrottrClientConnection(asyncio.Protocol):
    """Answers one client.

    Args:
        home: its listener.

    Attributes:
        since: when the current time limit began, by the event loop's clock.
    """

    def __init__(self, home: ConnectionContext) -> None:
        self._context = home
        self._book = home.book
        self._parser = home.parser()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reads: deque[bytes] = deque()
        self._requests: Sequence[Request] = ()
        self._is_busy = False  # A request that was read is not answered yet,
        self._is_asked = False  # and the book is working on it.
        self._is_held = False  # The client does not read its answers.
        self._is_paused = False
        self._is_ended = False  # Further bytes are discarded.
        self._has_eof = False
        self.since = 0.0

    @property
    def waiting(self) -> int:
        """Bytes that were read and not parsed yet."""
        return self._parser.left + sum(map(len, self._reads))

    @property
    def under_way(self) -> int:
        """How many requests were parsed and not answered yet."""
        return len(self._requests)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve a client that has connected."""
        # A cast, not an assertion: transports of uvloop do not derive from this class.
        self._transport = cast("asyncio.Transport", transport)
        home = self._context
        home.metrics.connections += 1
        if home.is_full or home.is_draining:
            if home.is_full:
                home.metrics.malformed["too_many_connections"] += 1
            self._is_ended = True
            self._transport.abort()
            return
        home.metrics.open_connections += 1
        home.connections.add(self)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; requests in progress are still carried out."""
        self._transport = None
        home = self._context
        if self in home.connections:
            home.connections.discard(self)
            home.metrics.open_connections -= 1
        home.watched.discard(self)
        self._reads.clear()
        self._requests = ()

    def data_received(self, data: bytes) -> None:
        """Answer these requests, or keep them until the earlier ones are answered."""
        if self._is_ended:
            return
        if self._is_busy or self._is_held:
            self._is_busy = True
            self._reads.append(data)
        else:
            self._parser.feed(data)
            self._turn()
        if self._is_busy and (len(self._reads) >= MAX_READS or self.waiting >= MAX_WAITING):
            self._pause()

    def eof_received(self) -> bool:
        """Answer what the client still waits for; it sends no more."""
        self._has_eof = True
        if self._is_busy:
            return True
        if not self._is_ended:
            self._count_incomplete()
        return False

    def pause_writing(self) -> None:
        """Stop reading requests: the client does not read its answers."""
        self._is_held = True
        self._pause()
        self._watch()

    def resume_writing(self) -> None:
        """Read requests again."""
        self._is_held = False
        if self._is_ended:
            self._watch()
            return
        self._context.watched.discard(self)
        if not self._is_busy:
            self._rest(is_further=False)
        elif not self._is_asked:
            self._loop.call_soon(self._turn)

    def drain(self) -> None:
        """Answer what was read, end the sending side, and wait to be closed."""
        if not self._is_busy and not self._is_ended:
            self._end()

    def close_when_acknowledged(self) -> None:
        """Close if everything sent has been acknowledged.

        Closing earlier, with bytes of the client unread, would reset the connection, and answers
        on their way would be lost.
        """
        if self._is_ended and self._transport is not None and not unsent_bytes(self._transport):
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """End the connection: its time limit has passed."""
        if self._is_ended or self._is_held:
            self.abort()
        elif not self._is_busy:
            self._context.count_malformed("timeout")
            self._write(NO)
            self._end()

    def _turn(self) -> None:
        """Pass the next requests to the book, if there are any."""
        if self._is_asked or self._is_held or self._transport is None:
            return
        if not self._requests:
            self._requests = self._take()
        if self._requests:
            self._is_busy = self._is_asked = True
            self._book.answer(self._requests, self._answered)
        else:
            self._rest(is_further=False)

    def _take(self) -> list[Request]:
        """Return the next requests, of one read or of several."""
        parser, limit = self._parser, self._book.limit
        requests = parser.take(limit)
        while self._reads and len(requests) < limit and not parser.is_ended:
            parser.feed(self._reads.popleft())
            requests += parser.take(limit - len(requests))
        return requests

    def _answered(self, answers: Sequence[bytes]) -> None:
        self._is_asked = False
        if self._transport is None:
            return
        self._transport.write(b"".join(answers))
        self._requests = self._requests[len(answers) :]
        if self._requests or self._parser.has_more or (self._reads and not self._parser.is_ended):
            # One busy client must not delay the others.
            if not self._is_held:
                self._loop.call_soon(self._turn)
        else:
            self._rest(is_further=True)

    def _rest(self, *, is_further: bool) -> None:
        """Wait for more: everything read is answered; `is_further` if there was any request."""
        self._is_busy = False
        if self._parser.is_ended:
            self._end()
        elif self._has_eof:
            self._count_incomplete()
            self._close()
        elif self._context.is_draining:
            self._end()
        else:
            if self._is_paused and not self._is_held:
                self._resume()
            if not self._parser.is_waiting:
                if not self._is_held:
                    self._context.watched.discard(self)
            elif is_further or self not in self._context.watched:
                self._watch()

    def _count_incomplete(self) -> None:
        if self._parser.is_waiting:
            self._context.metrics.malformed["incomplete"] += 1
            self._write(NO)

    def _end(self) -> None:
        """End the sending side, and wait for the acknowledgement before closing."""
        self._is_ended = True
        self._reads.clear()
        if self._has_eof:
            self._close()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
            self._resume()
            self._watch()

    def _watch(self) -> None:
        self.since = self._loop.time()
        self._context.watched.add(self)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _close(self) -> None:
        """Close when the answers are sent, within a time limit."""
        if self._transport is not None:
            self._is_ended = True
            self._transport.close()
            self._watch()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
