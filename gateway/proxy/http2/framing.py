"""The frames of one connection: bytes in, events out; commands in, bytes out. No I/O.

This package holds the only modules that import the library which does the framing (`ngh2`,
libnghttp2). It checks what RFC 9113 says of frames, streams, header blocks and flow control, and
refuses what is malformed. Another library can take its place here; nothing else of it is known
elsewhere. Where it is not installed, clients are served with HTTP/1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

try:
    import ngh2
except ImportError:
    ngh2 = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ngh2 import ConnectionClosed, DataReceived, StreamClosed, StreamReset

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
HTTP_1_1_REQUIRED: Final = 0xD
"""Error codes (RFC 9113, section 7)."""

BLOCK_MARGIN: Final = 2
"""How many times the largest head that is taken may be, and only that stream end. A larger one ends
the connection: its fields would have to be decoded, to keep the tables of HPACK, and kept."""
CONTINUATIONS_MAX: Final = 8
"""Most CONTINUATION frames of one head (CVE-2024-27316 and others): it fits into five frames."""
SETTINGS_MAX: Final = 32
"""Most entries in one SETTINGS frame (CVE-2020-11080)."""
ACKS_MAX: Final = 1000
"""Most answers to PING and SETTINGS that wait because the peer does not read (CVE-2019-9512)."""
PIECE: Final = 64 * 1024
"""Most bytes that are made at a time: the rest waits until the transport takes more."""

_GOAWAY: Final = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00"


IS_OVER: Final[tuple[type[BaseException], ...]] = (
    (ngh2.ProtocolError, ngh2.ConnectionStateError, ngh2.ConnectionClosingError)
    if IS_AVAILABLE
    else ()
)
"""Why a command has no effect: the stream has ended, or the connection is about to."""


class StreamSink(Protocol):
    """What the events of either side of a connection are given to."""

    def data_received_on(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Take a piece of a body; count the bytes with `Framing.taken` once they are used."""

    def stream_closed(self, stream: int, code: int, *, is_by_peer: bool) -> None:
        """Note the end of a stream, by either side; also of one that was malformed."""

    def ping_answered(self) -> None:
        """Note that the peer has read everything that was sent before the last PING."""

    def closed_by_frames(self, code: int) -> None:
        """Note that nothing more can be received."""


class FramingError(Exception):
    """The peer has broken the protocol, or a limit that protects the gateway.

    Attributes:
        code: the error code for the peer.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP/2 error {code}")
        self.code = code


class Framing:
    """HTTP/2 of one connection, as far as it is the same for both sides.

    Args:
        connection: of the library.

    Attributes:
        last: the number of the last stream that the peer opened; 0 before the first.
    """

    __slots__ = ("_connection", "_is_lost", "_reset_by_peer", "last")

    def __init__(self, connection: ngh2.Connection) -> None:
        self.last = 0
        self._reset_by_peer = 0
        self._is_lost = False
        self._connection = connection

    # Bytes.

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer; the sink gets what is in them.

        Raises:
            FramingError: the connection must end; `goodbye` says so to the peer.
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
        raise NotImplementedError

    def to_send(self) -> bytes:
        """Return the next bytes for the peer; nothing if there are none, or it must read first.

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
        return _GOAWAY + self.last.to_bytes(4, "big") + code.to_bytes(4, "big")

    # Streams. All of these do nothing if the stream is over.

    def send(self, stream: int, data: bytes) -> None:
        """Send a piece of a body, as the peer's windows allow."""
        if self._is_lost:
            return
        try:  # noqa: SIM105 - that would cost a microsecond for each frame
            self._connection.send_data(stream, data)
        except IS_OVER:
            pass

    def end(self, stream: int) -> None:
        """End the body."""
        if self._is_lost:
            return
        try:  # noqa: SIM105 - that would cost a microsecond for each frame
            self._connection.end_stream(stream)
        except IS_OVER:
            pass

    def trail(self, stream: int, fields: Iterable[Field]) -> None:
        """End the body, with trailers."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.send_trailers(stream, fields)

    def reset(self, stream: int, code: int) -> None:
        """End a stream immediately, in both directions."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.reset_stream(stream, code)

    def queued(self, stream: int) -> int:
        """Return the bytes of a body that wait for the peer's windows, or for the transport."""
        return self._connection.queued_body_size(stream)

    def taken(self, stream: int, size: int) -> None:
        """Note that so many bytes of a body were used: the peer may send as many more."""
        if self._is_lost:
            return
        try:  # noqa: SIM105 - that would cost a microsecond for each frame
            self._connection.acknowledge_received_data(size, stream)
        except IS_OVER:
            pass

    # The connection.

    def ping(self) -> None:
        """Ask for a sign that the peer has read everything so far."""
        if self._is_lost:
            return
        with suppress(*IS_OVER):
            self._connection.ping()

    # Events of both sides.

    def give_data(self, sink: StreamSink, event: DataReceived) -> None:
        """Give a piece of a body."""
        sink.data_received_on(event.stream_id, event.data, is_last=event.end_stream)

    def give_closed(self, sink: StreamSink, event: StreamClosed) -> None:
        """Give the end of a stream."""
        is_by_peer = event.stream_id == self._reset_by_peer
        sink.stream_closed(event.stream_id, event.error_code, is_by_peer=is_by_peer)

    def give_reset(self, _: StreamSink, event: StreamReset) -> None:
        """Note who ends a stream; its end follows."""
        self._reset_by_peer = event.stream_id

    def give_ping(self, sink: StreamSink, _: object) -> None:
        """Give the answer to a PING."""
        sink.ping_answered()

    def give_end(self, sink: StreamSink, event: ConnectionClosed) -> None:
        """Give the end of the connection."""
        sink.closed_by_frames(event.error_code)


SHARED_GIVERS: Final[dict[type, Callable[..., None]]] = (
    {
        ngh2.DataReceived: Framing.give_data,
        ngh2.StreamReset: Framing.give_reset,
        ngh2.StreamClosed: Framing.give_closed,
        ngh2.PingAcknowledged: Framing.give_ping,
        ngh2.ConnectionClosed: Framing.give_end,
    }
    if IS_AVAILABLE
    else {}
)
"""What is done with the events that both sides have, by their types."""


def limited(max_head: int, max_fields: int) -> ngh2.Configuration:
    """Return the limits that protect a connection.

    Args:
        max_head: most bytes in a head, as RFC 9113, section 6.5.2, counts them.
        max_fields: most fields in it.
    """
    return ngh2.Configuration(
        auto_window_update=False,
        max_outbound_ack=ACKS_MAX,
        max_settings=SETTINGS_MAX,
        max_continuations=CONTINUATIONS_MAX,
        max_inbound_header_list_size=max_head * BLOCK_MARGIN,
        max_inbound_header_count=max_fields * BLOCK_MARGIN,
        max_send_header_block_length=1 << 20,
    )
