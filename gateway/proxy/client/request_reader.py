"""Turn what a client sends into requests, one at a time.

Bytes after a request wait here, unparsed, until that request has been served: they may belong to
another protocol, or not be a request at all, and the request before still gets its response.

The parts: `framing` finds where heads and bodies end, `request_parser` reads heads with aiohttp's
parser, and bodies are in aiohttp's streams, which `read_flow` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from gateway.base.errors import BadRequestError
from gateway.proxy.client.framing import RequestFraming, head_end
from gateway.proxy.client.request_parser import body_length

if TYPE_CHECKING:
    from gateway.proxy.client.read_flow import ReadFlow
    from gateway.proxy.client.request_message import RequestMessage
    from gateway.proxy.client.request_parser import RequestParser

LINE_MARGIN: Final = 64
"""Bytes of a request's first line besides its target, which `max_header_size` limits."""


class RequestReader:
    """Reads the requests of one connection.

    Args:
        parser: reads heads.
        max_head: most bytes in the head of a request.
        flow: pauses reading while too much is buffered here.

    Attributes:
        head: the next request, or the error in it; None if it is not complete yet.
        payload: the body of the request that was read last.
        is_in_body: whether that body is incomplete.
        rest: the bytes after it.
        has_failed: whether nothing can be read from here on.
    """

    __slots__ = (
        "_flow",
        "_framing",
        "_max_head",
        "_parser",
        "has_failed",
        "head",
        "is_in_body",
        "payload",
        "rest",
    )

    def __init__(self, parser: RequestParser, max_head: int, flow: ReadFlow) -> None:
        self._parser = parser
        self._max_head = max_head
        self._flow = flow
        self._framing = RequestFraming(_max_line(parser), max_head, parser.max_headers)
        self.head: RequestMessage | BadRequestError | None = None
        self.payload: StreamReader = EMPTY_PAYLOAD
        # What the framing says, as plain attributes: each request reads them, and a property costs
        # as much as a dozen attributes (bench: passing).
        self.is_in_body = False
        self.has_failed = False
        self.rest = b""

    def __repr__(self) -> str:
        return f"<RequestReader: {len(self.rest)} bytes ahead>"

    def reconfigure(self, parser: RequestParser, max_head: int) -> None:
        """Read what comes from now on within other limits."""
        self._parser = parser
        self._max_head = max_head
        self._framing.limit(_max_line(parser), max_head, parser.max_headers)

    @property
    def is_empty(self) -> bool:
        """Return whether the request that was read last is complete and nothing follows it."""
        return not self.rest and not self.is_in_body

    def end(self, *, is_next: bool) -> bool:
        """Note that nothing more comes.

        Args:
            is_next: whether the request that was read last has been served.

        Returns:
            Whether a request that is complete, or may be, is to be served still.
        """
        if not is_next:
            return not self.is_in_body
        if self.is_in_body:
            self.drop()
        return bool(self.head or self.rest)

    def start(self, data: bytes) -> int:
        """Read bytes that arrive when no others are buffered, if they start with a head; most do.

        Returns:
            Where the head ends; 0 if there is no complete head, and nothing was read.
        """
        end = head_end(data, self._max_head)
        if end and end == len(data):
            self._read(self._parser.parse_plain, data)
        elif end:
            self._read(self._parser.parse_plain, data[:end])
            self._keep(data[end:])
        return end

    def feed(self, data: bytes) -> bool:
        """Take bytes that do not start a request, or not one that `start` reads.

        Returns:
            Whether there are bytes after the present body.
        """
        if self.is_in_body:
            data = self._feed_body(data)
        self.rest += data
        return bool(data)

    def hold_back(self) -> None:
        """Pause reading from the client while too much is buffered after the present request."""
        self._flow.pause_if_ahead(len(self.rest))

    def next_head(self) -> bool:
        """Read the next head, as far as it has arrived.

        Returns:
            Whether there is a request or an error now.
        """
        framing = self._framing
        head, rest = framing.cut_head(self.rest)
        if framing.problem is not None:
            self.has_failed = True
            self.head = (self._parser.flaw(head) if head else None) or framing.problem
        elif head:
            self._read(self._parser.parse, head)
        self._keep(rest)
        self._flow.resume_if_behind(len(self.rest))
        return self.head is not None

    def drop(self) -> bytes:
        """Drop what was not served yet; return the bytes after the last request."""
        rest, self.rest = self.rest, b""
        self.head = None
        return rest

    def _read(self, parse: Callable[[bytes], RequestMessage], head: bytes) -> None:
        """Parse a complete head, and find where its request ends."""
        self.payload = EMPTY_PAYLOAD
        try:
            message = parse(head)
            is_chunked = message.chunked
            length = 0
            if not is_chunked and CONTENT_LENGTH in message.headers:
                length = body_length(message.headers[CONTENT_LENGTH])
        except BadRequestError as error:
            self.head = error
            return
        self.head = message
        if is_chunked:
            self._framing.expect_chunks()
        elif length:
            self._framing.expect_body(length)
        else:
            return
        self.is_in_body = True
        self.payload = self._flow.new_body()

    def _keep(self, data: bytes) -> None:
        """Take the bytes after a head."""
        self.rest = self._feed_body(data) if self.is_in_body else data

    def _feed_body(self, data: bytes) -> bytes:
        """Take the bytes of the present body; return those after it."""
        framing = self._framing
        piece, rest = framing.cut_body(data)
        self.payload.feed_data(piece)
        self.is_in_body = framing.is_in_body
        if framing.problem is not None:
            self.has_failed = True
            self.payload.set_exception(framing.problem)
        elif not self.is_in_body:
            self.payload.feed_eof()
        return rest


def _max_line(parser: RequestParser) -> int:
    return parser.max_header_size + LINE_MARGIN
