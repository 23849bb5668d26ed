"""What a client sends, made into requests: aiohttp's parser, given one request at a time.

What follows a request waits here, unparsed, until that request has been served: it may belong
to another protocol, or be no request at all, and then the one before it still has its answer.

What this relies on beyond aiohttp's public interface: `_messages`, `_parser`, `_upgraded`,
`_message_tail`, `_buffer_paused` and the two methods that set it, `_close`, `_force_close`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from gateway.errors import BadRequestError
from gateway.proxy.framing import RequestFraming

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.streams import StreamReader

LINE_MARGIN = 64
"""Bytes of a request's first line besides its target, which `max_header_size` is for."""

READ_BUFFER = 128 * 1024
"""Bytes of a request's body that lie here before the client is held back (twice as many)."""

AHEAD_MAX = 64 * 1024
"""Bytes behind the present request that lie here before the client is held back."""


class RequestIntake(RequestHandler):
    """Puts requests, or what makes the next one none, into `_messages`; one at a time.

    Args:
        server: as for aiohttp.
        max_head: bytes that the head of a request may have.
        options: as for aiohttp.

    Attributes:
        segment: what the present request was read from, if that is one whole request.
    """

    __slots__ = ("_framing", "_max_head", "_payload", "_rest", "segment")

    def __init__(self, server: web.Server, max_head: int, **options: Any) -> None:
        super().__init__(server, **options)
        self._max_head = max_head
        self._framing = RequestFraming(self.max_line_size + LINE_MARGIN, max_head)
        self._payload: StreamReader = EMPTY_PAYLOAD
        self._rest = b""
        self.segment = b""

    @property
    def is_ending(self) -> bool:
        """Whether nothing that arrives is read any more."""
        return self._close or self._force_close

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        raise NotImplementedError

    def serve_next(self) -> None:
        """Serve what is here; `read_head` tells whether there is something."""
        raise NotImplementedError

    def parse(self, data: bytes) -> None:
        """Give aiohttp's parser bytes."""
        RequestHandler.data_received(self, data)

    def receive(self, data: bytes) -> None:
        """Take bytes that are not, or may not be, exactly one request."""
        if not data or self._upgraded or self.is_ending:
            # What aiohttp has held back, the bytes of another protocol, or nothing any more.
            self.parse(data)
            self._judge_body()
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
        """Parse what belongs to the present body; returns what lies behind it."""
        framing = self._framing
        end = framing.cut_body(data)
        self.parse(data[:end])
        if framing.problem is not None:
            self._refuse(framing.problem)
        self._judge_body()
        return self._without_tail(data[end:])

    def _without_tail(self, data: bytes) -> bytes:
        """Leave what follows a request for another protocol with aiohttp."""
        if data and self._upgraded:
            self.parse(data)
            return b""
        return data

    def _refuse(self, problem: BadRequestError) -> None:
        """Nothing from here on can be read, unless what is before it was wrong already."""
        self._framing.problem = None
        if not self._messages or not isinstance(self._messages[-1][0], _ErrInfo):
            self._messages.append((_ErrInfo(problem.status, problem, ""), EMPTY_PAYLOAD))

    def read_head(self) -> bool:
        """Parse the next request, as far as it is here.

        Returns:
            Whether there is one in the queue now, or what makes it none.
        """
        framing = self._framing
        piece, rest = framing.cut_head(self._rest)
        self._rest = b""
        if piece:
            self.parse(piece)
        if framing.problem is not None:
            if self._messages and not isinstance(self._messages[-1][0], _ErrInfo):
                self._messages.clear()
            self._refuse(framing.problem)
        elif self._messages:
            self.expect_message()
            if framing.is_in_body:
                rest = self._receive_body(rest)
            self._rest = self._without_tail(rest)
        if self._buffer_paused and len(self._rest) <= AHEAD_MAX // 2:
            self._resume_reading_for_buffer()
        return bool(self._messages)

    def expect_message(self) -> None:
        """Know where the request ends whose head was just parsed."""
        message, payload = self._messages[-1]
        if payload is EMPTY_PAYLOAD or isinstance(message, _ErrInfo):
            return
        self.segment = b""
        self._payload = payload
        if message.chunked:
            self._framing.expect_chunks()
        elif message.method != "CONNECT":
            self._framing.expect_body(int(message.headers[CONTENT_LENGTH]))

    def _judge_body(self) -> None:
        """Tell the reader of a body that what came next cannot be read; aiohttp does not."""
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            payload, self._payload = self._payload, EMPTY_PAYLOAD
            if not payload.is_eof():
                error = RequestPayloadError("not valid")
                payload.set_exception(error)
                # A reader that was woken by the end of a chunk, and has not run yet, does not
                # look for an error before it waits again.
                self._loop.call_soon(payload.set_exception, error)

    @property
    def is_waiting(self) -> bool:
        """Whether nothing has come behind a request that asks for another protocol."""
        return not self._message_tail

    def stay_with_http(self) -> bool:
        """Go on after a protocol was asked for and not switched to (RFC 9110, section 7.8).

        Returns:
            False if the client has not waited for the answer: bytes of another protocol must
            not be read as requests.
        """
        if not self.is_waiting:
            return False
        assert self._parser is not None
        self._parser.set_upgraded(False)
        self._upgraded = False
        return True


def judge(error: _ErrInfo, max_header_size: int) -> BadRequestError:
    """What a client is told whose bytes could not be parsed: constant text, nothing of his."""
    reason = error.exc
    if isinstance(reason, BadRequestError):
        return reason
    if isinstance(reason, BadHttpMethod):
        return BadRequestError("This method is not known", 501, kind="method")
    if isinstance(reason, LineTooLong):
        if reason.args[1] == max_header_size:
            return BadRequestError("The request target is too long", 414, kind="too_large")
        return BadRequestError("A header field is too long", 431, kind="too_large")
    if isinstance(reason, BadHttpMessage) and "Too many headers" in reason.message:
        return BadRequestError("The request has too many header fields", 431, kind="too_large")
    return BadRequestError("The request is not valid HTTP")
