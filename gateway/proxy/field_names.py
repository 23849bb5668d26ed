"""Header fields that are hidden from keys, routes and templates if a client sent them.

`gateway.wiring.field_names` finds them in a configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy


class Hidden(NamedTuple):
    """Header fields that are read by the configuration but ignored when clients send them.

    Attributes:
        from_strangers: those that only a trusted proxy may send, and those of `from_all`.
        from_all: those that no client may send.
    """

    from_strangers: tuple[str, ...] = ()
    from_all: tuple[str, ...] = ()


NOTHING_HIDDEN: Final = Hidden()


def without(headers: CIMultiDictProxy[str], names: Iterable[str]) -> CIMultiDictProxy[str]:
    """Return the fields without those of some names."""
    if not any(name in headers for name in names):
        return headers
    left = CIMultiDict(headers)
    for name in names:
        left.popall(name, None)
    return CIMultiDictProxy(left)
