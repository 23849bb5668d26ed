"""What the frames of one connection say: streams that begin, bodies, and streams that end.

It keeps what has arrived until the connection looks, which is when all bytes that came together are
read. So a request that was reset immediately is never served, and a small body is complete when
its request is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.proxy.client.http2.body import StreamBody
from gateway.proxy.client.http2.frame_meter import LOST_HEADS_MAX
from gateway.proxy.client.http2.message import read_request
from gateway.proxy.client.http2.stream import Http2Stream
from gateway.proxy.http2.framing import NO_ERROR, REFUSED_STREAM, Field

if TYPE_CHECKING:
    from gateway.base.errors import BadRequestError
    from gateway.proxy.client.handler import ConnectionSettings
    from gateway.proxy.client.http2.frame_meter import FrameMeter
    from gateway.proxy.client.http2.stream import StreamOwner
    from gateway.proxy.client.request_message import RequestMessage

_SCHEMES: Final = {"http": (b"http",), "https": (b"https",)}
_ALL_SCHEMES: Final = (b"http", b"https")


class FrameReceiver:
    """Takes the events of the framing: a `FrameSink`.

    Args:
        owner: the connection.
        meter: counts what is an error only if there is much of it.

    Attributes:
        streams: those that are not over, by number.
        new: those whose requests are to be served.
        error: the kind of error that must end the connection; empty if there is none.
        end: the error code with which the framing has ended the connection; -1 while it goes on.
        has_pong: whether the client has answered a PING.
    """

    __slots__ = (
        "_heads",
        "_last_fields",
        "_last_message",
        "_last_settings",
        "_meter",
        "_owner",
        "end",
        "error",
        "has_pong",
        "new",
        "streams",
    )

    def __init__(self, owner: StreamOwner, meter: FrameMeter) -> None:
        self._owner = owner
        self._meter = meter
        # How many heads have come to something.
        self._heads = 0
        # The last request without a body, which may come again as it is.
        self._last_fields: tuple[Field, ...] = ()
        self._last_settings: ConnectionSettings | None = None
        self._last_message: RequestMessage | BadRequestError | None = None
        self.streams: dict[int, Http2Stream] = {}
        self.new: list[Http2Stream] = []
        self.error = ""
        self.end = -1
        self.has_pong = False

    def __repr__(self) -> str:
        return f"<FrameReceiver: {len(self.streams)} streams>"

    def check_heads(self) -> None:
        """Note an error if too many heads have led to nothing, not even to an error."""
        if self._meter.heads - self._heads > LOST_HEADS_MAX:
            self.error = self.error or "http2_flood"

    def request_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of a request."""
        self._heads += 1
        owner = self._owner
        settings = owner.acceptor.settings
        one = Http2Stream(owner, stream)
        self.streams[stream] = one
        self.new.append(one)
        if not is_whole:
            one.body = StreamBody(one)
        elif fields == self._last_fields and settings is self._last_settings:
            # Most clients of services repeat themselves: this saves 10 of some 50 µs a request.
            one.message = self._last_message
            return
        schemes = _ALL_SCHEMES if owner.is_trusted else _SCHEMES[owner.scheme]
        one.message = read_request(
            fields, settings.parser, settings.max_head, schemes, is_whole=is_whole
        )
        if is_whole:
            self._last_fields, self._last_settings = fields, settings
            self._last_message = one.message

    def data_received_on(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Take a piece of a body."""
        one = self.streams.get(stream)
        if not data and not is_last:
            # Nothing but padding.
            self.error = self.error or self._meter.idle(self._owner.loop.time())
        if one is None or one.body is None:
            self._owner.framing.taken(stream, len(data))
            return
        if data:
            one.body.feed(data)
        if is_last:
            one.body.end()

    def trailers_received(self, stream: int) -> None:
        """Note the end of a body; its trailers are dropped, as those over HTTP/1.1 are."""
        self._heads += 1
        one = self.streams.get(stream)
        if one is not None and one.body is not None:
            one.body.end()

    def stream_closed(self, stream: int, code: int, *, is_by_peer: bool) -> None:
        """Note the end of a stream."""
        one = self.streams.pop(stream, None)
        is_broken = code not in (NO_ERROR, REFUSED_STREAM) and not is_by_peer
        if one is None:
            self._heads += 1
            # Its request was malformed, or one too many, and was never served.
            if is_broken:
                self._count_reset()
            else:
                self.error = self.error or self._meter.idle(self._owner.loop.time())
        elif not one.is_over:
            if is_broken:
                self._count_reset()
            one.client_left("http2_stream" if is_broken else "")

    def _count_reset(self) -> None:
        """Count a stream that the client made the gateway reset."""
        owner = self._owner
        owner.acceptor.settings.handler.misbehaved("http2_stream")
        self.error = self.error or self._meter.reset(owner.loop.time())

    def ping_answered(self) -> None:
        """Note that the client has read what was sent before the PING."""
        self.has_pong = True

    def closed_by_frames(self, code: int) -> None:
        """Note that nothing more can be received."""
        self.end = code
