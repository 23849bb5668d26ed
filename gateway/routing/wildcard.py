"""Values with `*` for any text: `paid_*`, `*@example.com`. After a backslash, `*` is literal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

ANY: Final = "*"
"""Any value, also an empty one."""

_split: Final = re.compile(r"(?<!\\)\*").split


def _literals(text: str) -> list[str]:
    """Return the texts between the wildcards."""
    return [part.replace("\\*", "*") for part in _split(text)]


def is_wildcard(text: str) -> bool:
    """Return whether a value stands for several."""
    return len(_split(text)) > 1


def compile_value(text: str) -> Callable[[str], bool]:
    """Return a function that tells whether a value is meant by the text."""
    first, *others = _literals(text)
    if not others:
        return first.__eq__
    *middle, last = others

    # Each part is looked for once, from left to right: no value makes this slow.
    def fits(value: str) -> bool:
        at, end = len(first), len(value) - len(last)
        if end < at or not (value.startswith(first) and value.endswith(last)):
            return False
        for part in middle:
            found = value.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return fits


def covers(general: str, special: str) -> bool:
    """Return whether all values that `special` stands for are certainly meant by `general`."""
    if general in (special, ANY):
        return True
    return not is_wildcard(special) and compile_value(general)(_literals(special)[0])
