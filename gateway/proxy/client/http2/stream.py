"""One stream: a request and its response, as a connection of its own to what serves it.

What serves requests writes a response as HTTP/1.1 has it: the head as bytes, then the body as it is
(not in chunks, as to a client of HTTP/1.0). The stream reads the lines of the head back into
fields. That costs 3 µs for a head of six lines, and every response is made by the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp.hdrs import HOST
from aiohttp.streams import EMPTY_PAYLOAD

from gateway.base.errors import BadRequestError
from gateway.proxy.client.http2.body import StreamBody
from gateway.proxy.http2.framing import CANCEL, INTERNAL_ERROR, NO_ERROR, Field
from gateway.proxy.http2.lines import response_fields, trailer_fields

if TYPE_CHECKING:
    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.client.handler import (
        Configured,
        RepeatableReply,
        RequestBody,
        ServedRequest,
    )
    from gateway.proxy.client.http2.authority import HostCheck
    from gateway.proxy.client.request_message import RequestMessage
    from gateway.proxy.http2.server_framing import ServerFraming
    from gateway.routing.spelling import Reserved

BUFFER: Final = 64 * 1024
"""Bytes of a response that wait for the client's window before the upstream is read no more."""
SMALL_BUFFER: Final = 16 * 1024
"""The same if many streams share the connection, so that they do not need more memory."""
MANY: Final = 16
MISDIRECTED: Final = "misdirected"
"""The kind of the error of a request that must come on another connection."""
LONG: Final = 16 * 1024
"""Bytes at which a response begins to take turns: shorter ones fit into a frame."""


class StreamOwner(Protocol):
    """What streams have in common: their connection."""

    acceptor: Configured
    framing: ServerFraming
    hosts: HostCheck | None
    loop: asyncio.AbstractEventLoop
    streams: dict[int, Http2Stream]
    transport: asyncio.Transport | None
    peer: str
    peer_key: str
    is_trusted: bool
    scheme: str
    https_port: int
    certificate: ClientCertificate | None
    own_fields: bytes
    reserved: Reserved
    sent_headers: object
    sent_host: str
    sent_fields: bytes

    def note_due(self, due: float) -> None:
        """Note a time at which a stream is late."""

    def note_unsent(self, stream: Http2Stream) -> None:
        """Note that there is something to send on a stream."""

    def wake(self) -> None:
        """Send what there is in this turn of the event loop."""


