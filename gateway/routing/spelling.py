"""Names of header fields as applications may read them.

Behind CGI, WSGI and Rack `X_A` is the same as `X-A`, behind lighttpd `X.A` and the like as well. A
field that somebody looks for by its name must not reach an application in another spelling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

Reserved = Mapping[bytes, frozenset[bytes]]
"""Names of fields, as `reserved_name` has them, with the spellings, in lower case, that clients
may send; there may be none."""
NOTHING_RESERVED: Final[Reserved] = MappingProxyType({})

KEY_WORD: Final = "header:"
"""What a key word begins with that names a header field."""

_FOLD: Final = bytes(
    byte if chr(byte).isalnum() else ord("-") for byte in bytes(range(128)).lower()
) + bytes(range(128, 256))


def reserved_name(name: bytes) -> bytes:
    """The form in which names are compared."""
    return name.translate(_FOLD)


def is_misspelled(name: bytes, reserved: Reserved) -> bool:
    """Whether clients may not send a field of this name."""
    spellings = reserved.get(reserved_name(name))
    return spellings is not None and name.lower() not in spellings


def spellings_of(names: Iterable[str]) -> dict[bytes, frozenset[bytes]]:
    """Names that are reserved but for the spellings that are given."""
    found: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for name in names:
        lower = name.lower().encode("ascii")
        found[reserved_name(lower)].add(lower)
    return {name: frozenset(spellings) for name, spellings in found.items()}


def headers_of(words: Iterable[str]) -> Iterable[str]:
    """The names of the header fields among key words."""
    return [word.removeprefix(KEY_WORD) for word in words if word.startswith(KEY_WORD)]
