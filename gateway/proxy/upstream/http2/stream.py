"""One stream to an upstream: what one exchange uses as its connection."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from gateway.base.errors import (
    UpstreamClosedError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamUnprocessedError,
)
from gateway.proxy.http2.framing import CANCEL, HTTP_1_1_REQUIRED, NO_ERROR, REFUSED_STREAM, Field
from gateway.proxy.upstream.connection import UpstreamConnection
from gateway.proxy.upstream.http2.answer import StreamAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.proxy.http2.client_framing import ClientFraming
    from gateway.proxy.upstream.connection import UpstreamTimeouts

HIGH_WATER: Final = 128 * 1024
"""Bytes of a request's body that wait for the upstream's windows before the client must wait."""
LOW_WATER: Final = 32 * 1024


class StreamCarrier(Protocol):
    """What streams have in common: their connection."""

    address: str
    framing: ClientFraming
    has_answered: bool
    waiting: dict[int, UpstreamStream]

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent over it, as far as is known."""

    def begin(self, stream: UpstreamStream, head: bytes, *, is_whole: bool) -> int:
        """Send the head of a request; return the number of its stream, or 0 if it is not sent."""

    def taken(self, number: int, size: int) -> None:
        """Let the upstream send as much again on a stream."""

    def wake(self) -> None:
        """Send what there is in this turn of the event loop."""

    def leave(self, stream: UpstreamStream, *, is_over: bool) -> bool:
        """Take a place back; reset the stream if it is not over; return whether it had one."""


class UpstreamStream(UpstreamConnection):
    """A stream, from the moment at which its place is taken.

    Args:
        connection: what it is a part of.
        on_close: called once, when its place is free again.
        timeouts: its time limits.
        max_head: most bytes in the head of an answer.

    Attributes:
        number: of the stream; 0 before its request is sent.
        connection: as given.
    """

    __slots__ = ("_is_over", "_on_close", "_stream_answer", "connection", "number")

    def __init__(
        self,
        connection: StreamCarrier,
        on_close: Callable[[UpstreamConnection], None],
        timeouts: UpstreamTimeouts,
        max_head: int,
    ) -> None:
        self._stream_answer = StreamAnswer(max_head)
        super().__init__(self._stream_answer, timeouts, connection.address)
        self.connection = connection
        self.number = 0
        self._on_close = on_close
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """As in `UpstreamConnection`."""
        return not self._is_over and self.error is None and self.connection.is_open

    @property
    def is_used(self) -> bool:
        """As in `UpstreamConnection`."""
        return self.connection.has_answered

    # The request.

    def _send(self, data: bytes, *, is_whole: bool) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        number = self.connection.begin(self, head, is_whole=is_whole and not body)
        if not number:
            raise UpstreamUnprocessedError("the connection takes no more requests")
        self.number = number
        if body:
            self.connection.framing.send(number, body)
            if is_whole:
                self.connection.framing.end(number)

    async def write(self, data: bytes, *, is_chunked: bool) -> None:
        """As in `UpstreamConnection`."""
        self._check()
        framing = self.connection.framing
        framing.send(self.number, data)
        self.connection.wake()
        if framing.queued(self.number) > HIGH_WATER:
            self.connection.waiting[self.number] = self
            await self._drain()

    async def finish_body(self, *, is_chunked: bool) -> None:
        """As in `UpstreamConnection`."""
        self._check()
        self.connection.framing.end(self.number)
        self.connection.wake()
        self.sent()

    def _check(self) -> None:
        if self._is_over or self.error is not None:
            raise self.error or UpstreamClosedError("closed while the request was sent")

    def window_opened(self) -> bool:
        """Continue with the body if the upstream has taken enough of it; return whether so."""
        if self.connection.framing.queued(self.number) > LOW_WATER:
            return False
        self._go_on()
        return True

    # The answer.

    def interim_received(self, fields: tuple[Field, ...]) -> None:
        """Take an interim answer."""
        try:
            self._stream_answer.take_interim(fields)
        except UpstreamError as error:
            self._fail(error)
        else:
            self._await_more()

    def answer_received(self, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of the answer."""
        try:
            self._stream_answer.take_head(fields, is_whole=is_whole)
        except UpstreamError as error:
            self._fail(error)
        else:
            self._await_more()

    def data_received_on(self, data: bytes, *, is_last: bool) -> None:
        """Take a piece of the body."""
        if not self._stream_answer.take_data(data, is_last=is_last) and data:
            self.connection.taken(self.number, len(data))
        self._await_more()

    def trailers_received(self, fields: tuple[Field, ...]) -> None:
        """Take the end of the answer."""
        self._stream_answer.take_trailers(fields)
        self._await_more()

    def _await_more(self) -> None:
        """Note that the upstream has done something."""
        if self.answer.is_complete:
            self.due = inf
        elif not self._holds:
            self._await("idle", self._idle_s)

    def tell(self) -> None:
        """Let the exchange know of what has arrived, if it can use it."""
        if self.answer.has_head:
            self._wake()

    def closed(self, code: int, *, is_by_peer: bool) -> None:
        """Note the end of the stream."""
        self._is_over = True
        if self.answer.is_complete:
            # What is left of the request, if anything, is not wanted.
            self._stop_drain()
        elif code == REFUSED_STREAM and not self.answer.has_begun:
            self._fail(UpstreamUnprocessedError("the upstream refused the stream"))
        elif code == HTTP_1_1_REQUIRED:
            self._fail(UpstreamProtocolError("the upstream wants HTTP/1.1"))
        elif not is_by_peer and code not in (NO_ERROR, CANCEL):
            self._fail(UpstreamProtocolError("not a valid answer"))
        else:
            self._fail(UpstreamClosedError("reset before the answer was complete"))

    def lost(self, error: UpstreamError) -> None:
        """Note the end of the connection."""
        self._is_over = True
        if not self.answer.is_complete:
            self._fail(error)

    def read_now(self) -> bytes:
        """As in `UpstreamConnection`."""
        data = self.answer.take()
        if data:
            # Only now may the upstream send as much again.
            self.connection.taken(self.number, len(data))
        return data

    def hold_back(self) -> None:
        """As in `UpstreamConnection`: what is not read keeps the stream's window closed."""
        self.hold_clock()

    def flow(self) -> None:
        """As in `UpstreamConnection`."""
        self.run_clock()

    def limit_reads(self, buffer: bytearray) -> None:
        """As in `UpstreamConnection`: the window does so."""

    def release(self) -> None:
        """As in `UpstreamConnection`: a stream is for one exchange."""
        self.due = inf
        self._close()

    def _close(self) -> None:
        on_close = self._on_close
        if self.connection.leave(self, is_over=self._is_over):
            self._is_over = True
            on_close(self)
