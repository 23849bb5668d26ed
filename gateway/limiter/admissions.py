"""Admissions that the store does not know yet, kept by key until they are reported.

Both ways of deciding without the store use this: the fallback while the store is unavailable, by
server of the store, and eventual policies between two reports, by interval.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from gateway.limits.rate import Limit

MAX_KEYS: Final = 200_000
"""The most keys of one group to remember; beyond that, the oldest are forgotten."""

Key = tuple[str, str]
"""The scope of a limit, and the identity that is counted."""


class UnreportedKey:
    """The unreported admissions of one key.

    Attributes:
        limit: the limit, as the store counts it.
        share: the same limit, as this gateway counts it.
        key: the identity.
        cost: the total cost of what was admitted.
    """

    __slots__ = ("cost", "key", "limit", "share")

    def __init__(self, limit: Limit, share: Limit, key: str) -> None:
        self.limit = limit
        self.share = share
        self.key = key
        self.cost = 0


class Unreported:
    """Unreported keys, in order of arrival."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        # Not a `dict`: finding its first entry scans all entries that were removed before it.
        self._keys: OrderedDict[Key, UnreportedKey] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: Key) -> bool:
        return name in self._keys

    @property
    def first(self) -> UnreportedKey | None:
        """The key to report next."""
        return next(iter(self._keys.values()), None)

    def note(self, limit: Limit, share: Limit, key: str, cost: int) -> None:
        """Record an admission."""
        name = (limit.scope, key)
        noted = self._keys.get(name)
        if noted is None:
            if len(self._keys) >= MAX_KEYS:
                self._keys.popitem(last=False)
            noted = self._keys[name] = UnreportedKey(limit, share, key)
        noted.cost += cost

    def undo(self, name: Key, cost: int) -> int:
        """Take back the cost of an admission; return how much of it was still unreported."""
        noted = self._keys.get(name)
        if noted is None:
            return 0
        undone = min(noted.cost, cost)
        noted.cost -= undone
        return undone

    def cost_of(self, name: Key) -> int:
        """Return the unreported cost of a key."""
        noted = self._keys.get(name)
        return 0 if noted is None else noted.cost

    def pop(self, name: Key) -> UnreportedKey | None:
        """Remove and return a key, to report it."""
        return self._keys.pop(name, None)

    def take(self) -> Iterator[UnreportedKey]:
        """Remove and yield keys to report, oldest first."""
        while self._keys:
            yield self._keys.popitem(last=False)[1]

    def take_over(self, others: Unreported) -> None:
        """Move the keys of `others` behind the ones already here."""
        for name, noted in others._keys.items():
            before = self._keys.setdefault(name, noted)
            if before is not noted:
                before.cost += noted.cost
