"""The client's side of a connection: aiohttp's parser and flow control, our own loop.

aiohttp's `RequestHandler` serves each request in a task and answers through response objects.
Here a request is served from the very call that brought its last byte, one after the other,
and the answer is bytes.

What this class relies on beyond aiohttp's public interface: `_messages`, `_parser`,
`_buffer_paused`, `_msg_queue_resume_size`, `_resume_reading_if_drained`, `_close`,
`_force_close`, `_paused`, `_drain_helper`. The dependency is bounded to one minor version
because of them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from gateway.errors import BadRequestError
from gateway.proxy.patience import Patience, unread

if TYPE_CHECKING:
    from gateway.proxy.repeated import RepeatedRefusal
    from gateway.proxy.request import Request
    from gateway.proxy.server import Proxy

LAST_CALL_S = 0.25
"""How long an idle connection is kept when the gateway stops: a request may be on its way."""

UNSENT_MAX = 128 * 1024
"""Bytes that the kernel holds for a client before it lets us wait."""

LONGEST_SEGMENT = 4096
"""Bytes of a request that are kept to recognise it by."""

READ_BUFFER = 128 * 1024
"""Bytes of a request's body that lie here before the client is held back (twice as many)."""

FAIR_S = 1.0
"""For so long a client may keep its place with a head that is not complete, when there is no
room left for others."""


class ClientConnection(RequestHandler):
    """One connection from a client.

    Attributes:
        peer: the address at the other end.
        peer_key: what `per ip` counts it under, if the peer is the client itself.
        is_trusted: whether the peer may say for whom it speaks.
        scheme: `http` or `https`.
        due: the loop's time at which the client has taken too long; `inf` for never.
        sent_headers: the header fields of the request before, and
        sent_fields: what was made of them for the upstream: clients mostly repeat themselves.
        segment: what the present request was read from, if that is one whole request.
        refused: the last refusal, in case the client does not listen.
    """

    __slots__ = (
        "_current",
        "_is_between_requests",
        "_is_finished",
        "_is_last",
        "_is_refused",
        "_is_serving",
        "_on_late",
        "_patience",
        "_proxy",
        "_unread",
        "due",
        "is_trusted",
        "peer",
        "peer_key",
        "refused",
        "scheme",
        "segment",
        "sent_fields",
        "sent_headers",
        "sent_host",
    )

    def __init__(
        self, server: ProxyServer, proxy: Proxy, patience: Patience, **options: Any
    ) -> None:
        super().__init__(server, **options)
        self._proxy = proxy
        self._patience = patience
        self._current: Request | None = None
        self._is_serving = False
        self._is_finished = False
        self._is_last = False
        self._is_refused = False
        self._unread = 0
        self._is_between_requests = False
        self._on_late: Callable[[], None] = self._head_is_late
        self.due = inf
        self.peer = ""
        self.peer_key = ""
        self.is_trusted = False
        self.scheme = "http"
        self.sent_headers: object = None
        self.sent_host = ""
        self.sent_fields = b""
        self.segment = b""
        self.refused: RepeatedRefusal | None = None

    @property
    def is_closing(self) -> bool:
        """Whether the connection ends with the present request."""
        return self._is_last or self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether nothing that arrives is read any more."""
        return self._close or self._force_close

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self._current is not None

    def close_when_idle(self) -> None:
        """End with the present request, or with one that is on its way already."""
        self._is_last = True
        if self._current is not None:
            # Its answer, if not begun, says that it is the last (RFC 9112, section 9.6).
            self._current.keeps_alive = False
        elif not self.is_ending:
            self._on_late = self._give_up
            self.due = self._loop.time() + LAST_CALL_S

    def expire(self) -> None:
        """The client has taken too long with what it was to do."""
        self.due = inf
        self._on_late()

    def spare(self, now: float) -> int:
        """How well others can do without it: 0 for not at all, then the less the better.

        Who has been idle is let go before whoever is slow with the head of a request.
        """
        if self._current is not None or self.is_ending or self.due == inf:
            return 0
        if self._is_between_requests:
            return 1
        is_slow = self.due - now <= self._patience.head - FAIR_S
        return 2 if is_slow and self._on_late == self._head_is_late else 0

    def make_room(self) -> None:
        """Close, since the place is needed."""
        self._give_up()

    def expect_body(self, on_late: Callable[[], None], size: int, waited_s: float) -> None:
        """A piece of the request's body is due.

        Args:
            on_late: called if it does not come.
            size: bytes of the body that are here already.
            waited_s: how long they were waited for.
        """
        self.due = self._loop.time() + self._patience.for_body(size, waited_s)
        self._on_late = on_late

    def _head_is_late(self) -> None:
        self._proxy.head_is_late()
        self._give_up()

    def _give_up(self) -> None:
        """Close now; what was sent and is still not read will not be read."""
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            transport.abort()
        self.force_close()

    def _await_reader(self) -> None:
        """The client is to take what was sent; progress gives it more time."""
        self._unread = unread(self.transport)
        self._on_late = self._reader_is_late
        self.due = self._loop.time() + self._patience.body

    def _reader_is_late(self) -> None:
        if self._patience.is_progress(self._unread - unread(self.transport)):
            self._await_reader()
        else:
            self._proxy.reader_is_late(self._current)
            self.break_off()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        peername = transport.get_extra_info("peername")
        self.peer = peername[0] if isinstance(peername, tuple) else "127.0.0.1"
        self.peer_key, self.is_trusted = self._proxy.gate.recognise(self.peer)
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            # Without it the kernel takes megabytes at a time from us, and a slow reader looks
            # like one that has stopped.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_MAX)
        self.due = self._loop.time() + self._patience.head
        refusal = self._proxy.connected(self)
        if refusal:
            # It is nobody's, and must cost nothing from here on.
            self.due = inf
            self._is_refused = self._force_close = True
            writing = cast("asyncio.Transport", transport)
            writing.write(refusal)
            writing.close()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop serving: the request under way is given up."""
        self.due = inf
        if self._is_refused:
            return
        current, self._current = self._current, None
        self._proxy.disconnected(self)
        super().connection_lost(exc)
        if current is not None:
            self._proxy.client_left(current)

    def data_received(self, data: bytes) -> None:
        """Parse, and serve what is complete; nothing follows the last request."""
        if self._is_between_requests:
            if self.refused is not None and not self._paused:
                answer = self._proxy.refuse_again(self.refused, data)
                if answer:
                    self.send(answer)
                    self.due = self._loop.time() + self._patience.idle
                    return
                self.refused = None
            self.segment = data if len(data) <= LONGEST_SEGMENT else b""
        else:
            self.segment = b""
        super().data_received(data)
        if self._messages:
            if len(self._messages) > 1 or not data.endswith(b"\r\n\r\n"):
                self.segment = b""
            if self._current is None and not self._is_serving:
                self._serve_queued()
            elif isinstance(self._messages[-1][0], _ErrInfo):
                self._break_body()
        elif self._is_between_requests:
            # The next head has begun, so from now on its time counts, not the idle time.
            self._is_between_requests = False
            self._on_late = self._head_is_late
            self.due = self._loop.time() + self._patience.head

    def _break_body(self) -> None:
        """Tell the reader of a body that what came next cannot be read; aiohttp does not."""
        if len(self._messages) > 1:
            payload = self._messages[-2][1]
        elif self._current is not None:
            payload = self._current.payload
        else:
            return
        if not payload.is_eof():
            payload.set_exception(RequestPayloadError("not valid"))

    async def start(self) -> None:
        """What aiohttp runs as the task of the connection: nothing; see `data_received`."""

    def _serve_queued(self) -> None:
        """Serve the requests that are here, until one has to be waited for."""
        self._is_serving = True
        try:
            while self._messages and self._current is None and not self._force_close:
                if self._paused:
                    # Who does not read answers gets no more of them.
                    self._await_reader()
                    return
                message, payload = self._messages.popleft()
                if self._parser is not None:
                    self._parser.message_consumed()
                if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                    self._resume_reading_if_drained()
                self.due = inf
                self._is_between_requests = False
                if isinstance(message, _ErrInfo):
                    self._proxy.reject(self, _judge(message, self.max_line_size))
                    self._end(lingers=True)
                    return
                self._is_finished = False
                request = self._proxy.serve(self, message, payload)
                if not self._is_finished:
                    self._current = request
        finally:
            self._is_serving = False

    def finished(self, request: Request) -> None:
        """A request has been served: go on with the next, or end."""
        self._current = None
        self._is_finished = True
        if not request.keeps_alive or self.is_closing:
            self._end(lingers=not request.payload.is_eof() or bool(request.message.upgrade))
        elif not self._messages:
            self._await_request()
        elif not self._is_serving:
            self._serve_queued()

    def _await_request(self) -> None:
        self._is_between_requests = True
        self._on_late = self._give_up
        self.due = self._loop.time() + self._patience.idle

    def resume_writing(self) -> None:
        """The client has read enough of what was sent."""
        super().resume_writing()
        if self._messages and self._current is None and not self._is_serving:
            self._serve_queued()

    def _end(self, *, lingers: bool) -> None:
        """Close; but while the client may still be sending, let it read the answer first.

        Closing with unread bytes resets the connection, and a reset destroys what the client
        has not read yet (RFC 9112, section 9.6).
        """
        self._close = True
        self._messages.clear()
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
            transport.write_eof()
        self._on_late = self.break_off
        self.due = self._loop.time() + self._patience.linger

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

    def break_off(self) -> None:
        """End the connection so that a half-sent answer cannot look like a whole one."""
        self._force_close = True
        transport = self.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


