"""The frames of a connection from a client: requests in, responses out. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from gateway.proxy.http2.framing import (
    IS_AVAILABLE,
    IS_OVER,
    SHARED_GIVERS,
    Field,
    Framing,
    StreamSink,
    limited,
)

try:
    import ngh2
except ImportError:
    ngh2 = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ngh2 import RequestReceived, TrailersReceived

STREAM_WINDOW: Final = 65_535
"""Bytes of a body that a client may send on a stream before they are read."""
CONNECTION_WINDOW: Final = 1 << 20
"""The same for all streams of a connection together: what bounds their memory."""

_SHARED: Final = ngh2.Priority(incremental=True) if IS_AVAILABLE else None


class RequestSink(StreamSink, Protocol):
    """What the events of a connection from a client are given to."""

    def request_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of a request; without a body if it is whole."""

    def trailers_received(self, stream: int) -> None:
        """Note the end of a body that trailers follow; those of requests are not passed on."""


class ServerFraming(Framing):
    """HTTP/2 of one connection, as its server.

    Args:
        sink: takes the events.
        max_head: most bytes in the head of a request, as RFC 9113, section 6.5.2, counts them.
        max_fields: most fields in it.
        streams: most streams at a time.
    """

    __slots__ = ("_sink",)

    def __init__(self, sink: RequestSink, max_head: int, max_fields: int, streams: int) -> None:
        assert IS_AVAILABLE
        super().__init__(ngh2.Connection(ngh2.Role.SERVER, limited(max_head, max_fields)))
        self._sink = sink
        self._connection.initiate_connection(
            {
                ngh2.Setting.MAX_CONCURRENT_STREAMS: streams,
                ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: max_head,
                # Priorities by RFC 9218 only, of which `share` uses what makes streams take turns.
                ngh2.Setting.NO_RFC7540_PRIORITIES: 1,
            }
        )
        self._connection.set_local_window_size(CONNECTION_WINDOW)

    def __repr__(self) -> str:
        return f"<ServerFraming: last stream {self.last}>"

    def dispatch(self) -> None:
        """As in `Framing`."""
        if self._is_lost:
            return
        for event in self._connection.events():
            give = _GIVERS.get(type(event))
            if give is not None:
                give(self, self._sink, event)

    # Responses. All of these do nothing if the stream is over.

    def respond(self, stream: int, fields: Iterable[Field], *, is_whole: bool) -> None:
        """Send the head of a response."""
        if self._is_lost:
            return
        try:  # noqa: SIM105 - that would cost a microsecond for each frame
            self._connection.send_response(stream, fields, end_stream=is_whole)
        except IS_OVER:
            pass

    def inform(self, stream: int, fields: Iterable[Field]) -> None:
        """Send an interim response."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.send_informational_response(stream, fields)

    def share(self, stream: int) -> None:
        """Let a long response take turns with others, a frame each, whatever the client prefers."""
        if self._is_lost:
            return
        assert _SHARED is not None
        with suppress(*IS_OVER):
            self._connection.set_stream_priority(stream, _SHARED, ignore_client_signal=True)

    # The connection.

    def announce_end(self) -> None:
        """Ask for no more requests; those that are on their way are still served."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.send_shutdown_notice()

    def refuse_more(self) -> None:
        """Serve no request that has not arrived yet."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.send_goaway()

    # Events.

    def give_request(self, sink: RequestSink, event: RequestReceived) -> None:
        """Give the head of a request."""
        self.last = event.stream_id
        sink.request_received(event.stream_id, event.headers, is_whole=event.end_stream)

    def give_trailers(self, sink: RequestSink, event: TrailersReceived) -> None:
        """Give the end of a request."""
        sink.trailers_received(event.stream_id)


_GIVERS: Final[dict[type, Callable[..., None]]] = (
    {
        ngh2.RequestReceived: ServerFraming.give_request,
        ngh2.TrailersReceived: ServerFraming.give_trailers,
        **SHARED_GIVERS,
    }
    if IS_AVAILABLE
    else {}
)
