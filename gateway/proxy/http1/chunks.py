"""A chunked body, and the trailer section after it (RFC 9112, section 7.1): no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.proxy.http1.grammar import are_fields, chunk_line, has_flaw

LONGEST_LINE: Final = 4096
"""Most bytes in the line of a chunk, including its extensions."""

LONGEST_TRAILERS: Final = 16 * 1024
"""Most bytes in the trailer section."""

_IN_DATA: Final = 0
_AT_LINE: Final = 1
_AT_TRAILERS: Final = 2


Line = Callable[[bytes, int, int], re.Match[bytes] | None]


class ChunksError(ValueError):
    """The bytes are not valid chunks; the message says why."""


class Chunks:
    """Reads one body.

    Args:
        line: matches the line of a chunk; its first group is the size.
        longest_trailers: most bytes in the trailer section.

    Attributes:
        is_complete: whether the end has arrived.
        rest: the bytes after the end.
        trailers: the fields of the trailer section, each after a line end.
    """

    __slots__ = (
        "_held",
        "_left",
        "_line",
        "_longest_trailers",
        "_phase",
        "_seen",
        "is_complete",
        "rest",
        "trailers",
    )

    def __init__(self, line: Line = chunk_line, longest_trailers: int = LONGEST_TRAILERS) -> None:
        self._line = line
        self._longest_trailers = longest_trailers
        self._phase = _AT_LINE
        self._left = 0
        self._held = b""
        self._seen = 0
        self.is_complete = False
        self.rest = b""
        self.trailers = b""

    def __repr__(self) -> str:
        return f"<Chunks: {'complete' if self.is_complete else f'{self._left} bytes to come'}>"

    def feed(self, data: bytes, body: list[bytes]) -> int:
        """Read more bytes.

        Args:
            data: the bytes.
            body: the body's part of the bytes is added to it.

        Returns:
            How many bytes of the body that was.

        Raises:
            ChunksError: they are not chunks.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        at = size = 0
        while True:
            if self._phase == _IN_DATA:
                piece = data[at : at + self._left]
                if piece:
                    body.append(piece)
                    size += len(piece)
                    at += len(piece)
                    self._left -= len(piece)
                if self._left or not self._ends_chunk(data, at):
                    return size
                at += 2
            if self._phase == _AT_TRAILERS:
                self._read_trailers(data, at)
                return size
            line = self._line(data, at, at + LONGEST_LINE)
            if line is None:
                self._hold_line(data, at)
                return size
            left = int(line[1], 16)
            if not left:
                # Its line end is the first of the trailer section.
                at = line.end() - 2
                self._phase = _AT_TRAILERS
                continue
            at = line.end()
            end = at + left
            if data[end : end + 2] == b"\r\n":
                # Most chunks arrive whole (bench: stream).
                body.append(data[at:end])
                size += left
                at = end + 2
            else:
                self._left = left
                self._phase = _IN_DATA

    def _ends_chunk(self, data: bytes, at: int) -> bool:
        """Return whether the line end after a chunk's data has arrived."""
        end = data[at : at + 2]
        if end == b"\r\n":
            self._phase = _AT_LINE
            return True
        if end and end != b"\r":
            raise ChunksError("a chunk that is longer than its size")
        self._held = end
        return False

    def _hold_line(self, data: bytes, at: int) -> None:
        """Keep the start of a chunk's line, if it can still become a valid one."""
        held = data[at:]
        if b"\r\n" in held or len(held) >= LONGEST_LINE or has_flaw(held, 0):
            raise ChunksError("a chunk without a valid size")
        self._held = held

    def _read_trailers(self, data: bytes, at: int) -> None:
        end = data.find(b"\r\n\r\n", at)
        section = data[at:] if end < 0 else data[at:end]
        # The end of the section, but for its last byte, is not counted.
        if len(section) > self._longest_trailers + (3 if end < 0 else 0):
            raise ChunksError("a trailer section beyond the limit")
        if end < 0:
            seen, self._seen = self._seen, len(section)
            lines_end = section.rfind(b"\r\n")
            has_new_line = lines_end >= max(seen - 1, 0)
            if has_flaw(section, seen) or (has_new_line and not are_fields(section, 0, lines_end)):
                raise ChunksError("a trailer section that is not valid")
            self._held = section
            return
        if not are_fields(section):
            raise ChunksError("a trailer section that is not valid")
        self.trailers = section
        self.rest = data[end + 4 :]
        self.is_complete = True


def chunk(data: bytes, *, is_chunked: bool) -> bytes:
    """Return a piece of a body as it is written (RFC 9112, section 7.1, where it is chunked)."""
    return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data
