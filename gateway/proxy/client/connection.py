"""One connection from a client: an asyncio protocol that serves one request after the other.

A request is served by the same call that received its last byte. The parts: `request_reader` turns
bytes into requests, `read_flow` applies backpressure to the client, `deadline` enforces its time
limits, `half_close` handles a client that has ended its side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, cast

from gateway.base.errors import BadRequestError
from gateway.net.client_socket import end_writing, peer_of, set_options
from gateway.proxy.client.deadline import ClientDeadline, give_up, is_sending
from gateway.proxy.client.half_close import HalfClosed
from gateway.proxy.client.read_flow import ReadFlow
from gateway.proxy.client.request_reader import RequestReader
from gateway.proxy.client.reset import reset

if TYPE_CHECKING:
    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.client.handler import Configured, Identified, RepeatableReply, ServedRequest

TURN_MAX: Final = 32
"""Requests of one connection per turn of the event loop, so that others get their turn."""
LONGEST_SEGMENT: Final = 4096
"""Bytes of a request that are kept to recognise it when it is repeated."""


class ClientConnection:
    """One connection from a client.

    Args:
        acceptor: what created it, which has the settings of its listener.
        peer: the client's address from a PROXY header; empty for that of the socket.
        identify: finds the client's certificate, where clients may have one.

    Attributes:
        transport: None once the connection is closed.
        writing_paused: whether the client is not reading what was sent.
        is_last: whether the connection ends with the present request.
        peer: the address at the other end.
        peer_key: what `per ip` counts it under, if the peer is the client itself.
        is_trusted: whether the peer is a proxy trusted to name the client.
        scheme: `http` or `https`.
        certificate: the client's verified certificate; None if not requested or not sent.
        own_fields: header lines about it for the upstream.
        sent_headers, sent_host: the header fields and the host of the last request, and
        sent_fields: the lines made from them for the upstream: most clients repeat themselves.
        segment: the bytes the present request was read from, if that is one short request.
        repeatable: the last reply, if it may be sent again when the same bytes arrive.
        current: the request that is being served.
    """

    # _is_between_requests: no request is served or waiting; _is_ending: nothing more is read.
    __slots__ = (
        "_asks_upgrade",
        "_deadline",
        "_drained",
        "_flow",
        "_half_closed",
        "_handler",
        "_has_turn",
        "_identify",
        "_is_between_requests",
        "_is_ending",
        "_is_finished",
        "_is_refused",
        "_is_serving",
        "_loop",
        "_reader",
        "acceptor",
        "certificate",
        "current",
        "https_port",
        "is_last",
        "is_trusted",
        "own_fields",
        "peer",
        "peer_key",
        "repeatable",
        "reserved",
        "scheme",
        "segment",
        "sent_fields",
        "sent_headers",
        "sent_host",
        "transport",
        "writing_paused",
    )

    def __init__(
        self,
        acceptor: Configured,
        *,
        peer: str = "",
        identify: Callable[[Identified, asyncio.BaseTransport], None] | None = None,
    ) -> None:
        settings = acceptor.settings
        self.acceptor = acceptor
        self._handler = settings.handler
        self._loop = asyncio.get_running_loop()
        self._flow = ReadFlow()
        self._reader = RequestReader(settings.parser, settings.max_head, self._flow)
        self._deadline = ClientDeadline(settings.timeouts, settings.handler)
        self._identify = identify
        self._half_closed: HalfClosed | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_between_requests = False
        self._is_serving = False
        self._has_turn = False
        self._is_finished = False
        self._asks_upgrade = False
        self._is_ending = False
        self._is_refused = False
        self.transport: asyncio.Transport | None = None
        self.writing_paused = False
        self.is_last = False
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
        self.segment = b""
        self.repeatable: RepeatableReply | None = None
        self.current: ServedRequest | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing has arrived after the present request."""
        return not self._reader.rest

    @property
    def under_way(self) -> int:
        """Return how many requests are being served."""
        return int(self.current is not None)

    @property
    def due(self) -> float:
        """Return the loop's time at which the client is late; `inf` for never."""
        return self._deadline.due

    @due.setter
    def due(self, time: float) -> None:
        self._deadline.due = time

    def expire(self) -> None:
        """Handle a late client."""
        self._deadline.expire(self, self._loop.time())

    def expect_body(self, on_late: Callable[[], None], size: int, waited_s: float) -> None:
        """Wait for a piece of the request's body; arguments as in `ClientDeadline.send_body`."""
        self._deadline.send_body(self._loop.time(), on_late, size, waited_s)

    def spare(self, now: float) -> int:
        """Return how readily it can be closed: 0 for not at all, 1 if idle, 2 if slow."""
        if self.current is not None or self._is_ending or self._reader.has_failed:
            return 0
        if self.due == inf or is_sending(self):
            return 0
        if self._is_between_requests:
            return 1
        return 2 if self._deadline.is_slow_head(now) else 0

    def make_room(self) -> None:
        """Close, to make room for another client."""
        give_up(self)

    def reconfigure(self) -> None:
        """Take the present settings of the listener, from the next request on."""
        settings = self.acceptor.settings
        self._reader.reconfigure(settings.parser, settings.max_head)
        self._deadline.timeouts = settings.timeouts
        self.https_port = settings.https_port
        self.reserved = settings.reserved
        self.peer_key, self.is_trusted = self._handler.recognise(self.peer)
        self.repeatable = self.sent_headers = None

    def close_when_idle(self) -> None:
        """End with the present request, or with one that is already on its way."""
        self.is_last = True
        self.repeatable = None
        if self.current is not None:
            # Its response, if not begun, announces the close (RFC 9112, section 9.6).
            self.current.keeps_alive = False
        elif not self._is_ending and not self._reader.has_failed:
            self._deadline.send_last_request(self._loop.time())

    def close(self) -> None:
        """Close in order; what was written is still sent."""
        transport = self._leave()
        if transport is not None:
            transport.close()

    def break_off(self) -> None:
        """Reset the connection, so that a partial response cannot be taken for a complete one."""
        transport = self._leave()
        if transport is not None:
            reset(transport)

    def _leave(self) -> asyncio.Transport | None:
        self.is_last = self._is_ending = True
        self._flow.stop()
        self.repeatable = None
        transport, self.transport = self.transport, None
        return transport

    def send(self, data: bytes) -> None:
        """Write to the client; do nothing if it is gone."""
        if self.transport is not None:
            self.transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has read enough of what was sent, or is gone."""
        while self.writing_paused and self.transport is not None:
            self._await_reader()
            self._drained = self._loop.create_future()
            await self._drained
            self._deadline.due = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        self.peer = self.peer or peer_of(transport)
        self.peer_key, self.is_trusted = self._handler.recognise(self.peer)
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
            if self._identify is not None:
                self._identify(self, transport)
        set_options(transport)
        self._deadline.send_head(self._loop.time())
        stream = cast("asyncio.Transport", transport)
        if not self._handler.connected(self, stream):
            # It is closed and was not admitted; it must cost nothing from here on.
            self._deadline.due = inf
            self._is_refused = self.is_last = self._is_ending = True
            return
        self.transport = stream
        self._flow.start(stream)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop serving: abandon the request in progress.

        One that waits for its turn is abandoned later if thousands leave at the same moment.
        """
        self._deadline.due = inf
        if self._is_refused:
            return
        self.close()
        if self.current is None or self.current.is_waiting:
            self._handler.crowd.do(self._left)
        else:
            self._left()

    def _left(self) -> None:
        current, self.current = self.current, None
        if self._half_closed is not None:
            self._half_closed.stop()
        self._handler.disconnected(self)
        self._wake_writer()
        if current is not None:
            current.client_left()

    def eof_received(self) -> bool:
        """Return whether the connection stays open for the response to a complete request."""
        current, reader = self.current, self._reader
        is_whole = reader.end(is_next=current is None)
        # Nothing can be sent after the end of TLS.
        if self.transport is None or not is_whole or self.scheme == "https":
            return False
        if self._half_closed is None:
            self._half_closed = HalfClosed(self, self.transport, self._handler.crowd)
        if current is not None and not reader.rest:
            current.keeps_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse, and serve what is complete; nothing is read after the last request."""
        reader = self._reader
        if self._is_between_requests:
            if self.repeatable is not None and not self.writing_paused:
                reply = self.repeatable.repeat(data)
                if reply:
                    self.send(reply)
                    self._deadline.send_request(self._loop.time())
                    return
                self.repeatable = None
            if end := reader.start(data):
                self.segment = data if end == len(data) <= LONGEST_SEGMENT else b""
                self.serve_next()
                if reader.rest:
                    reader.hold_back()
                return
        self.segment = b""
        if self._is_ending or reader.has_failed or not reader.feed(data):
            return
        if self.current is None:
            self.serve_next()
        reader.hold_back()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self.writing_paused = True

    def resume_writing(self) -> None:
        """Continue: the client has read enough of what was sent."""
        self.writing_paused = False
        self._wake_writer()
        if self.current is None and not self._is_serving:
            self.serve_next()

    def _wake_writer(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def serve_next(self) -> None:
        """Serve the requests that have arrived, until one must wait or the turn is over."""
        reader = self._reader
        left = TURN_MAX
        self._is_serving = True
        try:
            while self.current is None and self.transport is not None and not self._has_turn:
                if reader.head is None and not reader.rest:
                    return
                if self.writing_paused:
                    # A client that does not read responses gets no more of them. Everything that
                    # arrives from now on queues behind the waiting requests.
                    self._is_between_requests = False
                    if not self._deadline.is_for_reading:
                        self._await_reader()
                    return
                if not left:
                    self._has_turn = True
                    self._loop.call_soon(self._take_turn)
                    return
                left -= 1
                if reader.head is None and not reader.next_head():
                    self._await_head()
                    return
                if self._half_closed is not None and reader.is_in_body:
                    self._end(lingers=False)
                    return
                head, reader.head = reader.head, None
                assert head is not None
                self._deadline.due = inf
                self._is_between_requests = False
                if isinstance(head, BadRequestError):
                    self._handler.reject(self, head)
                    self._end(lingers=True)
                    return
                self.is_last = self.is_last or reader.has_failed
                self._is_finished = False
                self._asks_upgrade = head.upgrade
                served = self._handler.serve(self, head, reader.payload)
                if not self._is_finished:
                    self.current = served
        finally:
            self._is_serving = False

    def _take_turn(self) -> None:
        self._has_turn = False
        self.serve_next()

    def finished(self, served: ServedRequest) -> None:
        """Serve the next request after one is finished, or end the connection."""
        self.current = None
        self._is_finished = True
        reader = self._reader
        # After a refused upgrade, the bytes that follow may belong to the other protocol, and must
        # not be read as requests (RFC 9110, section 7.8).
        is_unsure = reader.is_in_body or (self._asks_upgrade and reader.rest)
        if not served.keeps_alive or is_unsure or self.is_last or reader.has_failed:
            self._end(lingers=bool(served.error) or self._asks_upgrade or not reader.is_empty)
        elif reader.rest:
            if not self._is_serving:
                self.serve_next()
        elif self._half_closed is not None:
            self._end(lingers=False)
        else:
            self._is_between_requests = True
            self._deadline.send_request(self._loop.time())

    def _await_head(self) -> None:
        """Start the time limit of the head that has begun, in place of the idle time."""
        if self._half_closed is not None:
            self._end(lingers=False)
        elif self._is_between_requests or not self._deadline.is_for_head:
            self._is_between_requests = False
            self._deadline.send_head(self._loop.time())

    def _await_reader(self) -> None:
        self._deadline.read(self._loop.time(), self.transport)

    def _end(self, *, lingers: bool) -> None:
        """Close; if the client may still be sending, let it read the response first.

        Closing with unread bytes resets the connection, and a reset destroys what the client has
        not read yet (RFC 9112, section 9.6).
        """
        self.is_last = self._is_ending = True
        self._reader.drop()
        transport = self.transport
        if transport is None:
            return
        if not lingers:
            transport.close()
            self._await_reader()
            return
        self._flow.read_on()
        end_writing(transport)
        self._deadline.read_and_leave(self._loop.time(), transport)

    def switch(
        self, protocol: asyncio.Protocol, due: float, on_late: Callable[[], None]
    ) -> tuple[asyncio.Transport, bytes, bool]:
        """Hand the connection to another protocol, after a request that asked for one.

        Args:
            protocol: must call `switched_lost` when the connection is lost.
            due: the loop's time at which `on_late` is called.
            on_late: must set `due` anew.

        Returns:
            The transport, the bytes after the request, and whether the client has ended its side.
        """
        transport = self.transport
        assert transport is not None
        if self._half_closed is not None:
            self._half_closed.stop()
        self._flow.stop()
        early = self._reader.drop()
        transport.set_protocol(protocol)
        self._deadline.other(due, on_late)
        return transport, early, self._half_closed is not None

    def switched_lost(self, exc: BaseException | None) -> None:
        """Note that the connection is lost; its new protocol ends the request."""
        self.current = None
        self.connection_lost(exc)
