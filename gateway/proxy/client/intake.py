"""What a client sends, made into requests, one at a time.

What follows a request waits here, unparsed, until that request has been served: it may belong
to another protocol, or be no request at all, and then the one before it still has its answer.

aiohttp's parser reads heads, each by itself (`request_parser`), and its `StreamReader` holds
bodies; neither knows of the message before. What this relies on beyond aiohttp's public
interface: `_parser`, `_buffer_paused` and the two methods that set it, `_reading_paused`,
`_close`, `_force_close`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from gateway.base.errors import BadRequestError
from gateway.proxy.client.framing import RequestFraming
from gateway.proxy.client.request_parser import RequestParser, body_length

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http_parser import RawRequestMessage

LINE_MARGIN = 64
"""Bytes of a request's first line besides its target, which `max_header_size` is for."""

READ_BUFFER = 128 * 1024
"""Bytes of a request's body that lie here before the client is held back (twice as many)."""

AHEAD_MAX = 64 * 1024
"""Bytes behind the present request that lie here before the client is held back."""


class RequestIntake(RequestHandler):
    """Puts the next request, or what makes it none, into `_head`.

    Args:
        server: as for aiohttp.
        parser: reads heads.
        max_head: bytes that the head of a request may have.
        options: as for aiohttp.

    Attributes:
        segment: what the present request was read from, if that is one whole request.
    """

    __slots__ = ("_framing", "_head", "_heads", "_max_head", "_payload", "_rest", "segment")

    def __init__(
        self, server: web.Server, parser: RequestParser, max_head: int, **options: Any
    ) -> None:
        super().__init__(server, **options)
        # aiohttp's own, of the connection, has nothing to read.
        self._parser = None
        self._heads = parser
        self._max_head = max_head
        max_line = parser.max_header_size + LINE_MARGIN
        self._framing = RequestFraming(max_line, max_head, parser.max_headers)
        self._head: RawRequestMessage | BadRequestError | None = None
        self._payload: StreamReader = EMPTY_PAYLOAD
        self._rest = b""
        self.segment = b""

    @property
    def is_ending(self) -> bool:
        """Whether nothing that arrives is read any more."""
        return self._close or self._force_close or self._framing.problem is not None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        raise NotImplementedError

    @property
    def is_waiting(self) -> bool:
        """Whether nothing has come behind the present request."""
        return not self._rest

    def serve_next(self) -> None:
        """Serve what is here; `read_head` tells whether there is something."""
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Take bytes that are not, or may not be, exactly one request."""
        if self.is_ending:
            return
        if self._framing.is_in_body:
            data = self._receive_body(data)
        if data:
            self._rest += data
            if not self.is_busy:
                self.serve_next()
            if len(self._rest) > AHEAD_MAX and not self._buffer_paused:
                self._pause_reading_for_buffer()

    def _receive_body(self, data: bytes) -> bytes:
        """Take what belongs to the present body; returns what lies behind it."""
        framing = self._framing
        piece, rest = framing.cut_body(data)
        self._payload.feed_data(piece)
        if framing.problem is not None:
            self._payload.set_exception(RequestPayloadError("not valid"))
        elif not framing.is_in_body:
            self._payload.feed_eof()
        return rest

    def read_head(self) -> bool:
        """Parse the next request, as far as it is here.

        Returns:
            Whether there is one now, or what makes it none.
        """
        framing = self._framing
        head, self._rest = framing.cut_head(self._rest)
        if framing.problem is not None:
            self._head = (self._heads.flaw(head) if head else None) or framing.problem
        elif head:
            self.take_head(self._heads.parse, head)
        if framing.is_in_body:
            self._rest = self._receive_body(self._rest)
        if self._buffer_paused and len(self._rest) <= AHEAD_MAX // 2:
            self._resume_reading_for_buffer()
        return self._head is not None

    def take_head(self, parse: Callable[[bytes], RawRequestMessage], head: bytes) -> None:
        """Parse a whole head, and know where its request ends."""
        self._payload = EMPTY_PAYLOAD
        try:
            message = parse(head)
            length = 0
            if not message.chunked and CONTENT_LENGTH in message.headers:
                length = body_length(message.headers[CONTENT_LENGTH])
        except BadRequestError as error:
            self._head = error
            return
        self._head = message
        if message.chunked:
            self._framing.expect_chunks()
        elif length:
            self._framing.expect_body(length)
        else:
            return
        self.segment = b""
        self._payload = StreamReader(self, READ_BUFFER, loop=self._loop)

    # What a `StreamReader` calls; aiohttp's own would tell a parser.

    def pause_reading(self) -> None:
        """As much of the body is here as there may be."""
        self._reading_paused = True
        self._pause_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's
        """There is room for more of it."""
        self._reading_paused = False
        if not self._buffer_paused:
            self._resume_transport_reading()
