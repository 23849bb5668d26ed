"""Finds numbers in JSON that passes in pieces, without holding any of it.

Only fields of objects are found: `usage.total_tokens` is the member of the member of the whole.
What is of no interest is skipped in long runs, so a megabyte of numbers costs little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from gateway.limits.expression import as_number

MAX_KEPT: Final = 4096
"""Bytes of a key or number that may be cut between pieces; one that is longer ends the search."""

_token: Final = re.compile(
    rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+)', re.DOTALL
).match
_rest_of_text: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL).match
_backslashes: Final = re.compile(rb"\\*\Z").search
_skipped: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^"{}\[\]]+', re.DOTALL).match


class JsonNumbers:
    """Numbers of one JSON text after the other.

    Args:
        fields: the names, with dots between the keys of nested objects.

    Attributes:
        found: the numbers that were found, by name; the last one of each.
        is_lost: whether the text is nothing that can be read, so that no more is found in it.
    """

    __slots__ = (
        "_cut",
        "_expects_key",
        "_fields",
        "_key",
        "_open",
        "_place",
        "_rest",
        "_skip",
        "found",
        "is_lost",
    )

    def __init__(self, fields: Iterable[str]) -> None:
        self._fields = frozenset(fields)
        # Objects that contain one of them, as they are written before it.
        parts = [field.split(".") for field in self._fields]
        self._open = frozenset(
            ".".join(part[:count]) for part in parts for count in range(1, len(part))
        )
        self.found: dict[str, float] = {}
        self.is_lost = False
        self._place: list[str] = []
        self._key = ""
        self._expects_key = False
        self._skip = 0
        self._rest = b""
        # Inside of a text that was cut: empty, or the backslash that it was cut after.
        self._cut: bytes | None = None

    def begin(self) -> None:
        """Begin another text; what was found stays until it is found again."""
        self.is_lost = False
        self._place.clear()
        self._key = ""
        self._expects_key = False
        self._skip = 0
        self._rest = b""
        self._cut = None

    def feed(self, data: bytes) -> None:
        """Read the next piece of the text."""
        if self.is_lost:
            return
        at = 0
        if self._cut is not None:
            data = self._cut + data
            found = _rest_of_text(data)
            if found is None:
                self._cut = _half_escape(data)
                return
            self._cut = None
            at = found.end()
        elif self._rest:
            data = self._rest + data
        at = self._read_all(data, at)
        self._rest = data[at:]
        if self._rest.lstrip()[:1] == b'"' and not self._expects_key:
            # A text of any length, of which nothing is wanted but its end.
            self._cut = _half_escape(self._rest)
            self._rest = b""
        elif len(self._rest) > MAX_KEPT:
            self.is_lost = True
            self._rest = b""

    def _read_all(self, data: bytes, at: int) -> int:
        """Read what is complete; return where the rest begins."""
        end = len(data)
        while at < end:
            if self._skip:
                found = _skipped(data, at)
                if found is None:
                    break
                self._pass_over(found.group())
            else:
                found = _token(data, at)
                # A number that reaches the end may go on in the next piece.
                if found is None or (found.end() == end and data[-1:] not in b'"{}[]:,'):
                    break
                self._read(found.group(1))
            at = found.end()
        return at

    def end(self) -> None:
        """End the text: a number that reaches its end is complete."""
        rest, self._rest = self._rest, b""
        if not self.is_lost and rest and not self._skip and (found := _token(rest, 0)):
            self._read(found.group(1))

    def _pass_over(self, token: bytes) -> None:
        if token in {b"{", b"["}:
            self._skip += 1
        elif token in {b"}", b"]"}:
            self._skip -= 1

    def _read(self, token: bytes) -> None:
        match token[0]:
            case 0x7B:  # {
                self._enter()
            case 0x5B:  # [
                self._skip = 1
            case 0x7D:  # }
                if self._place:
                    self._place.pop()
                self._expects_key = False
            case 0x2C:  # ,
                self._expects_key = True
            case 0x3A:  # :
                self._expects_key = False
            case 0x22 if self._expects_key:  # "
                self._key = _text(token)
            case 0x22 | 0x5D:  # a value that is text, or a bracket that was never opened
                pass
            case _:
                self._note(token)

    def _enter(self) -> None:
        """Begin an object: look into it if something of interest may be in it."""
        if not self._place:
            # The whole; its place has no name.
            self._place.append("")
        else:
            inside = self._inside
            if inside not in self._open:
                self._skip = 1
                return
            self._place.append(f"{inside}.")
        self._expects_key = True

    @property
    def _inside(self) -> str:
        return f"{self._place[-1]}{self._key}"

    def _note(self, token: bytes) -> None:
        if self._place and not self._expects_key and self._inside in self._fields:
            number = _number(token)
            if number is not None:
                self.found[self._inside] = number


def _half_escape(data: bytes) -> bytes:
    """Return the backslash at the end of a cut text that the next byte belongs to, or nothing."""
    found = _backslashes(data)
    return b"\\" if found is not None and len(found.group()) % 2 else b""


def _text(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return ""


def _number(token: bytes) -> float | None:
    try:
        return as_number(json.loads(token))
    except ValueError:
        return None