def _judge(error: _ErrInfo, max_header_size: int) -> BadRequestError:
    """What a client is told whose bytes could not be parsed: constant text, nothing of his."""
    reason = error.exc
    if isinstance(reason, BadHttpMethod) and "HTTPS" not in reason.message:
        return BadRequestError("This method is not known", 501, kind="method")
    if isinstance(reason, LineTooLong):
        if reason.args[1] == max_header_size:
            return BadRequestError("The request target is too long", 414, kind="too_large")
        return BadRequestError("A header field is too long", 431, kind="too_large")
    if isinstance(reason, BadHttpMessage) and "Too many headers" in reason.message:
        return BadRequestError("The request has too many header fields", 431, kind="too_large")
    return BadRequestError("The request is not valid HTTP")


class ProxyServer(web.Server):
    """Makes a `ClientConnection` for each client."""

    def __init__(
        self, proxy: Proxy, patience: Patience, *, max_header_size: int, max_headers: int
    ) -> None:
        super().__init__(proxy.unused_handler)
        self._proxy = proxy
        self._patience = patience
        self._options = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            "auto_decompress": False,
            # Time limits are the proxy's; aiohttp's timer would be a second one.
            "keepalive_timeout": 0,
            "max_line_size": max_header_size,
            # One more, so that the error tells which of the two was too long.
            "max_field_size": max_header_size + 1,
            "max_headers": max_headers,
            "read_bufsize": READ_BUFFER,
        }

    def __call__(self) -> ClientConnection:
        """A new connection."""
        return ClientConnection(self, self._proxy, self._patience, **self._options)
