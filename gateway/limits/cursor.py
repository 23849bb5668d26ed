"""A cursor over one line of a notation: what the readers of its parts share."""

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
        """The word there: up to the next space, slash or plus; empty if there is none."""
        match = _WORD.match(self.text, position)
        return match.group() if match else ""

    def skip_gap(self) -> None:
        """Go to the next thing that is not a space."""
        gap = _GAP.match(self.text, self.position)
        if gap:
            self.position = gap.end()

    def keyword(self, keyword: str) -> bool:
        """Whether the next word is `keyword`; if so it is behind us."""
        self.skip_gap()
        if self.word_at(self.position) != keyword:
            return False
        self.position += len(keyword)
        self.skip_gap()
        return True

    def error(self, position: int, message: str, hint: str) -> LimitSyntaxError:
        """What is wrong there, and what would do."""
        return LimitSyntaxError(self.text, position + 1, message, hint)
