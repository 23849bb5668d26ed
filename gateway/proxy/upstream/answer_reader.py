"""Read an upstream's answers from bytes: no I/O.

`grammar` has the syntax of a head, `answer_head` interprets it, and `chunks` reads bodies in
chunks. This module decides which answers have no body, how a body is framed, and which bytes
belong to no request (RFC 9112, section 6.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gateway.base.errors import UpstreamClosedError, UpstreamProtocolError
from gateway.proxy.http1.chunks import Chunks, ChunksError
from gateway.proxy.http1.grammar import may_become_head
from gateway.proxy.upstream.answer_head import (
    KNOWN_MAX,
    AnswerHead,
    answer_head,
    read_answer_head,
    switches_to_websocket,
    without_length,
)

MAX_INFORMATIONAL: Final = 16
"""Most interim answers (1xx) in one exchange."""

NO_BODY: Final = frozenset({204, 304})
"""Final answers that end with their head."""

_NO_HEAD: Final = AnswerHead(
    b"", b"", None, is_chunked=False, has_date=False, status=0, keeps_alive=False, announced=b""
)

Informational = Callable[[AnswerHead], None]


class AnswerReader:
    """Reads one answer after the other from the bytes of one connection.

    Use: `start`, then `feed` the bytes and check the attributes; `feed_eof` when the
    upstream closes.

    Args:
        max_head: most bytes in the head of an answer.

    Attributes:
        status: the status code, once `has_head`.
        head: the part of the head to pass on, once `has_head`.
        length: of the body as announced; None if its end is marked otherwise.
        has_begun: whether any byte of the answer has arrived.
        has_head: whether the head is complete.
        is_complete: whether the whole answer has arrived.
        keeps_alive: whether the connection may carry another exchange.
        body: pieces of the body that were not read yet.
        buffered: their size in bytes.
        trailers: the fields after a body in chunks, each after a line end; once `is_complete`.
    """

    __slots__ = (
        "_chunks",
        "_ends_with_connection",
        "_interim_count",
        "_is_head",
        "_left",
        "_max_head",
        "_may_switch",
        "_on_interim",
        "_unread",
        "body",
        "buffered",
        "has_begun",
        "has_head",
        "head",
        "is_complete",
        "keeps_alive",
        "length",
        "status",
        "trailers",
    )

    def __init__(self, max_head: int) -> None:
        self._max_head = max_head
        self.start(is_head=False, on_interim=None)

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else "in its body" if self.has_head else "expected"
        return f"<AnswerReader: answer {self.status or ''} {state}>"

    def start(
        self, *, is_head: bool, on_interim: Informational | None, may_switch: bool = False
    ) -> None:
        """Expect an answer.

        Args:
            is_head: whether it answers HEAD, and so has no body whatever its fields say.
            on_interim: called with the head of each interim answer.
            may_switch: whether the request asked for a WebSocket, so that 101 may be the answer.
        """
        self._is_head = is_head
        self._on_interim = on_interim
        self._interim_count = 0
        self._unread: bytes | bytearray = b""
        self._left = 0
        self._chunks: Chunks | None = None
        self._ends_with_connection = False
        self._may_switch = may_switch
        self.keeps_alive = False
        self.has_begun = False
        self.has_head = False
        self.is_complete = False
        self.body: list[bytes] = []
        self.buffered = 0
        self.status = 0
        self.head: AnswerHead = _NO_HEAD
        self.length: int | None = None
        self.trailers = b""

    @property
    def had_interim(self) -> bool:
        """Return whether interim answers came before it."""
        return self._interim_count > 0

    def take(self) -> bytes:
        """Return the pieces of the body that have arrived, joined."""
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
        self.has_begun = True
        if self.has_head:
            self._feed_body(data)
        else:
            self._feed_head(data)

    def feed_eof(self) -> None:
        """Note that the upstream has closed.

        Raises:
            UpstreamClosedError: in the middle of an answer.
        """
        self.keeps_alive = False
        if self.is_complete:
            return
        if not self._ends_with_connection:
            raise UpstreamClosedError("closed before the answer was complete")
        self.is_complete = True

    def _feed_head(self, data: bytes) -> None:
        """Read heads, until that of a final answer is complete."""
        seen = len(self._unread)
        if seen:
            # A `bytearray`: a head that arrives byte by byte would be copied as often.
            if isinstance(self._unread, bytes):
                self._unread = bytearray(self._unread)
            self._unread += data
            data = bytes(self._unread) if b"\n" in data else b""
        else:
            self._unread = data
        at = 0
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            if end - at > self._max_head:
                raise UpstreamProtocolError("the head is beyond the limit")
            block = data[at:end]
            head = answer_head(block) if len(block) <= KNOWN_MAX else read_answer_head(block)
            at = end + 4
            if head.status >= 200:
                self._unread = b""
                self._begin_body(head, data[at:])
                return
            if head.status == 101:
                self._unread = b""
                self._begin_switch(head, block, data[at:])
                return
            seen = 0
            self._on_interim_answer(head)
        if at:
            self._unread = data[at:]
        # The last byte of the end of a head is not counted.
        if len(self._unread) > self._max_head + 3:
            raise UpstreamProtocolError("the head is beyond the limit")
        if not may_become_head(self._unread, seen):
            raise UpstreamProtocolError("not a valid HTTP answer")

    def _on_interim_answer(self, head: AnswerHead) -> None:
        self._interim_count += 1
        if self._interim_count > MAX_INFORMATIONAL:
            raise UpstreamProtocolError("interim answers without end")
        if self._on_interim is not None:
            self._on_interim(head)

    def _begin_switch(self, head: AnswerHead, block: bytes, data: bytes) -> None:
        """Read the last head of this connection (RFC 9110, section 15.2.2)."""
        if not self._may_switch:
            raise UpstreamProtocolError("switched protocols without being asked")
        if not switches_to_websocket(block) or head.is_chunked or head.length:
            raise UpstreamProtocolError("switched to something that was not asked for")
        self.status = 101
        self.head = replace(head, fields=without_length(head.fields))
        self.has_head = True
        # What follows is not HTTP, and has no end of its own.
        self._ends_with_connection = True
        if data:
            self._feed_body(data)

    def _begin_body(self, head: AnswerHead, data: bytes) -> None:
        """Decide how the answer is framed (RFC 9112, section 6.3)."""
        self.head = head
        self.status = head.status
        self.length = head.length
        self.keeps_alive = head.keeps_alive
        self.has_head = True
        if self._is_head or head.status in NO_BODY:
            self.is_complete = True
        elif head.is_chunked:
            self._chunks = Chunks()
        elif head.length is None:
            self._ends_with_connection = True
            self.keeps_alive = False
        elif head.length:
            self._left = head.length
        else:
            self.is_complete = True
        if data:
            self._feed_body(data)

    def _feed_body(self, data: bytes) -> None:
        if self._left:
            size = len(data)
            if size > self._left:
                data = data[: self._left]
                size = self._left
                self.keeps_alive = False
            self._left -= size
            self.is_complete = not self._left
            self._add(data)
        elif self.is_complete:
            # Bytes without a request: the answer is valid, the connection is not reused.
            self.keeps_alive = False
        elif self._chunks is not None:
            try:
                self.buffered += self._chunks.feed(data, self.body)
            except ChunksError as error:
                raise UpstreamProtocolError(str(error)) from None
            if self._chunks.is_complete:
                self.is_complete = True
                self.trailers = self._chunks.trailers
                if self._chunks.rest:
                    self.keeps_alive = False
        else:
            self._add(data)

    def _add(self, data: bytes) -> None:
        self.body.append(data)
        self.buffered += len(data)
