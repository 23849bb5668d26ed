"""One connection from a client that speaks HTTP/2: an asyncio protocol that serves many requests.

Each stream is a request of its own (`stream`), served as if it were alone on a connection of
HTTP/1.1. What they share is here: the transport, the time limits of the connection, and its end.
What arrives in one piece is read to its end before anything in it is served, so that a request
that was reset immediately costs nothing, and a small body is complete when its request is served.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, cast

from gateway.net.client_socket import end_writing, peer_of, set_options
from gateway.net.tls.handshake import ServerConnection
from gateway.net.unsent import unsent_bytes
from gateway.proxy.client.deadline import FAIR_S
from gateway.proxy.client.http2.authority import HostCheck
from gateway.proxy.client.http2.frame_meter import FrameMeter
from gateway.proxy.client.http2.receiver import FrameReceiver
from gateway.proxy.client.reset import reset
from gateway.proxy.http2.framing import (
    ENHANCE_YOUR_CALM,
    NO_ERROR,
    PROTOCOL_ERROR,
    FramingError,
)
from gateway.proxy.http2.server_framing import ServerFraming

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.client.handler import Configured
    from gateway.proxy.client.http2.stream import Http2Stream

STREAMS_MAX: Final = 100
"""Requests of one connection at a time (RFC 9113, section 6.5.2, recommends no fewer)."""
LAST_CALL_S: Final = 0.25
"""How long a client that does not answer the PING has to send requests that were on their way."""

_HEAD: Final = 0
_IDLE: Final = 1
_LAST_CALL: Final = 2
_LINGERING: Final = 3
"""What a client has to do, or may not do for long."""


class Http2Connection:
    """One connection from a client.

    Args:
        acceptor: what created it, which has the settings of its listener.
        peer: the client's address from a PROXY header; empty for that of the socket.
        identify: finds the client's certificate, where clients may have one.

    Attributes:
        transport: None once the connection is closed.
        framing: its frames.
        hosts: knows which hosts it is for; None if for all.
        streams: those that are not over, by number.
        due: the loop's time at which the client may be late; never later than it is.
        sent_headers, sent_host, sent_fields: as in `ClientConnection`, for all streams together.
    """

    __slots__ = (
        "_handler",
        "_has_wake",
        "_identify",
        "_is_ending",
        "_is_lingering",
        "_is_refused",
        "_is_told",
        "_is_writing_paused",
        "_meter",
        "_phase",
        "_phase_due",
        "_reading_due",
        "_receiver",
        "_unread",
        "_unsent",
        "acceptor",
        "certificate",
        "due",
        "framing",
        "hosts",
        "https_port",
        "is_trusted",
        "loop",
        "own_fields",
        "peer",
        "peer_key",
        "reserved",
        "scheme",
        "sent_fields",
        "sent_headers",
        "sent_host",
        "streams",
        "transport",
    )

    def __init__(
        self,
        acceptor: Configured,
        *,
        peer: str = "",
        identify: Callable[[Http2Connection, asyncio.BaseTransport], None] | None = None,
    ) -> None:
        settings = acceptor.settings
        self.acceptor = acceptor
        self.loop = asyncio.get_running_loop()
        self._handler = settings.handler
        self._identify = identify
        self._meter = FrameMeter(self.loop.time())
        self._receiver = receiver = FrameReceiver(self, self._meter)
        self.framing = ServerFraming(
            receiver, settings.max_head, settings.parser.max_headers, STREAMS_MAX
        )
        self.streams = receiver.streams
        self._unsent: dict[int, Http2Stream] = {}
        self._has_wake = False
        self._is_writing_paused = False
        self._is_refused = False
        # Nothing is served any more; with lingering, what arrives is discarded.
        self._is_ending = False
        self._is_lingering = False
        self._phase = _HEAD
        self._phase_due = inf
        # Whether a GOAWAY frame says which request was the last.
        self._is_told = False
        self._reading_due = inf
        self._unread = 0
        self.hosts: HostCheck | None = None
        self.due = inf
        self.transport: asyncio.Transport | None = None
        self.peer = peer
        self.peer_key = ""
        self.is_trusted = False
        self.scheme = "http"
        self.https_port = settings.https_port
        self.certificate: ClientCertificate | None = None
        self.own_fields = b""
        self.reserved = settings.reserved
        self.sent_headers: object = None
        self.sent_host = ""
        self.sent_fields = b""

    def __repr__(self) -> str:
        return f"<Http2Connection {self.peer}: {len(self.streams)} streams>"

    # What the handler of all connections uses.

    @property
    def under_way(self) -> int:
        """Return how many requests are being served."""
        return sum(stream.current is not None for stream in self.streams.values())

    def spare(self, now: float) -> int:
        """Return how readily it can be closed; as in `ClientConnection`."""
        if self.streams or self._is_ending or self._is_writing_paused:
            return 0
        if self._phase == _IDLE:
            return 1
        head_s = self.acceptor.settings.timeouts.head
        return 2 if self._phase == _HEAD and self._phase_due - now <= head_s - FAIR_S else 0

    def make_room(self) -> None:
        """Close, to make room for another client."""
        self._end(NO_ERROR)

    def reconfigure(self) -> None:
        """Take the present settings of the listener, from the next request on."""
        settings = self.acceptor.settings
        self.https_port = settings.https_port
        self.reserved = settings.reserved
        self.peer_key, self.is_trusted = self._handler.recognise(self.peer)
        self.sent_headers = None

    def close_when_idle(self) -> None:
        """End with the present requests, and with those that are on their way.

        The client is told twice (RFC 9113, section 6.8): to send no more, and, once it has read
        that, which request was the last.
        """
        if self._is_ending or self._phase == _LAST_CALL:
            return
        self.framing.announce_end()
        self.framing.ping()
        self._await(_LAST_CALL, LAST_CALL_S)
        self.wake()

    def break_off(self) -> None:
        """Reset the connection."""
        transport, self.transport = self.transport, None
        self._is_ending = self._is_lingering = True
        if transport is not None:
            reset(transport)

    # Time limits.

    def note_due(self, due: float) -> None:
        """Note a time at which a stream is late."""
        self.due = min(self.due, due)

    def _await(self, phase: int, seconds: float) -> None:
        """Give the client time for something."""
        self._phase = phase
        self._phase_due = self.loop.time() + seconds
        self.due = min(self.due, self._phase_due)

    def expire(self) -> None:
        """Handle what is late."""
        now = self.loop.time()
        if self._phase_due <= now:
            self._phase_due = inf
            self._is_late()
        if self._reading_due <= now:
            self._reader_may_be_late(now)
        for stream in [one for one in self.streams.values() if one.due <= now]:
            stream.expire()
        dues = [stream.due for stream in self.streams.values()]
        self.due = min([self._phase_due, self._reading_due, *dues])

    def _is_late(self) -> None:
        timeouts = self.acceptor.settings.timeouts
        if self._phase == _LAST_CALL:
            self._refuse_more()
        elif self._phase == _LINGERING:
            left = unsent_bytes(self.transport)
            if left and timeouts.is_progress(self._unread - left):
                self._unread = left
                self._await(_LINGERING, timeouts.linger)
            else:
                self.break_off()
        elif self._phase == _HEAD:
            self._handler.head_is_late()
            self._end(NO_ERROR)
        elif self._is_writing_paused:
            # It is still reading its last response.
            self._await(_IDLE, timeouts.idle)
        else:
            self._end(NO_ERROR)

    def _reader_may_be_late(self, now: float) -> None:
        """Break off if the client reads nothing at all."""
        timeouts = self.acceptor.settings.timeouts
        left = unsent_bytes(self.transport)
        if timeouts.is_progress(self._unread - left):
            self._unread = left
            self._reading_due = now + timeouts.body
            return
        self._reading_due = inf
        self._handler.reader_is_late(None)
        self.break_off()

    def _watch_head(self) -> None:
        """Limit the time of a head that arrives in pieces, and of a connection without requests."""
        if self._phase not in (_HEAD, _IDLE):
            return
        if self._meter.is_in_head:
            if self._phase == _IDLE:
                self._await(_HEAD, self.acceptor.settings.timeouts.head)
        elif self.streams:
            self._phase = _IDLE
            self._phase_due = inf
        elif self.framing.last and (self._phase == _HEAD or self._phase_due == inf):
            self._await(_IDLE, self.acceptor.settings.timeouts.idle)

    # How it ends.

    def _refuse_more(self) -> None:
        """Serve no more than what has arrived."""
        self._phase_due = inf
        self.framing.refuse_more()
        self._is_ending = self._is_told = True
        self.wake()

    def _refuse(self, kind: str, code: int = -1) -> None:
        """End with an error; count it."""
        if code < 0:
            code = PROTOCOL_ERROR if kind == "http2_protocol" else ENHANCE_YOUR_CALM
        if not self._is_lingering:
            self._handler.misbehaved(kind)
            self._end(code, kind)

    def _end(self, code: int, kind: str = "") -> None:
        """Close with a GOAWAY frame; the client has time to read it."""
        transport = self.transport
        if transport is None or self._is_lingering:
            return
        self._is_ending = self._is_lingering = True
        goodbye = self.framing.goodbye(code)
        if not self._is_told:
            transport.write(goodbye)
        if code == NO_ERROR:
            transport.close()
        else:
            # What it still sends is discarded: closing with unread bytes would reset the
            # connection, and a reset destroys what the client has not read yet.
            end_writing(transport)
        self._unread = unsent_bytes(transport)
        self._reading_due = inf
        self._await(_LINGERING, self.acceptor.settings.timeouts.linger)
        self._abandon(kind)

    def _abandon(self, kind: str = "") -> None:
        streams = list(self.streams.values())
        self.streams.clear()
        self._unsent.clear()
        self._receiver.new.clear()
        for stream in streams:
            stream.client_left(kind)

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        self.peer = self.peer or peer_of(transport)
        self.peer_key, self.is_trusted = self._handler.recognise(self.peer)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.scheme = "https"
            if isinstance(tls, ServerConnection):
                self.hosts = HostCheck(tls)
            if self._identify is not None:
                self._identify(self, transport)
        set_options(transport)
        self._await(_HEAD, self.acceptor.settings.timeouts.head)
        stream = cast("asyncio.Transport", transport)
        if not self._handler.connected(self, stream):
            self.due = self._phase_due = inf
            self._is_refused = self._is_ending = self._is_lingering = True
            return
        self.transport = stream
        # SETTINGS come first, whatever the client has sent by then.
        self._flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop serving: abandon all requests."""
        self.due = self._phase_due = self._reading_due = inf
        if self._is_refused:
            return
        self._is_ending = self._is_lingering = True
        self.transport = None
        self._handler.crowd.do(self._left)

    def _left(self) -> None:
        self._handler.disconnected(self)
        self._abandon()

    def eof_received(self) -> bool:
        """Close: a client that sends no more cannot answer either."""
        return False

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._is_writing_paused = True
        if not self._is_lingering:
            self._unread = unsent_bytes(self.transport)
            self._reading_due = self.loop.time() + self.acceptor.settings.timeouts.body
            self.note_due(self._reading_due)

    def resume_writing(self) -> None:
        """Continue: the client has read enough of what was sent."""
        self._is_writing_paused = False
        self._reading_due = inf
        self.wake()

    def data_received(self, data: bytes) -> None:
        """Read the frames in these bytes, and serve the requests that are complete."""
        if self._is_lingering:
            return
        kind = self._meter.count(data, self.loop.time())
        if kind:
            self._refuse(kind)
            return
        receiver = self._receiver
        try:
            self.framing.receive(data)
        except FramingError as error:
            is_flood = error.code == ENHANCE_YOUR_CALM
            self._refuse("http2_flood" if is_flood else "http2_protocol", error.code)
            return
        receiver.check_heads()
        if receiver.error:
            self._refuse(receiver.error)
            return
        if receiver.new:
            new = receiver.new[:]
            receiver.new.clear()
            for stream in new:
                stream.serve()
        self._flush()

    def wake(self) -> None:
        """Send what there is in this turn of the event loop, together with what else comes up."""
        if not self._has_wake:
            self._has_wake = True
            self.loop.call_soon(self._on_wake)

    def _on_wake(self) -> None:
        self._has_wake = False
        self._flush()

    def note_unsent(self, stream: Http2Stream) -> None:
        """Note that there is something to send on a stream."""
        self._unsent[stream.number] = stream
        self.wake()

    def _flush(self) -> None:
        """Send what the transport and the client's windows take."""
        framing, unsent = self.framing, self._unsent
        for stream in unsent.values():
            stream.send_head()
        while self.transport is not None and not self._is_writing_paused:
            data = framing.to_send()
            if data:
                self._meter.sent(len(data))
                self.transport.write(data)
            # A stream is over once its last frame is made.
            framing.dispatch()
            if not data:
                break
        for stream in list(unsent.values()):
            if stream.is_over or not stream.made_progress():
                unsent.pop(stream.number, None)
        self._look()

    def _look(self) -> None:
        """See what has come of the frames that were read and made."""
        receiver = self._receiver
        if receiver.error:
            self._refuse(receiver.error)
        elif receiver.end > NO_ERROR:
            # The client was sent a GOAWAY frame.
            self._is_told = True
            is_flood = receiver.end == ENHANCE_YOUR_CALM
            self._refuse("http2_flood" if is_flood else "http2_protocol", receiver.end)
        elif receiver.end == NO_ERROR:
            self._is_ending = self._is_told = True
        elif receiver.has_pong and self._phase == _LAST_CALL and not self._is_ending:
            # It knows that the connection is about to end; what it is told now is sent first.
            self._refuse_more()
            return
        if self._is_ending and not self.streams:
            self._end(NO_ERROR)
        else:
            self._watch_head()
