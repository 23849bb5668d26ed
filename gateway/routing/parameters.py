"""The values that servers may read for one parameter of a query.

Clients choose how many parameters there are and how they are spelled, so there is no Python step
per parameter: escapes are decoded in the whole query, and patterns find the values.
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
"""Characters that PHP reads as `_` in names of parameters."""

_CASELESS: Final = {"i": "iI\u0130\u0131", "k": "kK\u212a", "s": "sS\u017f"}
"""ASCII letters that equal others if case is ignored."""


def compile_parameter(name: str) -> Callable[[str], list[str] | None]:
    """Returns the values of a parameter: one or none, or None if servers disagree."""
    # Then `=` and a value, or nothing, to the end of the parameter.
    rest = "(?:=([^&]*))?(?![^&])"
    find_exact = re.compile(f"&{_spelled(name)}{rest}").findall
    # Including what PHP, Rack and others treat as elements of an array of this name.
    folded = "".join(map(_folded, name))
    find_alike = re.compile(rf"& *{folded}(?:[\[\0][^&=]*)?{rest}").findall

    def read(query: str) -> list[str] | None:
        text = "&" + unescape_parameters(query, _SEPARATORS)
        exact = set(find_exact(text))
        alike = set(find_alike(text))
        if ";" in text:
            # Another separator of parameters, for some servers (HTML 4.01, appendix B.2.2).
            alike.update(find_alike(text.replace(";", "&")))
        if len(exact) > 1 or alike - (exact or {""}):
            return None
        return [as_text(value) for value in exact]

    return read


def _spelled(text: str) -> str:
    """Return a pattern of the text, in the form of `unescape_parameters`."""
    data = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return re.escape(data.translate(_ESCAPED_SEPARATORS))


def _folded(character: str) -> str:
    """Return a pattern of the characters that some server treats as this one."""
    if character in _FOLDED:
        return "[_. \\[]"
    return f"(?:{'|'.join(map(_spelled, _alike(character)))})"


def _alike(character: str) -> set[str]:
    """Return the characters that equal this one if case is ignored."""
    if character.isascii():
        lower = character.lower()
        return set(_CASELESS.get(lower, lower + lower.upper()))
    is_same = re.compile(re.escape(character), re.IGNORECASE).findall
    return {character, *is_same(_all_characters())}


@cache
def _all_characters() -> str:
    return "".join(map(chr, chain(range(0xD800), range(0xE000, 0x110000))))
