"""What servers may read as the value of one parameter of a query.

A client chooses how many parameters there are and how they are spelled, so there is no step in
Python for each: escapes are undone in the whole query, and values found in it by patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Final

from gateway.routing.escapes import ESCAPED, as_text, unescape_parameters

_SEPARATORS: Final = b"&;="
_ESCAPED_SEPARATORS: Final = {code: ESCAPED + code for code in _SEPARATORS}

_FOLDED: Final = "_. ["
"""What PHP takes for `_` in names of parameters."""

_CASELESS: Final = {"i": "iI\u0130\u0131", "k": "kK\u212a", "s": "sS\u017f"}
"""Letters of ASCII that are the same as others without regard to case."""


def compile_parameter(name: str) -> Callable[[str], list[str] | None]:
    """What finds the values of a parameter: one or none, or None if servers differ in them."""
    # Then `=` and a value, or nothing, to the end of the parameter.
    rest = "(?:=([^&]*))?(?![^&])"
    find_exact = re.compile(f"&{_spelled(name)}{rest}").findall
    # With what PHP, Rack and others take for parts of an array of this name.
    folded = "".join(map(_folded, name))
    find_alike = re.compile(rf"& *{folded}(?:[\[\0][^&=]*)?{rest}").findall

    def read(query: str) -> list[str] | None:
        text = "&" + unescape_parameters(query, _SEPARATORS)
        exact = set(find_exact(text))
        alike = set(find_alike(text))
        if ";" in text:
            # What separates parameters, too, for some (HTML 4.01, appendix B.2.2).
            alike.update(find_alike(text.replace(";", "&")))
        if len(exact) > 1 or alike - (exact or {""}):
            return None
        return [as_text(value) for value in exact]

    return read


def _spelled(text: str) -> str:
    """A pattern of the text as `unescape_parameters` makes it."""
    data = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return re.escape(data.translate(_ESCAPED_SEPARATORS))


def _folded(character: str) -> str:
    """A pattern of the characters that some server takes for this one."""
    if character in _FOLDED:
        return "[_. \\[]"
    return f"(?:{'|'.join(map(_spelled, _alike(character)))})"


def _alike(character: str) -> set[str]:
    """The characters that are the same as this one without regard to case."""
    if character.isascii():
        lower = character.lower()
        return set(_CASELESS.get(lower, lower + lower.upper()))
    is_same = re.compile(re.escape(character), re.IGNORECASE).findall
    return {character, *is_same(_all_characters())}


@cache
def _all_characters() -> str:
    return "".join(map(chr, chain(range(0xD800), range(0xE000, 0x110000))))
