"""Makes any text safe for one log line.

Text from clients ends up in logs: line breaks that would forge a line, escape sequences that would
control a terminal, bytes that are not UTF-8. All of it is written as visible ASCII.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii
from time import gmtime, strftime
from typing import Final, Literal

LogFormat = Literal["json", "text"]
"""The encoding of every line of the output."""

quote: Final = encode_basestring_ascii
"""Return a JSON string in ASCII; it may contain lone surrogates, see `without_surrogates`."""

is_word: Final = re.compile(r"[!#-\[\]-~]+").fullmatch
"""Return whether a text is visible ASCII without spaces, quotes and backslashes; not if empty."""

_is_half: Final = re.compile(r"[\ud800-\udbff]").search


def without_surrogates(text: str) -> str:
    r"""Return the text with lone surrogates written as visible escapes.

    They represent bytes that are not UTF-8. JSON has a form for them, `"\udcff"`, but many parsers
    then reject the whole line; so it becomes `"\\udcff"`.
    """
    if _is_half(text):
        # A surrogate pair is a character.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_string(text: str) -> str:
    """Return any text as a JSON string that every parser accepts."""
    return quote(text if text.isascii() else without_surrogates(text))


def word(text: str) -> str:
    """Return a value for a text line: a plain word unchanged, others as a JSON string."""
    return text if is_word(text) else json_string(text)


def message(text: str) -> str:
    """Return prose for a text line: spaces and quotes stay, invisible characters are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else quote(char)[1:-1] for char in text)


_DECIMALS: Final = tuple(f"{number:03d}" for number in range(1000))
"""Three decimals, by their number: a table is several times as fast as formatting."""


def milliseconds(us: int) -> str:
    """Return microseconds as milliseconds with three decimals: `12.345`."""
    return f"{us // 1000}.{_DECIMALS[us % 1000]}"


class Timestamp:
    """Formats times as ISO 8601 in UTC with milliseconds; caches the text of a second."""

    __slots__ = ("_millisecond", "_second", "_second_text", "_text")

    def __init__(self) -> None:
        self._second = self._millisecond = -1
        self._second_text = self._text = ""

    def text(self, wall_us: int) -> str:
        """Return the time `wall_us`, in microseconds since 1970: `2026-05-04T03:02:01.123Z`."""
        millisecond = wall_us // 1000
        if millisecond != self._millisecond:
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._second_text = strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second))
                self._second = second
            self._text = f"{self._second_text}{_DECIMALS[rest]}Z"
            self._millisecond = millisecond
        return self._text
