"""The frames of one connection: bytes in, events out; commands in, bytes out. No I/O.

This is the only module that imports the library which does the framing (`ngh2`, libnghttp2). It
checks what RFC 9113 says of frames, streams, header blocks and flow control, and refuses what is
malformed. Another library can take its place here; nothing else of it is known elsewhere. Where it
is not installed, clients are served with HTTP/1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

try:
    import ngh2
except ImportError:
    ngh2 = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ngh2 import (
        ConnectionClosed,
        DataReceived,
        RequestReceived,
        StreamClosed,
        StreamReset,
        TrailersReceived,
    )

Field = tuple[bytes, bytes]

IS_AVAILABLE: Final[bool] = ngh2 is not None
"""Whether HTTP/2 can be spoken."""

LIBRARY: Final = "ngh2==0.3.0"
"""What to install; the same requirement as in `pyproject.toml`."""

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
ENHANCE_YOUR_CALM: Final = 0xB
"""Error codes (RFC 9113, section 7)."""

STREAM_WINDOW: Final = 65_535
"""Bytes of a body that a client may send on a stream before they are read."""
CONNECTION_WINDOW: Final = 1 << 20
"""The same for all streams of a connection together: what bounds their memory."""
BLOCK_MARGIN: Final = 2
"""How many times the largest head that is served may be, and be answered with 431. A larger one
ends the connection: its fields would have to be decoded, to keep the tables of HPACK, and kept."""
CONTINUATIONS_MAX: Final = 8
"""Most CONTINUATION frames of one head (CVE-2024-27316 and others): it fits into five frames."""
SETTINGS_MAX: Final = 32
"""Most entries in one SETTINGS frame (CVE-2020-11080)."""
ACKS_MAX: Final = 1000
"""Most answers to PING and SETTINGS that wait because the client does not read (CVE-2019-9512)."""
PIECE: Final = 64 * 1024
"""Most bytes that are made at a time: the rest waits until the transport takes more."""

_GOAWAY: Final = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00"
_SHARED: Final = ngh2.Priority(incremental=True) if IS_AVAILABLE else None


class FrameSink(Protocol):
    """What the events of a connection are given to."""

    def request_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of a request; without a body if it is whole."""

    def data_received_on(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Take a piece of a body; count the bytes with `Framing.taken` once they are used."""

    def trailers_received(self, stream: int) -> None:
        """Note the end of a body that trailers follow; those of requests are not passed on."""

    def stream_closed(self, stream: int, code: int, *, is_by_client: bool) -> None:
        """Note the end of a stream, by either side; also of one whose request was malformed."""

    def ping_answered(self) -> None:
        """Note that the client has read everything that was sent before the last PING."""

    def closed_by_frames(self, code: int) -> None:
        """Note that nothing more can be received."""


class FramingError(Exception):
    """The client has broken the protocol, or a limit that protects the gateway.

    Attributes:
        code: the error code for the client.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP/2 error {code}")
        self.code = code


class Framing:
    """HTTP/2 of one connection, as its server.

    Args:
        sink: takes the events.
        max_head: most bytes in the head of a request, as RFC 9113, section 6.5.2, counts them.
        max_fields: most fields in it.
        streams: most streams at a time.

    Attributes:
        last: the number of the last stream that was opened; 0 before the first.
    """

    __slots__ = ("_connection", "_is_lost", "_reset_by_client", "_sink", "last")

    def __init__(self, sink: FrameSink, max_head: int, max_fields: int, streams: int) -> None:
        assert IS_AVAILABLE
        self._sink = sink
        self.last = 0
        self._reset_by_client = 0
        self._is_lost = False
        self._connection = ngh2.Connection(
            ngh2.Role.SERVER,
            ngh2.Configuration(
                auto_window_update=False,
                max_outbound_ack=ACKS_MAX,
                max_settings=SETTINGS_MAX,
                max_continuations=CONTINUATIONS_MAX,
                max_inbound_header_list_size=max_head * BLOCK_MARGIN,
                max_inbound_header_count=max_fields * BLOCK_MARGIN,
                max_send_header_block_length=1 << 20,
            ),
        )
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
        return f"<Framing: last stream {self.last}>"

    # Bytes.

    def receive(self, data: bytes) -> None:
        """Take bytes from the client; the sink gets what is in them.

        Raises:
            FramingError: the connection must end; `goodbye` says so to the client.
        """
        if self._is_lost:
            return
        try:
            self._connection.receive_data(data)
        except ngh2.DenialOfServiceError:
            self._is_lost = True
            raise FramingError(ENHANCE_YOUR_CALM) from None
        except ngh2.ConnectionStateError:
            # After a GOAWAY with an error, which is on its way.
            self._is_lost = True
        except ngh2.NGH2Error:
            self._is_lost = True
            raise FramingError(PROTOCOL_ERROR) from None
        self.dispatch()

    def dispatch(self) -> None:
        """Give the sink what has happened since."""
        if self._is_lost:
            return
        sink = self._sink
        for event in self._connection.events():
            give = _GIVERS.get(type(event))
            if give is not None:
                give(self, sink, event)

    def to_send(self) -> bytes:
        """Return the next bytes for the client; nothing if there are none, or it must read first.

        Call `dispatch` afterwards: a stream is over when its last frame is made.
        """
        if self._is_lost:
            return b""
        try:
            return self._connection.data_to_send(PIECE)
        except ngh2.NGH2Error:
            self._is_lost = True
            return b""

    def goodbye(self, code: int) -> bytes:
        """Return the GOAWAY frame that ends the connection with an error, and send nothing else."""
        self._is_lost = True
        return _GOAWAY + self.last.to_bytes(4) + code.to_bytes(4)

    # Responses. All of these do nothing if the stream is over.

    def respond(self, stream: int, fields: Iterable[Field], *, is_whole: bool) -> None:
        """Send the head of a response."""
        self._do(self._connection.send_response, stream, fields, end_stream=is_whole)

    def inform(self, stream: int, fields: Iterable[Field]) -> None:
        """Send an interim response."""
        self._do(self._connection.send_informational_response, stream, fields)

    def send(self, stream: int, data: bytes) -> None:
        """Send a piece of a body, as the client's windows allow."""
        self._do(self._connection.send_data, stream, data)

    def end(self, stream: int) -> None:
        """End the body."""
        self._do(self._connection.end_stream, stream)

    def trail(self, stream: int, fields: Iterable[Field]) -> None:
        """End the body, with trailers."""
        self._do(self._connection.send_trailers, stream, fields)

    def reset(self, stream: int, code: int) -> None:
        """End a stream immediately, in both directions."""
        self._do(self._connection.reset_stream, stream, code)

    def share(self, stream: int) -> None:
        """Let a long response take turns with others, a frame each, whatever the client prefers."""
        self._do(self._connection.set_stream_priority, stream, _SHARED, ignore_client_signal=True)

    def queued(self, stream: int) -> int:
        """Return the bytes of a body that wait for the client's windows, or for the transport."""
        return self._connection.queued_body_size(stream)

    def taken(self, stream: int, size: int) -> None:
        """Note that so many bytes of a body were used: the client may send as many more."""
        self._do(self._connection.acknowledge_received_data, size, stream)

    # The connection.

    def ping(self) -> None:
        """Ask for a sign that the client has read everything so far."""
        self._do(self._connection.ping)

    def announce_end(self) -> None:
        """Ask for no more requests; those that are on their way are still served."""
        self._do(self._connection.send_shutdown_notice)

    def refuse_more(self) -> None:
        """Serve no request that has not arrived yet."""
        self._do(self._connection.send_goaway)

    def _do(self, command: Callable[..., object], *args: Any, **options: Any) -> None:
        if self._is_lost:
            return
        # The stream may have ended, or the connection be about to.
        with suppress(ngh2.ProtocolError, ngh2.ConnectionStateError, ngh2.ConnectionClosingError):
            command(*args, **options)

    # Events.

    def _give_request(self, sink: FrameSink, event: RequestReceived) -> None:
        self.last = event.stream_id
        sink.request_received(event.stream_id, event.headers, is_whole=event.end_stream)

    def _give_data(self, sink: FrameSink, event: DataReceived) -> None:
        sink.data_received_on(event.stream_id, event.data, is_last=event.end_stream)

    def _give_trailers(self, sink: FrameSink, event: TrailersReceived) -> None:
        sink.trailers_received(event.stream_id)

    def _give_closed(self, sink: FrameSink, event: StreamClosed) -> None:
        is_by_client = event.stream_id == self._reset_by_client
        sink.stream_closed(event.stream_id, event.error_code, is_by_client=is_by_client)

    def _give_reset(self, _: FrameSink, event: StreamReset) -> None:
        # The end of the stream follows.
        self._reset_by_client = event.stream_id

    def _give_ping(self, sink: FrameSink, _: object) -> None:
        sink.ping_answered()

    def _give_end(self, sink: FrameSink, event: ConnectionClosed) -> None:
        sink.closed_by_frames(event.error_code)


_GIVERS: Final[dict[type, Callable[[Framing, FrameSink, Any], None]]] = (
    {
        ngh2.RequestReceived: Framing._give_request,  # noqa: SLF001 - of this module
        ngh2.DataReceived: Framing._give_data,  # noqa: SLF001 - likewise
        ngh2.TrailersReceived: Framing._give_trailers,  # noqa: SLF001 - likewise
        ngh2.StreamReset: Framing._give_reset,  # noqa: SLF001 - likewise
        ngh2.StreamClosed: Framing._give_closed,  # noqa: SLF001 - likewise
        ngh2.PingAcknowledged: Framing._give_ping,  # noqa: SLF001 - likewise
        ngh2.ConnectionClosed: Framing._give_end,  # noqa: SLF001 - likewise
    }
    if IS_AVAILABLE
    else {}
)
