"""Which header fields of clients mean something to a configuration, and whose may be sent.

What is counted and what the upstream sees must be the same. So a field that never reaches the
upstream from a client is none for keys, routes and templates either; and one that they look at
reaches it in no spelling that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy


class Hidden(NamedTuple):
    """Fields that are looked at and count for nothing.

    Attributes:
        from_strangers: those that only a trusted proxy may send, with
        from_all: those that nobody may send.
    """

    from_strangers: tuple[str, ...] = ()
    from_all: tuple[str, ...] = ()


NOTHING_HIDDEN: Final = Hidden()


def without(headers: CIMultiDictProxy[str], names: Iterable[str]) -> CIMultiDictProxy[str]:
    """The fields but for those of some names."""
    if not any(name in headers for name in names):
        return headers
    left = CIMultiDict(headers)
    for name in names:
        left.popall(name, None)
    return CIMultiDictProxy(left)
