"""Answers of an upstream, from bytes: no I/O.

The parser is llhttp in its strict form, through httptools. What it leaves to its user is
decided here: which answers have no body, what frames a body, which bytes nobody asked for. A
body of known length does not pass through the parser once the head is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.errors import UpstreamClosedError, UpstreamError, UpstreamProtocolError
from gateway.proxy.head import AnswerHead, answer_head, switches_to_websocket, without_length

MAX_INFORMATIONAL: Final = 16
"""How many interim answers (1xx) one exchange may bring."""

ENDLESS: Final = 1 << 62
"""Bytes that no connection will ever carry."""

_NO_HEAD: Final = AnswerHead(b"", b"", None, is_chunked=False, has_date=False)

Informational = Callable[[AnswerHead], None]


class AnswerReader:
    """Reads one answer after the other from the bytes of one connection.

    Use: `start`, then `feed` what arrives and look at the attributes; `feed_eof` when the
    upstream closes.

    Args:
        max_head: bytes that the head of an answer may have.

    Attributes:
        status: the status code, once `has_head`.
        head: what to pass on of the head, once `has_head`.
        length: of the body as announced; None if its end is marked otherwise.
        may_switch: whether the request asked for a WebSocket, so that 101 may be the answer;
            set after `start`.
        has_head: whether the head is complete.
        is_complete: whether the whole answer is there.
        keeps_alive: whether the connection may carry another exchange.
        body: pieces of the body that nobody has taken yet.
        buffered: their size in bytes.
    """

    __slots__ = (
        "_ends_with_connection",
        "_interim_count",
        "_is_head",
        "_max_head",
        "_on_interim",
        "_parser",
        "_raw",
        "_raw_at",
        "_raw_left",
        "_size",
        "body",
        "buffered",
        "has_head",
        "head",
        "is_complete",
        "keeps_alive",
        "length",
        "may_switch",
        "status",
    )

    def __init__(self, max_head: int) -> None:
        self._max_head = max_head
        self._parser: HttpResponseParser | None = None
        self.start(is_head=False, on_interim=None)

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else "in its body" if self.has_head else "expected"
        return f"<AnswerReader: answer {self.status or ''} {state}>"

    def start(self, *, is_head: bool, on_interim: Informational | None) -> None:
        """Expect an answer.

        Args:
            is_head: whether it is one to HEAD, which has no body whatever it says.
            on_interim: called with the head of each interim answer.
        """
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        self._is_head = is_head
        self._on_interim = on_interim
        self._interim_count = 0
        self._size = 0
        self._raw = b""
        self._raw_at = 0
        self._raw_left = 0
        self._ends_with_connection = False
        self.may_switch = False
        self.keeps_alive = False
        self.has_head = False
        self.is_complete = False
        self.body: list[bytes] = []
        self.buffered = 0
        self.status = 0
        self.head: AnswerHead = _NO_HEAD
        self.length: int | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any byte of the answer has arrived."""
        return self._size > 0

    def take(self) -> bytes:
        """The pieces of the body that are there, joined."""
        body = self.body
        data = body[0] if len(body) == 1 else b"".join(body)
        self.body = []
        self.buffered = 0
        return data

    def feed(self, data: bytes) -> None:
        """Read more bytes.

        Raises:
            UpstreamProtocolError: they are not one valid answer.
        """
        self._size += len(data)
        if self._raw_left:
            self._feed_raw(data)
            return
        parser = self._parser
        if parser is None:
            # After an answer that leaves no doubt about its end: bytes that nobody asked for.
            self.keeps_alive = False
            return
        if not self.has_head:
            self._raw = self._raw + data if self._raw else data
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as switch:
            # Whatever follows the head is no HTTP, and this answer has no end of its own.
            self._raw_left = ENDLESS
            self._parser = None
            if len(data) > switch.args[0]:
                self._feed_raw(data[switch.args[0] :])
            return
        except HttpParserError as error:
            self._on_parser_error(error)
        if not self.has_head:
            if self._size > self._max_head:
                raise UpstreamProtocolError("the head is beyond the limit")
        elif not self.is_complete and self.length is not None:
            # From here on the length alone tells where the body ends.
            self._raw_left = self.length - self.buffered
            self._parser = None

    def feed_eof(self) -> None:
        """The upstream has closed.

        Raises:
            UpstreamClosedError: in the middle of an answer.
        """
        self.keeps_alive = False
        if self.is_complete:
            return
        if not self._ends_with_connection:
            raise UpstreamClosedError("closed before the answer was complete")
        self.is_complete = True

    def _feed_raw(self, data: bytes) -> None:
        size = len(data)
        if size > self._raw_left:
            data = data[: self._raw_left]
            size = self._raw_left
            self.keeps_alive = False
        self._raw_left -= size
        self.body.append(data)
        self.buffered += size
        if not self._raw_left:
            self.is_complete = True

    def _on_parser_error(self, error: HttpParserError) -> None:
        if self.is_complete:
            # Bytes after a whole answer: it stands, the connection does not.
            self.keeps_alive = False
            self._parser = None
            return
        if isinstance(error.__context__, UpstreamError):
            raise error.__context__ from None
        raise UpstreamProtocolError("not a valid HTTP answer") from None

    # What the parser calls.

    def on_message_begin(self) -> None:
        """The first byte of an answer; after a whole one, of something nobody asked for."""
        if self.is_complete:
            self.keeps_alive = False

    def on_headers_complete(self) -> None:
        """Decide how the answer is framed (RFC 9112, section 6.3)."""
        if self.has_head:
            raise UpstreamProtocolError("a second answer to one request")
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        block = self._take_head()
        head = answer_head(block)
        if not 100 <= status <= 599:
            raise UpstreamProtocolError("a status code that does not exist")
        if status < 200:
            self._on_interim_answer(status, head, block)
            return
        if head.is_chunked and (head.length is not None or parser.get_http_version() == "1.0"):
            raise UpstreamProtocolError("framing that is not certain")
        self.status = status
        self.head = head
        self.length = head.length
        self.keeps_alive = parser.should_keep_alive()
        self._ends_with_connection = not head.is_chunked and head.length is None
        self.has_head = True
        self._raw = b""
        if self._is_head:
            self.is_complete = True
            # llhttp would wait for the body that the answer announces but does not have.
            self._parser = None

    def _take_head(self) -> bytes:
        """The bytes of the head that the parser has just accepted."""
        raw = self._raw
        start = self._raw_at
        while raw[start] in b"\r\n":
            start += 1
        end = raw.find(b"\r\n\r\n", start)
        if end < 0:
            raise UpstreamProtocolError("a head without an end")
        self._raw_at = end + 4
        return raw[start:end]

    def _on_interim_answer(self, status: int, head: AnswerHead, block: bytes) -> None:
        if status == 101:
            self._on_switch(head, block)
            return
        self._interim_count += 1
        if self._interim_count > MAX_INFORMATIONAL:
            raise UpstreamProtocolError("interim answers without end")
        if self._on_interim is not None:
            self._on_interim(head)

    def _on_switch(self, head: AnswerHead, block: bytes) -> None:
        """The last head of this connection (RFC 9110, section 15.2.2)."""
        if not self.may_switch:
            raise UpstreamProtocolError("switched protocols without being asked")
        if not switches_to_websocket(block) or head.is_chunked or head.length:
            raise UpstreamProtocolError("switched to something that was not asked for")
        self.status = 101
        self.head = head._replace(fields=without_length(head.fields))
        self._ends_with_connection = True
        self.has_head = True
        self._raw = b""

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.is_complete:
            # A body after an answer that has none: dropped, and the connection with it.
            self.keeps_alive = False
            return
        self.body.append(data)
        self.buffered += len(data)

    def on_message_complete(self) -> None:
        """The end of an answer; of an interim one nothing is to be done."""
        if self.has_head and self.status != 101:
            self.is_complete = True
