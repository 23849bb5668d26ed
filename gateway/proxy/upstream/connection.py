"""One connection to an upstream, used by one exchange at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple, cast

from gateway.base.errors import (
    UpstreamClosedError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
)
from gateway.proxy.upstream.answer_reader import AnswerReader, Informational
from gateway.proxy.upstream.read_after_reset import unread_pieces
from gateway.proxy.upstream.small_buffer_reader import PIECE, SmallBufferReader, read_through

HIGH_WATER: Final = 128 * 1024
"""Bytes of a body buffered here before reading from the upstream pauses."""


class UpstreamTimeouts(NamedTuple):
    """Time limits of exchanges, in seconds; `inf` for none."""

    first_byte: float
    idle: float
    total: float
    keepalive: float
    tunnel: float


class UpstreamConnection(asyncio.Protocol):
    """A connection that belongs to one exchange at a time.

    Use: `begin`, any number of `write`s, `await head()` or the callback of `begin`, then
    `await read()` until it returns nothing. `is_reusable` then tells whether it may serve another
    exchange. Its watch calls `expire` once the loop's time is past `due`.

    Attributes:
        answer: the part of the answer that has arrived.
        error: why the answer broke off, if it did.
        address: of the other end, if the name has several.
        due: the loop's time at which the exchange is late; `inf` for never.
    """

    __slots__ = (
        "_drained",
        "_first_byte_s",
        "_holds",
        "_is_busy",
        "_is_narrow",
        "_is_reading_paused",
        "_is_writing_paused",
        "_loop",
        "_on_close",
        "_on_head",
        "_phase",
        "_timeouts",
        "_total_due",
        "_waiter",
        "address",
        "answer",
        "due",
        "error",
        "transport",
    )

    def __init__(
        self,
        on_close: Callable[[UpstreamConnection], None],
        timeouts: UpstreamTimeouts,
        max_head: int,
        address: str = "",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_close = on_close
        self._timeouts = timeouts
        self._first_byte_s = timeouts.first_byte
        self.address = address
        self.answer = AnswerReader(max_head)
        self.transport: asyncio.Transport | None = None
        self.due = inf
        self._total_due = inf
        self._phase = ""
        self._holds = 0
        self._is_busy = False
        self.error: UpstreamError | None = None
        self._on_head: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_narrow = False

    def __repr__(self) -> str:
        state = "busy" if self._is_busy else "idle"
        return f"<UpstreamConnection {state if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """Return whether it can be written to, as far as is known."""
        return self.transport is not None and not self.transport.is_closing() and self.error is None

    @property
    def is_reusable(self) -> bool:
        """Return whether another exchange may follow the one that is complete."""
        return (
            self.answer.keeps_alive
            and self.answer.is_complete
            and self.error is None
            and self.transport is not None
        )

    def begin(
        self,
        data: bytes,
        *,
        is_head: bool,
        on_interim: Informational | None,
        is_whole: bool,
        may_switch: bool = False,
        on_head: Callable[[], None] | None = None,
    ) -> None:
        """Send the head of a request, and as much of its body as has arrived.

        Args:
            data: what to send.
            is_head: whether the method is HEAD.
            on_interim: called with the head of each interim answer.
            is_whole: whether `data` is the complete request; if not, the time limit of the answer's
                first byte starts with `sent`.
            may_switch: whether the request asks for a WebSocket, so that 101 may be the answer.
            on_head: called once, when the head of the answer has arrived or is certain not to;
                replaces `await head()`.
        """
        transport = self.transport
        if transport is None:
            raise UpstreamClosedError("closed before the request was sent")
        self.answer.start(is_head=is_head, on_interim=on_interim, may_switch=may_switch)
        self._is_busy = True
        self._on_head = on_head
        if self._timeouts.total != inf:
            self._total_due = self._loop.time() + self._timeouts.total
        self._holds = 0
        if is_whole:
            self._await("first_byte", self._first_byte_s)
        else:
            self.hold_clock()
        transport.write(data)

    def sent(self) -> None:
        """Note that the rest of the request is sent: the time limit of its answer starts."""
        self.run_clock()
        if not self.answer.has_begun and not self._holds:
            self._await("first_byte", self._first_byte_s)

    def limit(self, first_byte_s: float | None, total_due: float) -> None:
        """Shorten the time limits of the exchange that has just begun.

        Args:
            first_byte_s: seconds until the first byte of its answer; None for no other limit.
            total_due: the loop's time at which it must be complete; `inf` for no other limit.
        """
        self._total_due = min(self._total_due, total_due)
        if self._holds:
            self.due = self._total_due
        else:
            own_s = self._first_byte_s
            self._await("first_byte", own_s if first_byte_s is None else min(own_s, first_byte_s))

    def _await(self, phase: str, seconds: float) -> None:
        self._phase = phase
        self.due = self._loop.time() + seconds
        if self._total_due < self.due:
            self._phase = "total"
            self.due = self._total_due

    def hold_clock(self) -> None:
        """Stop the clock until `run_clock` is called as often: the client causes the delay."""
        self._holds += 1
        self.due = self._total_due
        self._phase = "total"

    def run_clock(self) -> None:
        """Let the clock run: the upstream has to act."""
        self._holds -= 1
        if not self._holds and not self.answer.is_complete:
            self._await("idle", self._timeouts.idle)

    def hold_back(self) -> None:
        """Pause reading the answer until `flow`: the client is slow to read it."""
        self.hold_clock()
        if not self._is_reading_paused and self.transport is not None:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def limit_reads(self, buffer: bytearray) -> None:
        """Read at most as much at a time as fits this buffer, until `release`."""
        if not self._is_narrow:
            self._is_narrow = True
            read_through(
                SmallBufferReader(self, buffer), self.transport, is_paused=self._is_reading_paused
            )

    def flow(self) -> None:
        """Resume after `hold_back`."""
        self.run_clock()
        self._resume_reading()

    def expire(self) -> None:
        """Close: the time limit is over."""
        self._fail(UpstreamTimeout(self._phase))

    async def write(self, data: bytes) -> None:
        """Send a piece of the request's body, no faster than the upstream takes it."""
        if self.transport is None or self.error is not None:
            raise self.error or UpstreamClosedError("closed while the request was sent")
        self.transport.write(data)
        if self._is_writing_paused:
            self._await("idle", self._timeouts.idle)
            self._drained = self._loop.create_future()
            await self._drained
            self.due = self._total_due
            self._phase = "total"

    async def head(self) -> None:
        """Wait until status and header fields are there.

        Raises:
            UpstreamError: they did not come.
        """
        while not self.answer.has_head:
            if self.error is not None:
                raise self.error
            await self._wait()

    async def read(self) -> bytes:
        """Return the next piece of the body, as soon as there is one; empty at its end.

        Raises:
            UpstreamError: the answer broke off.
        """
        answer = self.answer
        while not answer.body:
            if answer.is_complete:
                return b""
            if self.error is not None:
                raise self.error
            await self._wait()
        return self.read_now()

    def read_now(self) -> bytes:
        """Return the part of the body that has arrived and was not read yet; may be empty."""
        if self._is_reading_paused:
            self._resume_reading()
        return self.answer.take()

    def _resume_reading(self) -> None:
        if self._is_reading_paused and self.transport is not None:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def release(self) -> None:
        """End the exchange; the connection is idle."""
        self._is_busy = False
        if self._is_narrow:
            self._is_narrow = False
            read_through(self, self.transport, is_paused=self._is_reading_paused)
        self._total_due = inf
        self._await("keepalive", self._timeouts.keepalive)

    def abort(self) -> None:
        """Close immediately; a waiter for the answer gets an error."""
        self._fail(UpstreamClosedError("given up"))

    @property
    def silence_s(self) -> tuple[float, float]:
        """Return the idle limits of a tunnel, as a whole and after a half-close, in seconds."""
        return self._timeouts.tunnel, self._timeouts.idle

    def switch(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport | None, bool]:
        """Hand the connection to another protocol, after a 101 answer.

        Returns:
            The transport, which is paused at first (None if it is closed already), and whether its
            buffer is full. Call `connection_lost` when it is lost.
        """
        self.due = self._total_due = inf
        # What is read from now on is not an answer, and its end is not the end of one.
        self._is_busy = False
        if self.transport is not None:
            self.transport.pause_reading()
            self.transport.set_protocol(protocol)
        return self.transport, self._is_writing_paused

    def forget(self) -> None:
        """Close immediately, without calling back."""
        self._on_head = None
        self.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._on_head is not None:
            on_head, self._on_head = self._on_head, None
            on_head()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if self.error is None:
            self.error = error
        self.due = inf
        self._stop_drain()
        if self.transport is not None:
            self.transport.abort()
        self._wake()

    def _stop_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(self.error or UpstreamClosedError("closed"))
        self._drained = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        # uvloop's transports have the methods of asyncio's, but not its classes.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read what the upstream sent."""
        if not self._is_busy:
            # No request is in progress: these bytes must not become the answer to another one.
            self._fail(UpstreamProtocolError("bytes that no request asked for"))
            return
        answer = self.answer
        try:
            answer.feed(data)
        except UpstreamError as error:
            self._fail(error)
            return
        if answer.is_complete:
            self.due = inf
        else:
            if not self._holds:
                self._await("idle", self._timeouts.idle)
            most = PIECE // 2 if self._is_narrow else HIGH_WATER
            if answer.buffered > most and not self._is_reading_paused and self.transport:
                self._is_reading_paused = True
                self.transport.pause_reading()
        if answer.has_head:
            self._wake()

    def eof_received(self) -> bool:
        """Close; `connection_lost` interprets it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the waiter for the answer, and the pool."""
        transport, self.transport = self.transport, None
        self.due = inf
        if self.error is None and self._is_busy:
            try:
                if exc is not None and transport is not None:
                    self._read_remains(transport)
                if exc is not None and not self.answer.is_complete:
                    self.error = UpstreamClosedError("reset before the answer was complete")
                else:
                    self.answer.feed_eof()
            except UpstreamError as error:
                self.error = error
        self._stop_drain()
        self._wake()
        self._on_close(self)

    def _read_remains(self, transport: asyncio.Transport) -> None:
        """Read an early answer that may have come before the reset."""
        for data in unread_pieces(transport):
            if self.answer.is_complete or self.answer.buffered > HIGH_WATER:
                break
            self.answer.feed(data)

    def pause_writing(self) -> None:
        """Pause the request's body."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Resume the request's body."""
        self._is_writing_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
