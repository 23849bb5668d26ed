"""A cursor over a line of notation, shared by the parsers of its parts."""

from __future__ import annotations

import re
from typing import Final

from gateway.base.errors import LimitSyntaxError

_GAP: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[^\s/+]+")


class Cursor:
    """A place in a line.

    Attributes:
        text: the whole line.
        position: where the next reader begins, from 0.
    """

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def word_at(self, position: int) -> str:
        """Return the word here: up to the next space, slash or plus; empty if there is none."""
        match = _WORD.match(self.text, position)
        return match.group() if match else ""

    def skip_gap(self) -> None:
        """Skip spaces."""
        gap = _GAP.match(self.text, self.position)
        if gap:
            self.position = gap.end()

    def keyword(self, keyword: str) -> bool:
        """Consume the next word if it is `keyword`; returns whether it was."""
        self.skip_gap()
        if self.word_at(self.position) != keyword:
            return False
        self.position += len(keyword)
        self.skip_gap()
        return True

    def error(self, position: int, message: str, hint: str) -> LimitSyntaxError:
        """Return the error for the current position."""
        return LimitSyntaxError(self.text, position + 1, message, hint)