class Http2Stream:
    """A request on a connection that has others: a `ServedConnection`.

    Args:
        connection: what it is a part of.
        number: of the stream.

    Attributes:
        number: as given.
        message: the head of the request; the error in it if it cannot be served.
        body: the body of the request while it arrives; None without one.
        current: the request while it is served.
        due: the loop's time at which the client is late with this stream.
        is_over: whether it was closed, by either side.
    """

    __slots__ = (
        "_connection",
        "_drained",
        "_ends",
        "_has_head",
        "_has_turns",
        "_head",
        "_is_serving",
        "_on_late",
        "_unread",
        "body",
        "certificate",
        "current",
        "due",
        "https_port",
        "is_last",
        "is_over",
        "is_trusted",
        "message",
        "number",
        "own_fields",
        "peer",
        "peer_key",
        "repeatable",
        "reserved",
        "scheme",
        "segment",
        "transport",
        "writing_paused",
    )

    def __init__(self, connection: StreamOwner, number: int) -> None:
        self._connection = connection
        self.number = number
        self.message: RequestMessage | BadRequestError | None = None
        self.body: StreamBody | None = None
        self.current: ServedRequest | None = None
        self.due = inf
        self.is_over = False
        self._on_late: Callable[[], None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._head: list[Field] | None = None
        self._has_head = False
        self._has_turns = False
        self._ends = False
        self._is_serving = False
        self._unread = 0
        # What the code that serves requests reads of a connection.
        self.transport = connection.transport
        self.peer = connection.peer
        self.peer_key = connection.peer_key
        self.is_trusted = connection.is_trusted
        self.scheme = connection.scheme
        self.https_port = connection.https_port
        self.certificate: ClientCertificate | None = connection.certificate
        self.own_fields = connection.own_fields
        self.reserved = connection.reserved
        self.writing_paused = False
        self.is_last = False
        self.segment = b""
        self.repeatable: RepeatableReply | None = None

    def __repr__(self) -> str:
        return f"<Http2Stream {self.number}{', over' if self.is_over else ''}>"

    # The lines for the upstream, which most clients repeat on each stream.

    @property
    def sent_headers(self) -> object:
        """Return the fields that `sent_fields` was made from."""
        return self._connection.sent_headers

    @sent_headers.setter
    def sent_headers(self, headers: object) -> None:
        self._connection.sent_headers = headers

    @property
    def sent_host(self) -> str:
        """Return the host that `sent_fields` was made from."""
        return self._connection.sent_host

    @sent_host.setter
    def sent_host(self, host: str) -> None:
        self._connection.sent_host = host

    @property
    def sent_fields(self) -> bytes:
        """Return the lines that the upstream was sent last."""
        return self._connection.sent_fields

    @sent_fields.setter
    def sent_fields(self, fields: bytes) -> None:
        self._connection.sent_fields = fields

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing has arrived after the request."""
        return True

    # The request.

    def serve(self) -> None:
        """Serve the request, or answer the error in it."""
        message, self.message = self.message, None
        connection = self._connection
        handler = connection.acceptor.settings.handler
        if message is None or self.is_over:
            return
        if isinstance(message, Exception):
            handler.reject(self, message)
            self._finish()
            return
        payload: RequestBody = EMPTY_PAYLOAD if self.body is None else self.body
        hosts = connection.hosts
        # A proxy that is trusted with its clients uses one connection for all of their hosts.
        if hosts is not None and not self.is_trusted:
            ports = connection.acceptor.settings.foreign_ports
            if hosts.is_misdirected(message.headers.get(HOST, ""), ports):
                error = BadRequestError("The request is for another server", 421, kind=MISDIRECTED)
                handler.refuse(self, message, payload, error)
                return
        served = handler.serve(self, message, payload)
        if not self._ends and not self.is_over:
            self.current = served

    def body_read(self, size: int) -> None:
        """Let the client send as much as was read of the body."""
        self._connection.framing.taken(self.number, size)
        self._connection.wake()

    def expect_body(self, on_late: Callable[[], None], size: int, waited_s: float) -> None:
        """Wait for a piece of the body; arguments as in `ClientDeadline.send_body`."""
        connection = self._connection
        self._on_late = on_late
        timeouts = connection.acceptor.settings.timeouts
        self.due = connection.loop.time() + timeouts.for_body(size, waited_s)
        connection.note_due(self.due)

    # The response.

    def send(self, data: bytes) -> None:
        """Write the head of a response, with what follows it, or a piece of the body."""
        if self.is_over or self._ends:
            return
        framing = self._connection.framing
        if not self._has_head:
            head, _, data = data.partition(b"\r\n\r\n")
            status, fields = response_fields(head)
            if status < 200:
                framing.inform(self.number, fields)
                self._connection.wake()
                return
            self._has_head = True
            self._head = fields
        if data:
            self.send_head()
            framing.send(self.number, data)
            queued = framing.queued(self.number)
            if queued > LONG:
                self._take_turns(queued)
        self._connection.note_unsent(self)

    def send_head(self) -> None:
        """Write the head that was kept back, because the response might end with it."""
        if self._head is not None:
            head, self._head = self._head, None
            self._connection.framing.respond(self.number, head, is_whole=False)

    def _take_turns(self, queued: int) -> None:
        connection = self._connection
        if not self._has_turns:
            self._has_turns = True
            connection.framing.share(self.number)
        if queued > (BUFFER if len(connection.streams) <= MANY else SMALL_BUFFER):
            self.writing_paused = True

    async def drained(self) -> None:
        """Wait until the client has read enough of what was sent, or is gone."""
        while self.writing_paused and self.transport is not None:
            self._await_reader()
            self._drained = self._connection.loop.create_future()
            await self._drained
            self.due = inf

    def _await_reader(self) -> None:
        connection = self._connection
        self._on_late = None
        self._unread = connection.framing.queued(self.number)
        self.due = connection.loop.time() + connection.acceptor.settings.timeouts.body
        connection.note_due(self.due)

    def made_progress(self) -> bool:
        """Continue if enough was sent; return whether anything of the response is left to send."""
        queued = self._connection.framing.queued(self.number)
        if self.writing_paused and queued <= SMALL_BUFFER // 2:
            self.writing_paused = False
            if self._drained is not None and not self._drained.done():
                self._drained.set_result(None)
        if queued or not self._ends:
            return queued > 0
        if self.body is not None and not self.body.is_eof():
            self._linger()
        return False

    def _linger(self) -> None:
        """Discard the rest of a request that was answered, for a while, before a reset.

        RFC 9113, section 8.1, allows to reset the stream immediately; but a client that still has
        to send the end of its request, and be it an empty frame, may then lose the response.
        """
        self._drop_body()
        self.body = None
        connection = self._connection
        self._on_late = self._stop_lingering
        self.due = connection.loop.time() + connection.acceptor.settings.timeouts.linger
        connection.note_due(self.due)

    def _stop_lingering(self) -> None:
        self.break_stream(NO_ERROR)

    def finished(self, served: ServedRequest) -> None:
        """End the response."""
        self.current = None
        self._finish(served.trailers)

    def _finish(self, trailers: bytes = b"") -> None:
        if self.is_over or self._ends:
            return
        self._ends = True
        framing, number = self._connection.framing, self.number
        if trailers:
            self.send_head()
            framing.trail(number, trailer_fields(trailers))
        elif self._head is not None:
            head, self._head = self._head, None
            framing.respond(number, head, is_whole=True)
        else:
            framing.end(number)
        # The client has time to read the rest.
        self._await_reader()
        self._connection.note_unsent(self)

    def break_off(self) -> None:
        """Reset the stream, so that a partial response cannot be taken for a complete one."""
        self.break_stream(INTERNAL_ERROR)

    def break_stream(self, code: int) -> None:
        """Reset the stream."""
        if not self.is_over:
            self._connection.framing.reset(self.number, code)
            self.over()
            self._connection.wake()

    def over(self) -> None:
        """Note that the stream was closed, by either side."""
        self.is_over = True
        self.transport = None
        self.due = inf
        self._drop_body()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _drop_body(self) -> None:
        """Drop what was not read of the body, which counts against the connection's window."""
        if self.body is not None and (size := self.body.drop()):
            self._connection.framing.taken(self.number, size)

    def client_left(self, error: str = "") -> None:
        """Stop serving: the client has reset the stream, or left."""
        self.over()
        current, self.current = self.current, None
        if current is not None:
            current.error = current.error or error
            current.client_left()

    def expire(self) -> None:
        """Handle a client that is late with this stream."""
        connection = self._connection
        self.due = inf
        if self._on_late is not None:
            self._on_late()
            return
        left = connection.framing.queued(self.number)
        if connection.acceptor.settings.timeouts.is_progress(self._unread - left):
            self._await_reader()
            return
        connection.acceptor.settings.handler.reader_is_late(self.current)
        current, self.current = self.current, None
        self.break_stream(CANCEL)
        if current is not None:
            current.client_left()
