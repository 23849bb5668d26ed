"""The client's side of a connection: aiohttp's flow control, our own loop.

aiohttp's `RequestHandler` serves each request in a task and answers through response objects.
Here a request is served from the very call that brought its last byte, one after the other,
and the answer is bytes.

What this class relies on beyond aiohttp's public interface, besides `intake`: `_paused` and
`_drain_helper`. The dependency is bounded to one minor version because of all that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from gateway.base.errors import BadRequestError
from gateway.proxy.client.framing import is_whole_head
from gateway.proxy.client.half_close import HalfClosed
from gateway.proxy.client.punctual import LAST_CALL_S, PunctualIntake

if TYPE_CHECKING:
    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.cached_refusal import CachedRefusal
    from gateway.proxy.client.acceptor import ProxyServer
    from gateway.proxy.client.request_parser import RequestParser
    from gateway.proxy.client.timeouts import ClientTimeouts
    from gateway.proxy.request import Request
    from gateway.proxy.server import Proxy

UNSENT_MAX = 128 * 1024
"""Bytes that the kernel holds for a client before it lets us wait."""

TURN_MAX = 32
"""Requests of one connection that are served in a turn of the event loop: a client that sends
thousands at once, which are answered here, must not hold up all others."""

LONGEST_SEGMENT = 4096
"""Bytes of a request that are kept to recognise it by."""


class ClientConnection(PunctualIntake):
    """One connection from a client.

    Attributes:
        peer: the address at the other end.
        peer_key: what `per ip` counts it under, if the peer is the client itself.
        is_trusted: whether the peer may say for whom it speaks.
        scheme: `http` or `https`.
        https_port: where its requests are redirected to by https; 0 for not at all.
        certificate: what the client has proved to be; None where it was not asked, or has none.
        identify: finds that out, of a connection whose client may have a certificate.
        own_fields: header lines that tell the upstream of it.
        reserved: names of fields that clients may not send, or not in any spelling.
        sent_headers: the header fields of the request before, and
        sent_fields: what was made of them for the upstream: clients mostly repeat themselves.
        refused: the last refusal, in case the client does not listen.
    """

    __slots__ = (
        "_half_closed",
        "_has_turn",
        "_is_finished",
        "_is_refused",
        "_is_serving",
        "certificate",
        "https_port",
        "identify",
        "is_trusted",
        "own_fields",
        "peer",
        "peer_key",
        "refused",
        "reserved",
        "scheme",
        "sent_fields",
        "sent_headers",
        "sent_host",
    )

    def __init__(
        self,
        server: ProxyServer,
        proxy: Proxy,
        patience: ClientTimeouts,
        parser: RequestParser,
        max_head: int,
        **options: Any,
    ) -> None:
        super().__init__(server, proxy, patience, parser, max_head, **options)
        self._half_closed: HalfClosed | None = None
        self._is_serving = False
        self._has_turn = False
        self._is_finished = False
        self._is_refused = False
        self.peer = ""
        self.peer_key = ""
        self.is_trusted = False
        self.scheme: str = "http"
        self.https_port = 0
        self.certificate: ClientCertificate | None = None
        self.identify: Callable[[ClientConnection, asyncio.BaseTransport], None] | None = None
        self.own_fields = b""
        self.reserved = server.reserved
        self.sent_headers: object = None
        self.sent_host = ""
        self.sent_fields = b""
        self.refused: CachedRefusal | None = None

    @property
    def is_closing(self) -> bool:
        """Whether the connection ends with the present request."""
        return self._is_last or self.is_ending

    @property
    def current(self) -> Request | None:
        """The request that is being served."""
        return self._current

    def close_when_idle(self) -> None:
        """End with the present request, or with one that is on its way already."""
        self._is_last = True
        if self._current is not None:
            # Its answer, if not begun, says that it is the last (RFC 9112, section 9.6).
            self._current.keeps_alive = False
        elif not self.is_ending:
            self._on_late = self._idle_is_over
            self.due = self._loop.time() + LAST_CALL_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        if not self.peer:
            peername = transport.get_extra_info("peername")
            self.peer = peername[0] if isinstance(peername, tuple) else "127.0.0.1"
        self.peer_key, self.is_trusted = self._proxy.gate.recognise(self.peer)
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
            if self.identify is not None:
                self.identify(self, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            # Without it the kernel takes megabytes at a time from us, and a slow reader looks
            # like one that has stopped.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_MAX)
        self.due = self._loop.time() + self._patience.head
        if not self._proxy.connected(self, cast("asyncio.Transport", transport)):
            # It is closed and nobody's, and must cost nothing from here on.
            self.due = inf
            self._is_refused = self._force_close = True
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop serving: the request under way is given up.

        What keeps nothing busy, such as a request that waits for its turn, is given up a little
        later if thousands leave at the same moment.
        """
        self.due = inf
        if self._is_refused:
            return
        # From now on nothing is sent, and nothing more is served.
        self.transport = None
        self._force_close = True
        current = self._current
        if current is None or current.is_waiting:
            self._proxy.crowd.do(partial(self._left, exc))
        else:
            self._left(exc)

    def _left(self, exc: BaseException | None) -> None:
        current, self._current = self._current, None
        if self._half_closed is not None:
            self._half_closed.stop()
        self._proxy.disconnected(self)
        super().connection_lost(exc)
        if current is not None:
            self._proxy.client_left(current)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp closes
        """The client sends no more; what it has asked for as a whole is still answered.

        Returns:
            False if the connection is to be closed.
        """
        current = self._current
        if current is None and not self._payload.is_eof():
            self._head = None
        if current is not None:
            is_whole = current.payload.is_eof()
        else:
            is_whole = bool(self._head or self._rest)
        # After TLS's own end nothing can be sent.
        if self.transport is None or not is_whole or self.scheme == "https":
            return False
        if self._half_closed is None:
            self._half_closed = HalfClosed(self, self.transport, self._proxy.crowd)
        if current is not None and not self._rest:
            current.keeps_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse, and serve what is complete; nothing follows the last request."""
        if not self._is_between_requests:
            self.segment = b""
            self.receive(data)
            return
        if self.refused is not None and not self._paused:
            answer = self._proxy.refuse_again(self.refused, data)
            if answer:
                self.send(answer)
                self.due = self._loop.time() + self._patience.idle
                return
            self.refused = None
        self.segment = b""
        if not is_whole_head(data, self._max_head):
            self.receive(data)
            return
        # Most requests are nothing but a head, and come in one piece.
        if len(data) <= LONGEST_SEGMENT:
            self.segment = data
        self.take_head(self._heads.parse_plain, data)
        self.serve_next()

    async def start(self) -> None:
        """What aiohttp runs as the task of the connection: nothing; see `data_received`."""

    def serve_next(self) -> None:
        """Serve the requests that are here, until one has to be waited for or a turn is over."""
        left = TURN_MAX
        self._is_serving = True
        try:
            while self._current is None and not self._force_close and not self._has_turn:
                if self._head is None and not self._rest:
                    return
                if self._paused:
                    # Who does not read answers gets no more of them. What comes from now on is
                    # behind what waits, however it looks.
                    self._is_between_requests = False
                    if self._on_late != self._reader_is_late or self.due == inf:
                        self._await_reader()
                    return
                if not left:
                    self._has_turn = True
                    self._loop.call_soon(self._take_turn)
                    continue
                left -= 1
                if self._head is None and not self.read_head():
                    self._await_head()
                    return
                if self._half_closed is not None and self._framing.is_in_body:
                    self._end(lingers=False)
                    return
                message, self._head = self._head, None
                assert message is not None
                self.due = inf
                self._is_between_requests = False
                if isinstance(message, BadRequestError):
                    self._proxy.reject(self, message)
                    self._end(lingers=True)
                    return
                self._is_finished = False
                request = self._proxy.serve(self, message, self._payload)
                if not self._is_finished:
                    self._current = request
        finally:
            self._is_serving = False

    def _take_turn(self) -> None:
        self._has_turn = False
        if self.transport is not None:
            self.serve_next()

    def finished(self, request: Request) -> None:
        """A request has been served: go on with the next, or end."""
        self._current = None
        self._is_finished = True
        is_upgrade = bool(request.message.upgrade)
        has_unread = bool(self._rest) or self._framing.is_in_body
        # What follows a wish for another protocol that was not granted may be bytes of that one,
        # and must not be read as requests (RFC 9110, section 7.8).
        is_unsure = self._framing.is_in_body or (is_upgrade and has_unread)
        if not request.keeps_alive or self.is_closing or is_unsure:
            self._end(lingers=bool(request.error) or has_unread or is_upgrade)
        elif self._rest:
            if not self._is_serving:
                self.serve_next()
        else:
            self._await_request()

    def _await_head(self) -> None:
        """The next head has begun: from now on its time counts, not the idle time."""
        if self._half_closed is not None:
            self._end(lingers=False)
        elif self._is_between_requests or self._on_late != self._head_is_late or self.due == inf:
            self._is_between_requests = False
            self._on_late = self._head_is_late
            self.due = self._loop.time() + self._patience.head

    def switch(
        self, protocol: asyncio.Protocol, due: float, on_late: Callable[[], None]
    ) -> tuple[asyncio.Transport, bytes, bool]:
        """Let another protocol have the connection, after a request that asked for one.

        Args:
            protocol: told from now on what happens; `switched_lost` has to be called when it
                is told that the connection is lost.
            due: the loop's time at which `on_late` is called.
            on_late: must set `due` anew.

        Returns:
            The transport, what was sent behind the request, and whether that is all there will be.
        """
        transport = self.transport
        assert transport is not None
        if self._half_closed is not None:
            self._half_closed.stop()
        early, self._rest = self._rest, b""
        transport.set_protocol(protocol)
        self.due = due
        self._on_late = on_late
        return transport, early, self._half_closed is not None

    def switched_lost(self, exc: BaseException | None) -> None:
        """The connection is lost; whoever has it knows what becomes of the request."""
        self._current = None
        self.connection_lost(exc)

    def _await_request(self) -> None:
        if self._half_closed is not None:
            self._end(lingers=False)
            return
        self._is_between_requests = True
        self._on_late = self._idle_is_over
        self.due = self._loop.time() + self._patience.idle

    def resume_writing(self) -> None:
        """The client has read enough of what was sent."""
        super().resume_writing()
        if self._current is None and not self._is_serving:
            self.serve_next()

    def _end(self, *, lingers: bool) -> None:
        """Close; but while the client may still be sending, let it read the answer first.

        Closing with unread bytes resets the connection, and a reset destroys what the client
        has not read yet (RFC 9112, section 9.6).
        """
        self._close = True
        self._head = None
        self._rest = b""
        transport = self.transport
        if transport is None or self._force_close:
            return
        if not lingers:
            transport.close()
            self._await_reader()
            return
        with suppress(RuntimeError):
            transport.resume_reading()
        if transport.can_write_eof():
            # The client may have reset the connection, which is told a turn later.
            with suppress(OSError):
                transport.write_eof()
        self._linger()

    def send(self, data: bytes) -> None:
        """Write to the client; nothing happens if it is gone."""
        if self.transport is not None:
            self.transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has taken enough of what was sent."""
        while self._paused:
            self._await_reader()
            await self._drain_helper()
            self.due = inf
