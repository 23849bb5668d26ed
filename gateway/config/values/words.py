"""Words shared by several explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_KINDS: Final = {
    "query": "query parameter",
    "path": "path parameter",
    "jwt": "claim",
    "json": "JSON field",
    "form": "form field",
}


_PLAIN: Final = {"ip": "client address", "asn": "autonomous system"}


def key_word(word: str) -> str:
    """Return a canonical key word, such as `header:x-user`, in words."""
    kind, _, name = word.partition(":")
    if kind == "client_cert":
        return f"client certificate ({name})"
    if name:
        return f"{_KINDS.get(kind, kind)} {name}"
    return _PLAIN.get(word, word)


def join(words: Sequence[str], conjunction: str = "and") -> str:
    """Return `a, b and c`; empty for none."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def number(count: int) -> str:
    """Return a number with commas between its thousands."""
    return f"{count:,}"
