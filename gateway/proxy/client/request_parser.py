"""Heads of requests, each read by a parser of its own.

aiohttp's parser is meant to live as long as a connection, and keeps more of one message than it
should: the last trailer of a body in chunks becomes a header of the next request, and so do a
coding that a trailer names, a pause of its payload and bytes behind it. Here a parser is given
one whole head and nothing else, and is thrown away with it; bodies are read elsewhere. Making
one costs less than what aiohttp does around it to keep one (bench: passing).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParser

from gateway.base.errors import BadRequestError
from gateway.routing.methods import METHODS, NEVER_FORWARDED

if TYPE_CHECKING:
    from aiohttp.http_parser import RawRequestMessage

LENGTH_MAX: Final = 2**64 - 2
"""Bytes of the longest body that can be announced: one more is what llhttp takes for no length."""

_PLAIN: Final = frozenset(
    (b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS", b"CONNECT")
)
"""Methods that llhttp is told. It gives only `OPTIONS` and `CONNECT` another meaning than `GET`."""

_STAND_IN: Final = b"GET"
"""What llhttp is told in place of every other method: it need not know them."""

_codings: Final = re.compile(rb"\r\n(?i:transfer-encoding):[ \t]*([^\r\n]*)")


class RequestParser:
    """Reads heads, each as if there had been no other.

    Args:
        max_header_size: bytes of one field, and of the target.
        max_headers: fields of one head.
        more_methods: that are known beside those of `METHODS`.
    """

    __slots__ = ("_known", "_options", "max_header_size", "max_headers")

    def __init__(
        self, max_header_size: int, max_headers: int, more_methods: Iterable[str] = ()
    ) -> None:
        names = (*METHODS, *NEVER_FORWARDED, *more_methods)
        self._known = frozenset(name.encode("ascii") for name in names)
        self.max_header_size = max_header_size
        self.max_headers = max_headers
        self._options: dict[str, Any] = {
            "max_line_size": max_header_size,
            # One more, so that the error tells which of the two was too long.
            "max_field_size": max_header_size + 1,
            "max_headers": max_headers,
            # The bodies are none of its business.
            "response_with_body": False,
            "auto_decompress": False,
        }

    def __repr__(self) -> str:
        return f"<RequestParser: {len(self._known)} methods>"

    def parse(self, head: bytes) -> RawRequestMessage:
        """The request of a whole head, from its first byte to its last.

        Raises:
            BadRequestError: it is none.
        """
        method, told = self._told(head)
        message = self.parse_plain(told)
        return message if told is head else message._replace(method=method.decode("ascii"))

    def parse_plain(self, head: bytes) -> RawRequestMessage:
        """The same where the method is a common one."""
        try:
            messages = self._feed(head)
        except HttpProcessingError as error:
            merged = _with_one_coding(head)
            if merged != head:
                return self.parse_plain(merged)
            raise self._judge(error) from None
        if len(messages) != 1:
            raise BadRequestError("The request is not valid HTTP")
        return cast("RawRequestMessage", messages[0][0])

    def flaw(self, beginning: bytes) -> BadRequestError | None:
        """What is wrong with the beginning of a head, whatever would follow."""
        try:
            self._feed(self._told(beginning)[1])
        except BadRequestError as error:
            return error
        except HttpProcessingError as error:
            return self._judge(error)
        return None

    def _told(self, head: bytes) -> tuple[bytes, bytes]:
        """The method of a head, and the head as llhttp is told it."""
        method, _, rest = head.partition(b" ")
        if method in _PLAIN:
            return method, head
        if method not in self._known:
            raise BadRequestError("This method is not known", 501, kind="method")
        return method, _STAND_IN + b" " + rest

    def _feed(self, head: bytes) -> Sequence[Any]:
        return HttpRequestParser(_NOBODY, _NO_LOOP, 0, **self._options).feed_data(head)[0]

    def _judge(self, error: HttpProcessingError) -> BadRequestError:
        """What a client is told whose head could not be parsed: constant text, nothing of his."""
        if isinstance(error, BadHttpMethod):
            return BadRequestError("This method is not known", 501, kind="method")
        if isinstance(error, LineTooLong):
            if error.args[1] == self.max_header_size:
                return BadRequestError("The request target is too long", 414, kind="too_large")
            return BadRequestError("A header field is too long", 431, kind="too_large")
        if "Too many headers" in error.message:
            return BadRequestError("The request has too many header fields", 431, kind="too_large")
        return BadRequestError("The request is not valid HTTP")


# It never has a body to give to anybody.
_NOBODY: Final = cast("Any", None)
_NO_LOOP: Final = cast("asyncio.AbstractEventLoop", None)


def _with_one_coding(head: bytes) -> bytes:
    """The same head with its transfer codings on one line (RFC 9110, section 5.3).

    The parser refuses a second line whatever it says, and so cannot tell a coding that is not
    known here from framing that is not certain.
    """
    values = _codings.findall(head)
    if len(values) < 2:
        return head
    first = _codings.search(head)
    assert first is not None
    rest = _codings.sub(b"", head[first.end() :])
    return b"%b\r\nTransfer-Encoding: %b%b" % (head[: first.start()], b", ".join(values), rest)


def body_length(said: str) -> int:
    """What `Content-Length` says.

    Raises:
        BadRequestError: nothing certain.
    """
    digits = said.lstrip("0")
    if said.isascii() and said.isdigit() and len(digits) <= len(str(LENGTH_MAX)):
        length = int(digits or "0")
        if length <= LENGTH_MAX:
            return length
    raise BadRequestError("The body's length is not valid", kind="framing")
