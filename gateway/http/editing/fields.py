"""Setting, adding and removing header fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MARK: Final = r"[!#$%&'*+.^_`|~-]"
"""Characters of names other than letters and digits (RFC 9110, section 5.6.2)."""


class FieldEdit(Generic[T]):
    """The edits of one route, in one direction.

    Args:
        gone: names of the fields that are removed, including those that are set. `-`, `_` and the
            like are equivalent, as they are for applications behind CGI and WSGI.
        lines: the fields that are added, each with its value or a function that makes it for a
            request.
    """

    __slots__ = ("_constant", "_made", "_without")

    def __init__(
        self, gone: Iterable[str], lines: Sequence[tuple[str, Callable[[T], bytes] | bytes]]
    ) -> None:
        patterns = [
            "".join(character if character.isalnum() else _MARK for character in name)
            for name in gone
        ]
        self._without = (
            re.compile(f"(?im)^(?:{'|'.join(patterns)}):[^\n]*\n".encode("ascii")).sub
            if patterns
            else None
        )
        self._constant = b"".join(
            b"%b: %b\r\n" % (name.encode("ascii"), value)
            for name, value in lines
            if isinstance(value, bytes)
        )
        self._made = [
            (b"%b: " % name.encode("ascii"), value)
            for name, value in lines
            if not isinstance(value, bytes)
        ]

    def apply(self, block: bytes, request: T) -> bytes:
        """Return the lines of a head after the edit, each with its line end.

        A field whose value is made for the request and is empty is not sent.
        """
        if self._without is not None:
            block = self._without(b"", block)
        block += self._constant
        for name, make in self._made:
            value = make(request)
            if value:
                block += b"%b%b\r\n" % (name, value)
        return block
