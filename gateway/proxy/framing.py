"""Where one request ends and the next begins: bytes in, lengths out, no I/O.

llhttp, behind aiohttp's parser, judges what a request says. This module goes beside it, for
what that parser does not do: it gives the parser one request at a time, so that what is wrong
with one takes nothing away from the one before; it holds the request line to the letter, where
llhttp is lenient; and it bounds what llhttp lets grow: the head as a whole, chunk extensions
and trailers. Wherever the two disagree the request is refused.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.errors import BadRequestError

EMPTY_LINES_MAX: Final = 8
"""Bytes of empty lines before a request that are ignored; at least one line should be (RFC 9112,
section 2.2)."""

CHUNK_LINE_MAX: Final = 4096
"""Bytes of the line before a chunk: its size and its extensions (RFC 9112, section 7.1.1)."""

_HEAD_END: Final = b"\r\n\r\n"
_EMPTY_LINE: Final = b"\r\n"

_LINE: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/"
"""RFC 9112, section 3: one blank between the parts."""
_is_request_line: Final = re.compile(_LINE + rb"1\.[01]\r\n").match
_has_other_version: Final = re.compile(_LINE + rb"[0-9]\.[0-9]").match
_has_known_version: Final = re.compile(_LINE + rb"1\.[01]").match
_may_become_line: Final = re.compile(rb"[!-~][ -~]*\r?").fullmatch
_chunk_size: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?\r\n").fullmatch


_COMMON: Final = tuple(
    method + b" " for method in (b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS")
)
_VERSIONS: Final = frozenset((b" HTTP/1.1", b" HTTP/1.0"))


def is_whole_head(data: bytes, max_head: int) -> bool:
    """Whether this is one head, from its first byte to its last, that llhttp reads to the letter.

    The same as `RequestFraming` finds, at half the price of its expression: with a common
    method, two blanks and one of two versions, nothing is left in a first line for llhttp to
    be lenient with.
    """
    if not data.startswith(_COMMON) or not data.find(_HEAD_END) + 4 == len(data) <= max_head:
        return False
    end = data.find(_EMPTY_LINE)
    return data.count(b" ", 0, end) == 2 and data[end - 9 : end] in _VERSIONS


def _bad_line(line: bytes) -> BadRequestError:
    """What to say of a first line that is none of a request that can be served here."""
    if _has_other_version(line) and not _has_known_version(line):
        return BadRequestError("This version of HTTP is not supported", 505, kind="version")
    return BadRequestError("The request is not valid HTTP")


class RequestFraming:
    """Finds the ends of head and body in the bytes of one connection, however they are cut.

    Use: `cut_head` until `has_head`, then `expect_body` or `expect_chunks` if the head
    announces a body, and `cut_body` until `is_in_body` is no longer so.

    Args:
        max_line: bytes that the first line of a request may have.
        max_head: bytes that its head may have.

    Attributes:
        has_head: whether the head that was cut last is complete.
        is_in_body: whether the next bytes belong to a body.
        problem: what is wrong behind the bytes that were cut last. The parser must be given
            them first, and be believed if it finds something that is wrong with them.
    """

    __slots__ = (
        "_empty",
        "_has_line",
        "_is_chunked",
        "_is_in_trailer",
        "_left",
        "_line",
        "_max_head",
        "_max_line",
        "_seam",
        "_size",
        "has_head",
        "is_in_body",
        "problem",
    )

    def __init__(self, max_line: int, max_head: int) -> None:
        self._max_line = max_line
        self._max_head = max_head
        self._left = 0
        self._is_chunked = False
        self._is_in_trailer = False
        self.is_in_body = False
        self.problem: BadRequestError | None = None
        self._begin_head()

    def _begin_head(self) -> None:
        self.has_head = False
        self._line = b""
        self._has_line = False
        self._empty = 0
        self._seam = b""
        self._size = 0

    def cut_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what belongs to the present head, or the next one.

        Returns:
            What the parser is to be given, which is nothing until the first line is complete,
            and what lies behind the head.
        """
        if self.has_head:
            self._begin_head()
        if self._has_line:
            return self._cut_fields(b"", data)
        data = self._line + self._without_empty_lines(data)
        found = data.find(b"\n") + 1
        line = data[:found] if found else data
        self._line = line
        if len(line) > self._max_line:
            self.problem = BadRequestError("The request target is too long", 414, kind="too_large")
        elif not found:
            if line and not _may_become_line(line):
                self.problem = _bad_line(line)
        elif not _is_request_line(line):
            self.problem = _bad_line(line)
        if not found or self.problem is not None:
            return b"", b""
        self._has_line = True
        # The first of the two line ends that close the head.
        self._seam = _EMPTY_LINE
        return self._cut_fields(line, data[found:])

    def _without_empty_lines(self, data: bytes) -> bytes:
        at = 0
        if not self._line:
            while data[at : at + 1] == _EMPTY_LINE[self._empty % 2 :][:1]:
                self._empty += 1
                at += 1
            if self._empty > EMPTY_LINES_MAX or (self._empty % 2 and at < len(data)):
                self.problem = BadRequestError("The request is not valid HTTP")
        return data[at:]

    def _cut_fields(self, line: bytes, data: bytes) -> tuple[bytes, bytes]:
        """The fields, or what there is of them, behind the first line."""
        seam = self._seam
        # A head may end across two segments.
        found = (seam + data[:3]).find(_HEAD_END)
        if found >= 0:
            end = found + 4 - len(seam)
            self.has_head = True
        else:
            found = data.find(_HEAD_END)
            self.has_head = found >= 0
            end = found + 4 if self.has_head else len(data)
        room = self._max_head - self._size - len(line)
        if end > room:
            end = room
            self.problem = BadRequestError("The request's head is too large", 431, kind="too_large")
        self._size += len(line) + end
        self._seam = (seam + data[-3:])[-3:]
        return line + data[:end], data[end:]

    def expect_body(self, length: int) -> None:
        """The head announces this many bytes."""
        self._left = length
        self._is_chunked = False
        self.is_in_body = length > 0

    def expect_chunks(self) -> None:
        """The head announces a body in chunks."""
        self._left = 0
        self._line = b""
        self._is_chunked = self.is_in_body = True
        self._is_in_trailer = False
        self._size = 0

    def cut_body(self, data: bytes) -> int:
        """How many of these bytes belong to the present body; of problems see `cut_head`."""
        if self._is_chunked:
            return self._cut_chunks(data)
        taken = min(self._left, len(data))
        self._left -= taken
        self.is_in_body = self._left > 0
        return taken

    def _cut_chunks(self, data: bytes) -> int:
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            found = data.find(b"\n", at) + 1
            end = found or len(data)
            line = self._line + data[at:end]
            at = end
            if len(line) > CHUNK_LINE_MAX and not self._is_in_trailer:
                self.problem = BadRequestError("A chunk's extensions are too long", kind="framing")
            elif not found:
                self._line = line
                self._check_trailer(len(line))
            else:
                self._line = b""
                self._take_line(line)
            if self.problem is not None or not self.is_in_body:
                break
        return at

    def _take_line(self, line: bytes) -> None:
        if self._is_in_trailer:
            self._check_trailer(len(line))
            self._size += len(line)
            self.is_in_body = line != _EMPTY_LINE
            return
        size = _chunk_size(line)
        if size is None:
            self.problem = BadRequestError("A chunk's size is not valid", kind="framing")
            return
        self._left = int(size[1], 16)
        if self._left:
            self._left += len(_EMPTY_LINE)
        else:
            self._is_in_trailer = True

    def _check_trailer(self, more: int) -> None:
        if self._is_in_trailer and self._size + more > self._max_head:
            self.problem = BadRequestError("The trailer is too large", 431, kind="too_large")
