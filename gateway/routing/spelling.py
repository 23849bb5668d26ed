"""Spellings of header field names that applications treat as equal.

Behind CGI, WSGI and Rack `X_A` equals `X-A`, behind lighttpd also `X.A` and the like. A field that
the gateway looks up by name must not reach an application in another spelling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

Reserved = Mapping[bytes, frozenset[bytes]]
"""Names of fields, as `reserved_name` returns them, with the spellings, in lower case, that clients
may send; there may be none.
"""
NOTHING_RESERVED: Final[Reserved] = MappingProxyType({})

KEY_WORD: Final = "header:"
"""The prefix of key words that name a header field."""

_FOLD: Final = bytes(
    byte if chr(byte).isalnum() else ord("-") for byte in bytes(range(128)).lower()
) + bytes(range(128, 256))


def reserved_name(name: bytes) -> bytes:
    """Return the form in which names are compared."""
    return name.translate(_FOLD)


def is_misspelled(name: bytes, reserved: Reserved) -> bool:
    """Return whether clients may not send a field of this name."""
    spellings = reserved.get(reserved_name(name))
    return spellings is not None and name.lower() not in spellings


def spellings_of(names: Iterable[str]) -> dict[bytes, frozenset[bytes]]:
    """Return names that are reserved except for the given spellings."""
    found: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for name in names:
        lower = name.lower().encode("ascii")
        found[reserved_name(lower)].add(lower)
    return {name: frozenset(spellings) for name, spellings in found.items()}


def headers_of(words: Iterable[str]) -> Iterable[str]:
    """Return the names of the header fields among key words."""
    return [word.removeprefix(KEY_WORD) for word in words if word.startswith(KEY_WORD)]
