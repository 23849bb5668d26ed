"""One connection to an upstream that speaks HTTP/2: an asyncio protocol with many streams."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, cast

from gateway.base.errors import UpstreamClosedError, UpstreamError, UpstreamProtocolError
from gateway.proxy.http2.client_framing import ClientFraming
from gateway.proxy.http2.framing import CANCEL, Field, FramingError
from gateway.proxy.http2.lines import request_fields
from gateway.proxy.upstream.http2.stream import UpstreamStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.proxy.upstream.connection import UpstreamConnection, UpstreamTimeouts

SILENCE_S: Final = 10.0
"""After so long without a byte while a stream is open, the upstream is asked with a PING whether it
is still there."""
ANSWER_S: Final = 5.0
"""How long it has to answer."""
AGAIN_S: Final = 300.0
"""The pause before the next PING if nothing but the answer came: servers of gRPC close connections
with more."""


class MultiplexedConnection:
    """A connection that many exchanges use at a time, each a stream of it.

    Args:
        on_close: called when it is closed.
        on_room: called when it takes more streams than before.
        timeouts: of its streams, and how long it is kept without any.
        max_head: most bytes in the head of an answer.
        max_streams: most streams at a time.
        scheme: of its requests.
        address: of the other end, if the name has several.

    Attributes:
        framing: its frames.
        waiting: streams with more to send than the upstream takes now, by number.
        address: as given.
        due: the loop's time at which it is looked at again.
        error: why it ended, if it did.
        has_answered: whether any request over it was answered.
    """

    __slots__ = (
        "_has_wake",
        "_is_leaving",
        "_is_writing_paused",
        "_last_fields",
        "_last_head",
        "_lent",
        "_loop",
        "_max_head",
        "_max_streams",
        "_on_close",
        "_on_room",
        "_own_max",
        "_pinged",
        "_quiet_until",
        "_ready",
        "_scheme",
        "_seen",
        "_streams",
        "_timeouts",
        "_touched",
        "address",
        "due",
        "error",
        "framing",
        "has_answered",
        "transport",
        "waiting",
    )

    def __init__(
        self,
        on_close: Callable[[MultiplexedConnection], None],
        on_room: Callable[[], None],
        timeouts: UpstreamTimeouts,
        max_head: int,
        max_streams: int,
        scheme: str,
        address: str = "",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_close = on_close
        self._on_room = on_room
        self._timeouts = timeouts
        self._max_head = max_head
        self._own_max = self._max_streams = max_streams
        self._scheme = scheme.encode("ascii")
        self.address = address
        self.framing = ClientFraming(self, max_head, max_streams)
        # Places that are taken, and streams whose requests were sent.
        self._lent: set[UpstreamStream] = set()
        self._streams: dict[int, UpstreamStream] = {}
        self.waiting: dict[int, UpstreamStream] = {}
        # Streams with news in what was read.
        self._touched: list[UpstreamStream] = []
        self._has_wake = False
        self._is_leaving = False
        self._is_writing_paused = False
        # Clients of services repeat themselves.
        self._last_head = b""
        self._last_fields: list[Field] = []
        self._pinged = False
        self._seen = 0.0
        self._quiet_until = 0.0
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.due = inf
        self.error: UpstreamError | None = None
        self.has_answered = False
        self.transport: asyncio.Transport | None = None

    def __repr__(self) -> str:
        return f"<MultiplexedConnection {self.address}: {len(self._lent)} streams>"

    async def ready(self) -> None:
        """Wait until the upstream has sent its SETTINGS: how many streams it takes.

        Raises:
            UpstreamError: it has closed instead.
        """
        await self._ready
        if self.error is not None:
            raise self.error

    # Places.

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent over it, as far as is known."""
        transport = self.transport
        return (
            transport is not None
            and not transport.is_closing()
            and not self._is_leaving
            and self.error is None
        )

    @property
    def has_room(self) -> bool:
        """Return whether it takes one more stream."""
        return len(self._lent) < self._max_streams and self.is_open

    def lend(self, on_close: Callable[[UpstreamConnection], None]) -> UpstreamStream:
        """Return a new stream; `on_close` is called when its place is free again."""
        stream = UpstreamStream(self, on_close, self._timeouts, self._max_head)
        if not self._lent:
            self._look_after(SILENCE_S)
        self._lent.add(stream)
        return stream

    def leave(self, stream: UpstreamStream, *, is_over: bool) -> bool:
        """Take a place back; reset the stream if it is not over; return whether it had one."""
        if stream not in self._lent:
            return False
        self._lent.discard(stream)
        number = stream.number
        if number:
            self._streams.pop(number, None)
            self.waiting.pop(number, None)
            if not is_over:
                self.framing.reset(number, CANCEL)
                self.wake()
        if not self._lent:
            if self._is_leaving:
                self.close()
            else:
                self.due = self._loop.time() + self._timeouts.keepalive
        return True

    def retire(self) -> None:
        """Take no more streams, and close once there are none."""
        self._is_leaving = True
        if not self._lent:
            self.close()

    def close(self) -> None:
        """Close; what is sent so far still arrives."""
        self.due = inf
        self._is_leaving = True
        if self.transport is not None:
            self.transport.close()

    def abort(self, error: UpstreamError) -> None:
        """Close immediately, with all streams."""
        self.error = self.error or error
        if not self._ready.done():
            self._ready.set_result(None)
        if self.transport is not None:
            self.transport.abort()
        for stream in list(self._lent):
            stream.lost(error)
        self.due = inf

    # Requests.

    def begin(self, stream: UpstreamStream, head: bytes, *, is_whole: bool) -> int:
        """Send the head of a request; return the number of its stream, or 0 if it is not sent."""
        if not self.is_open:
            return 0
        if head != self._last_head:
            self._last_fields = request_fields(head, self._scheme)
            self._last_head = head
        number = self.framing.begin(self._last_fields, is_whole=is_whole)
        if number:
            self._streams[number] = stream
            self.wake()
        else:
            # Its numbers are used up, or it is about to end.
            self._is_leaving = True
        return number

    def taken(self, number: int, size: int) -> None:
        """Let the upstream send as much again on a stream."""
        self.framing.taken(number, size)
        self.wake()

    # Time limits.

    def _look_after(self, seconds: float) -> None:
        self.due = self._loop.time() + seconds

    def expire(self) -> None:
        """Close if it is not used, or if the upstream does not answer."""
        now = self._loop.time()
        if not self._lent:
            self.close()
        elif self._pinged:
            self.abort(UpstreamClosedError("the upstream does not answer a PING"))
        elif now < self._seen + SILENCE_S or now < self._quiet_until:
            self.due = max(self._seen + SILENCE_S, self._quiet_until)
        else:
            self._pinged = True
            self.framing.ping()
            self.wake()
            self._look_after(ANSWER_S)

    # Frames: an `AnswerSink`.

    def interim_received(self, stream: int, fields: tuple[Field, ...]) -> None:
        """Take an interim answer."""
        one = self._streams.get(stream)
        if one is not None:
            one.interim_received(fields)

    def answer_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of an answer."""
        one = self._streams.get(stream)
        if one is not None:
            self.has_answered = True
            one.answer_received(fields, is_whole=is_whole)
            self._touched.append(one)

    def data_received_on(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Take a piece of a body."""
        one = self._streams.get(stream)
        if one is not None:
            one.data_received_on(data, is_last=is_last)
            self._touched.append(one)
        else:
            self.framing.taken(stream, len(data))

    def trailers_received(self, stream: int, fields: tuple[Field, ...]) -> None:
        """Take the end of an answer."""
        one = self._streams.get(stream)
        if one is not None:
            one.trailers_received(fields)
            self._touched.append(one)

    def stream_closed(self, stream: int, code: int, *, is_by_peer: bool) -> None:
        """Note the end of a stream."""
        one = self._streams.get(stream)
        if one is not None:
            self.waiting.pop(stream, None)
            one.closed(code, is_by_peer=is_by_peer)

    def settings_received(self, most: int) -> None:
        """Note how many streams the upstream takes at a time."""
        had = self._max_streams
        if most >= 0:
            self._max_streams = min(self._own_max, most)
        if not self._ready.done():
            self._ready.set_result(None)
        elif self._max_streams > had:
            self._on_room()

    def going_away(self, code: int) -> None:
        """Note that the upstream takes no more requests."""
        self._is_leaving = True

    def ping_answered(self) -> None:
        """Note that the upstream is there."""
        self._pinged = False
        self._quiet_until = self._loop.time() + AGAIN_S
        self._look_after(SILENCE_S)

    def closed_by_frames(self, code: int) -> None:
        """Note that nothing more can be received."""
        self._is_leaving = True

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        # uvloop's transports have the methods of asyncio's, but not its classes.
        self.transport = cast("asyncio.Transport", transport)
        self.due = self._loop.time() + self._timeouts.keepalive
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Read the frames in these bytes."""
        self._seen = self._loop.time()
        if self.error is not None:
            return
        try:
            self.framing.receive(data)
        except FramingError as error:
            if self.transport is not None:
                self.transport.write(self.framing.goodbye(error.code))
                self.transport.close()
            self.abort(UpstreamProtocolError("not valid HTTP/2"))
            return
        if self._touched:
            # What arrived together is told together: small answers are complete then.
            touched, self._touched = self._touched, []
            for stream in touched:
                stream.tell()
        self._flush()
        if self._is_leaving and not self._lent:
            self.close()

    def eof_received(self) -> bool:
        """Close: an upstream that sends no more cannot answer."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams."""
        self.transport = None
        self.abort(UpstreamClosedError("closed before the answer was complete"))
        self._on_close(self)

    def pause_writing(self) -> None:
        """Note that the upstream does not read."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Continue."""
        self._is_writing_paused = False
        self.wake()

    def wake(self) -> None:
        """Send what there is in this turn of the event loop, together with what else comes up."""
        if not self._has_wake:
            self._has_wake = True
            self._loop.call_soon(self._on_wake)

    def _on_wake(self) -> None:
        self._has_wake = False
        self._flush()

    def _flush(self) -> None:
        """Send what the transport and the upstream's windows take."""
        framing = self.framing
        while self.transport is not None and not self._is_writing_paused:
            data = framing.to_send()
            if data:
                self.transport.write(data)
            # A stream is over once its last frame is made.
            framing.dispatch()
            if not data:
                break
        if self.waiting:
            for number, stream in list(self.waiting.items()):
                if stream.window_opened():
                    self.waiting.pop(number, None)
