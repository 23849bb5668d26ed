"""Where one request ends and the next begins: bytes in, heads and bodies out, no I/O.

llhttp, behind aiohttp's parser, judges the contents of a head (`request_parser`). This module runs
first: it gives the parser one head at a time, so that an error in one does not affect the one
before; it checks the request line strictly, where llhttp is lenient; and it limits the size of the
whole head. If the two disagree, the request is refused. Bodies, and the trailers after them, are
read here and by `chunks`, and never reach the parser.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.base.errors import BadRequestError
from gateway.proxy.http1.chunks import Chunks, ChunksError
from gateway.proxy.http1.grammar import request_chunk_line
from gateway.routing.methods import LONGEST_METHOD

EMPTY_LINES_MAX: Final = 8
"""Bytes of empty lines before a request that are ignored; at least one line should be (RFC 9112,
section 2.2)."""

_HEAD_END: Final = b"\r\n\r\n"
_EMPTY_LINE: Final = b"\r\n"

_LINE: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/"
"""RFC 9112, section 3: one space between the parts."""
_is_request_line: Final = re.compile(_LINE + rb"1\.[01]\r\n").match
_has_other_version: Final = re.compile(_LINE + rb"[0-9]\.[0-9]").match
_has_known_version: Final = re.compile(_LINE + rb"1\.[01]").match
_may_become_line: Final = re.compile(rb"[!-~][ -~]*\r?").fullmatch
_has_method: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ ").match
_has_long_method: Final = re.compile(
    rb"[!#$%%&'*+.^_`|~0-9A-Za-z-]{%d}" % (LONGEST_METHOD + 1)
).match
_frames: Final = re.compile(rb"\r\n(?i:content-length|transfer-encoding):").search


_has_plain_line: Final = re.compile(
    rb"(?:GET|POST|PUT|HEAD|DELETE|PATCH|OPTIONS) [^ \n]* HTTP/1\.[01]\r\n"
).match


def head_end(data: bytes, max_head: int) -> int:
    """Return where the head at the start of these bytes ends, if llhttp reads it strictly.

    Finds the same end as `RequestFraming`, with a simpler expression and in one go: with a common
    method, two spaces and one of two versions before the first LF, llhttp has nothing left in a
    first line to be lenient with: a line of HTTP/0.9 ends at any LF.

    Returns:
        0 if there is no complete head, or it is not this simple.
    """
    if not _has_plain_line(data):
        return 0
    head, end, _ = data.partition(_HEAD_END)
    size = len(head) + 4
    return size if end and size <= max_head else 0


def _bad_line(line: bytes) -> BadRequestError:
    """Return the error message for a first line that cannot be served here."""
    if _has_other_version(line) and not _has_known_version(line):
        return BadRequestError("This version of HTTP is not supported", 505, kind="version")
    return BadRequestError("The request is not valid HTTP")


def _no_chunks() -> BadRequestError:
    return BadRequestError("The request's body is not valid", kind="framing")


class RequestFraming:
    """Finds the ends of heads and bodies in the bytes of one connection, however they are split.

    Use: `cut_head` until it returns a head, then `expect_body` or `expect_chunks` if the head
    announces a body, and `cut_body` while `is_in_body` is true.

    Args:
        max_line: most bytes in the first line of a request.
        max_head: most bytes in its head, and in the trailer section after its body.
        max_fields: most fields in the trailer section.

    Attributes:
        is_in_body: whether the next bytes belong to a body.
        problem: the error in the bytes after those that were cut last; nothing can be read from
            there on.
    """

    __slots__ = (
        "_chunks",
        "_empty",
        "_has_line",
        "_held",
        "_left",
        "_max_fields",
        "_max_head",
        "_max_line",
        "_seen",
        "is_in_body",
        "problem",
    )

    def __init__(self, max_line: int, max_head: int, max_fields: int) -> None:
        self.limit(max_line, max_head, max_fields)
        self._left = 0
        self._chunks: Chunks | None = None
        self.is_in_body = False
        self.problem: BadRequestError | None = None
        self._begin_head()

    def limit(self, max_line: int, max_head: int, max_fields: int) -> None:
        """Apply other limits to what comes from now on; arguments as in the constructor."""
        self._max_line = max_line
        self._max_head = max_head
        self._max_fields = max_fields

    def _begin_head(self) -> None:
        self._held = bytearray()
        self._seen = 0
        self._has_line = False
        self._empty = 0

    def cut_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Take the bytes of the next head.

        Returns:
            The head, once it is complete, and the bytes after it. If it is too large, as many of
            its bytes as allowed, so that the parser reports the error.
        """
        held = self._held
        if not held:
            # Most heads arrive in one piece.
            if not self._empty and (end := head_end(data, self._max_head)):
                return data[:end], data[end:]
            data = self._without_empty_lines(data)
        held += data
        if self.problem is not None or not (self._has_line or self._has_valid_line(held)):
            return b"", b""
        end = held.find(_HEAD_END, self._seen) + 4
        if end < 4:
            self._seen = max(len(held) - 3, 0)
        if end > self._max_head or (end < 4 and len(held) > self._max_head):
            self.problem = BadRequestError("The request's head is too large", 431, kind="too_large")
            end = self._max_head
        elif end < 4:
            return b"", b""
        head, rest = bytes(held[:end]), bytes(held[end:])
        self._begin_head()
        return head, rest

    def _has_valid_line(self, held: bytearray) -> bool:
        """Return whether the first line is complete and that of a request."""
        found = held.find(b"\n") + 1
        line = bytes(held[:found] if found else held)
        if _has_long_method(line):
            self.problem = BadRequestError("This method is not known", 501, kind="method")
        elif len(line) > self._max_line and _has_method(line):
            self.problem = BadRequestError("The request target is too long", 414, kind="too_large")
        elif len(line) > self._max_line or not (
            _is_request_line(line) if found else not line or _may_become_line(line)
        ):
            self.problem = _bad_line(line)
        self._has_line = found > 0 and self.problem is None
        return self._has_line

    def _without_empty_lines(self, data: bytes) -> bytes:
        at = 0
        while data[at : at + 1] == _EMPTY_LINE[self._empty % 2 :][:1]:
            self._empty += 1
            at += 1
        if self._empty > EMPTY_LINES_MAX or (self._empty % 2 and at < len(data)):
            self.problem = BadRequestError("The request is not valid HTTP")
        return data[at:]

    def expect_body(self, length: int) -> None:
        """Expect a body of this many bytes."""
        self._left = length
        self.is_in_body = length > 0

    def expect_chunks(self) -> None:
        """Expect a body in chunks."""
        self._chunks = Chunks(request_chunk_line, self._max_head)
        self.is_in_body = True

    def cut_body(self, data: bytes) -> tuple[bytes, bytes]:
        """Take the bytes of the present body.

        Returns:
            The part of the body in these bytes, and the bytes after its end.
        """
        if self._chunks is not None:
            return self._cut_chunks(self._chunks, data)
        piece = data[: self._left]
        self._left -= len(piece)
        self.is_in_body = self._left > 0
        return piece, data[len(piece) :]

    def _cut_chunks(self, chunks: Chunks, data: bytes) -> tuple[bytes, bytes]:
        pieces: list[bytes] = []
        try:
            chunks.feed(data, pieces)
        except ChunksError:
            self.problem = _no_chunks()
        if chunks.is_complete:
            trailers = chunks.trailers
            if trailers.count(b"\n") > self._max_fields or _frames(trailers):
                self.problem = _no_chunks()
            else:
                self.is_in_body = False
                self._chunks = None
        return b"".join(pieces), chunks.rest
