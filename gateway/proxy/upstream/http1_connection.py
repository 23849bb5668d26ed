"""One connection to an upstream that speaks HTTP/1.1, used by one exchange at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, cast

from gateway.base.errors import UpstreamClosedError, UpstreamError, UpstreamProtocolError
from gateway.proxy.http1.chunks import chunk
from gateway.proxy.upstream.answer_reader import AnswerReader
from gateway.proxy.upstream.connection import UpstreamConnection, UpstreamTimeouts
from gateway.proxy.upstream.read_after_reset import unread_pieces
from gateway.proxy.upstream.small_buffer_reader import PIECE, SmallBufferReader, read_through

HIGH_WATER: Final = 128 * 1024
"""Bytes of a body buffered here before reading from the upstream pauses."""


class Http1Connection(UpstreamConnection):
    """A connection that exchanges use one after the other: an asyncio protocol.

    `is_reusable` tells whether it may serve another exchange when one is over.

    Args:
        on_close: called when the connection is closed.
        timeouts: its time limits.
        max_head: most bytes in the head of an answer.
        address: of the other end, if the name has several.
    """

    __slots__ = (
        "_is_narrow",
        "_is_reading_paused",
        "_is_writing_paused",
        "_on_close",
        "transport",
    )

    def __init__(
        self,
        on_close: Callable[[UpstreamConnection], None],
        timeouts: UpstreamTimeouts,
        max_head: int,
        address: str = "",
    ) -> None:
        super().__init__(AnswerReader(max_head), timeouts, address)
        self._on_close = on_close
        self.transport: asyncio.Transport | None = None
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_narrow = False

    @property
    def is_open(self) -> bool:
        """Return whether it can be written to, as far as is known."""
        return self.transport is not None and not self.transport.is_closing() and self.error is None

    @property
    def is_used(self) -> bool:
        """As in `UpstreamConnection`."""
        return self.answer.is_complete

    @property
    def is_reusable(self) -> bool:
        """Return whether another exchange may follow the one that is complete."""
        return (
            self.answer.keeps_alive
            and self.answer.is_complete
            and self.error is None
            and self.transport is not None
        )

    def _send(self, data: bytes, *, is_whole: bool) -> None:
        if self.transport is None:
            raise UpstreamClosedError("closed before the request was sent")
        self.transport.write(data)

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
                SmallBufferReader(cast("asyncio.Protocol", self), buffer),
                self.transport,
                is_paused=self._is_reading_paused,
            )

    def flow(self) -> None:
        """Resume after `hold_back`."""
        self.run_clock()
        self._resume_reading()

    async def write(self, data: bytes, *, is_chunked: bool) -> None:
        """As in `UpstreamConnection`."""
        await self._write(chunk(data, is_chunked=is_chunked))

    async def finish_body(self, *, is_chunked: bool) -> None:
        """As in `UpstreamConnection`."""
        if is_chunked:
            await self._write(b"0\r\n\r\n")
        self.sent()

    async def _write(self, data: bytes) -> None:
        if self.transport is None or self.error is not None:
            raise self.error or UpstreamClosedError("closed while the request was sent")
        self.transport.write(data)
        if self._is_writing_paused:
            await self._drain()

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
            read_through(
                cast("asyncio.Protocol", self), self.transport, is_paused=self._is_reading_paused
            )
        self._total_due = inf
        self._await("keepalive", self._timeouts.keepalive)

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

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

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
        self._go_on()
