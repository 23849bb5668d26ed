"""Heads of requests, read by aiohttp's parser one at a time.

aiohttp's parser is meant to live as long as a connection and reads bodies as well. Used that way
it keeps more of one message than it should: the last trailer of a body in chunks becomes a header
of the next request, and so do a coding that a trailer names, a pause of its payload and bytes
after it. Here a parser is given complete heads and nothing else; bodies and trailers are read by
`framing`.

A parser is reused only after a head that leaves no state in it. That is so if the head was
read without an error as exactly one message, which neither ends the connection nor switches
protocols nor has a coding. For such a message the parser's last step is to complete it, since a
parser that is set to expect no bodies ends each message with its head; and completing a message
resets what it set:

- llhttp: `flags` and `content_length` become 0, and the next byte is the first of a request line.
  Method, version and `upgrade` are set by each head. (After a message that ends the connection,
  llhttp refuses what follows; after an upgrade, it pauses.)
- aiohttp: name and value of the pending field are empty, the coding is None, the list of messages
  was handed over. Path, fields, singletons and the buffer of the target are created again when a
  message begins.

Everything else was set when the parser was created. `tests/proxy/client/test_request_parser.py`
compares each head after others with the same head read by a new parser. Creating one costs a fifth
of reading a small head (bench: passing).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from aiohttp import http_parser
from aiohttp.http import HttpProcessingError, HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from gateway.base.errors import BadRequestError, GatewayError
from gateway.proxy.client.request_message import RequestMessage
from gateway.routing.methods import METHODS, NEVER_FORWARDED

LENGTH_MAX: Final = 2**64 - 2
"""The longest body that can be announced, in bytes: llhttp takes one more for no length."""

_PLAIN: Final = (
    *(b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"CONNECT "),
)
"""Methods that llhttp sees. It treats only `OPTIONS` and `CONNECT` differently from `GET`."""

_STAND_IN: Final = b"GET "
"""The method that llhttp sees in place of every other: it need not know them."""

_make_message: Final[Callable[..., RequestMessage]] = RawRequestMessage

_codings: Final = re.compile(rb"\r\n(?i:transfer-encoding):[ \t]*([^\r\n]*)")


class RequestParser:
    """Reads heads, each independently of those before.

    Args:
        max_header_size: most bytes in one field, and in the target.
        max_headers: most fields in one head.
        more_methods: methods that are known besides those of `METHODS`.
    """

    __slots__ = ("_clean", "_known", "_make", "max_header_size", "max_headers")

    def __init__(
        self, max_header_size: int, max_headers: int, more_methods: Iterable[str] = ()
    ) -> None:
        names = (*METHODS, *NEVER_FORWARDED, *more_methods)
        self._known = frozenset(name.encode("ascii") for name in names)
        self.max_header_size = max_header_size
        self.max_headers = max_headers
        self._make = partial(
            HttpRequestParser,
            # It never has a body to pass on.
            None,
            None,
            0,
            max_line_size=max_header_size,
            # One more, so that the error shows which of the two was too long.
            max_field_size=max_header_size + 1,
            max_headers=max_headers,
            # Each message ends with its head.
            response_with_body=False,
            auto_decompress=False,
        )
        self._clean: HttpRequestParser | None = None

    def __repr__(self) -> str:
        return f"<RequestParser: {len(self._known)} methods>"

    def knows(self, method: bytes) -> bool:
        """Return whether requests may have this method."""
        return method in self._known

    def parse(self, head: bytes) -> RequestMessage:
        """Return the request of a complete head, from its first byte to its last.

        Raises:
            BadRequestError: the head is not valid.
        """
        told = self._told(head)
        message = self.parse_plain(told)
        if told is head:
            return message
        return changed(message, method=head[: head.index(b" ")].decode("ascii"))

    def parse_plain(self, head: bytes) -> RequestMessage:
        """Return the same for a head whose method llhttp knows."""
        # On any exit but the last, this parser is not reused.
        parser = self._clean or self._make()
        self._clean = None
        try:
            messages: Sequence[tuple[RequestMessage, object]] = parser.feed_data(head)[0]
        except HttpProcessingError as error:
            merged = _with_one_coding(head)
            if merged != head:
                return self.parse_plain(merged)
            raise self._judge(error) from None
        if len(messages) != 1:
            raise BadRequestError("The request is not valid HTTP")
        message = messages[0][0]
        if not (message.should_close or message.upgrade or message.chunked or message.compression):
            self._clean = parser
        return message

    def flaw(self, beginning: bytes) -> BadRequestError | None:
        """Return the error in the start of a head, whatever follows; None if there is none."""
        try:
            self._make().feed_data(self._told(beginning))
        except BadRequestError as error:
            return error
        except HttpProcessingError as error:
            return self._judge(error)
        return None

    def _told(self, head: bytes) -> bytes:
        """Return the head as llhttp sees it."""
        if head.startswith(_PLAIN):
            return head
        method, _, rest = head.partition(b" ")
        if method not in self._known:
            raise BadRequestError("This method is not known", 501, kind="method")
        return _STAND_IN + rest

    def _judge(self, error: HttpProcessingError) -> BadRequestError:
        """Return the message for the client: constant text, without anything that it sent."""
        if isinstance(error, BadHttpMethod):
            return BadRequestError("This method is not known", 501, kind="method")
        if isinstance(error, LineTooLong):
            if error.args[1] == self.max_header_size:
                return BadRequestError("The request target is too long", 414, kind="too_large")
            return BadRequestError("A header field is too long", 431, kind="too_large")
        if "Too many headers" in error.message:
            return BadRequestError("The request has too many header fields", 431, kind="too_large")
        return BadRequestError("The request is not valid HTTP")


def changed(
    message: RequestMessage,
    *,
    method: str | None = None,
    raw_headers: tuple[tuple[bytes, bytes], ...] | None = None,
) -> RequestMessage:
    """Return a message with another method, or other header fields as they are sent on."""
    return _make_message(
        message.method if method is None else method,
        message.path,
        message.version,
        message.headers,
        message.raw_headers if raw_headers is None else raw_headers,
        message.should_close,
        message.compression,
        message.upgrade,
        message.chunked,
        message.url,
    )


def _with_one_coding(head: bytes) -> bytes:
    """Return the head with its transfer codings on one line (RFC 9110, section 5.3).

    The parser refuses a second line whatever it contains, and so cannot distinguish an unknown
    coding from ambiguous framing.
    """
    values = _codings.findall(head)
    if len(values) < 2:
        return head
    first = _codings.search(head)
    assert first is not None
    rest = _codings.sub(b"", head[first.end() :])
    return b"%b\r\nTransfer-Encoding: %b%b" % (head[: first.start()], b", ".join(values), rest)


def body_length(said: str) -> int:
    """Return the number of bytes that `Content-Length` announces.

    Raises:
        BadRequestError: it is ambiguous.
    """
    digits = said.lstrip("0")
    if said.isascii() and said.isdigit() and len(digits) <= len(str(LENGTH_MAX)):
        length = int(digits or "0")
        if length <= LENGTH_MAX:
            return length
    raise BadRequestError("The body's length is not valid", kind="framing")


def require_strict_parser() -> None:
    """Refuse aiohttp's parser in Python, which has had several smuggling vulnerabilities.

    Raises:
        GatewayError: the installed aiohttp has no other.
    """
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise GatewayError(
            "aiohttp runs without its C parser (AIOHTTP_NO_EXTENSIONS is set, or no "
            "wheel was installed); the gateway requires it, because the Python parser is "
            "not safe for untrusted clients"
        )
