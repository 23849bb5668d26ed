"""Any text, made to stand in one log line.

What clients send ends up in logs: line breaks that would forge a line, escape sequences that
would talk to a terminal, bytes that are no UTF-8. All of it comes out as visible ASCII.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii
from time import gmtime, strftime
from typing import Final, Literal

LogFormat = Literal["json", "text"]
"""How every line of the output is written."""

quote: Final = encode_basestring_ascii
"""A JSON string in ASCII; it may hold lone surrogates, see `without_surrogates`."""

is_word: Final = re.compile(r"[!#-\[\]-~]+").fullmatch
"""Whether a text is visible ASCII without spaces, quotes and backslashes; not if empty."""

_is_half: Final = re.compile("[\ud800-\udbff]").search


def without_surrogates(text: str) -> str:
    r"""The text with lone surrogates as the visible text of their code.

    They stand for bytes that are no UTF-8. JSON has a form for them, `"\udcff"`, but many
    readers refuse the whole line for it; so it becomes `"\\udcff"`.
    """
    if _is_half(text):
        # Two halves make a whole.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_string(text: str) -> str:
    """Any text as a JSON string that every reader takes."""
    return quote(text if text.isascii() else without_surrogates(text))


def word(text: str) -> str:
    """A value in a text line: as it is where it is a plain word, a JSON string otherwise."""
    return text if is_word(text) else json_string(text)


def message(text: str) -> str:
    """Prose in a text line: spaces and quotes stay, whatever cannot be seen is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else quote(char)[1:-1] for char in text)


class Timestamp:
    """Times as ISO 8601 in UTC with milliseconds; the text of a second is made once."""

    __slots__ = ("_millisecond", "_second", "_second_text", "_text")

    def __init__(self) -> None:
        self._second = self._millisecond = -1
        self._second_text = self._text = ""

    def __call__(self, wall_us: int) -> str:
        """The time `wall_us`, in microseconds since 1970: `2026-05-04T03:02:01.123Z`."""
        millisecond = wall_us // 1000
        if millisecond != self._millisecond:
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._second_text = strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second))
                self._second = second
            self._text = f"{self._second_text}{rest:03d}Z"
            self._millisecond = millisecond
        return self._text
