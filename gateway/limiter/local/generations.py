"""A bounded dictionary that forgets entries not used for a while, at no cost per entry."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Generations(Generic[K, V]):
    """Two dictionaries: used entries move to the young one, and the old one is dropped whole.

    Args:
        capacity: how many entries each generation may have.
        age_us: see below.

    Attributes:
        age_us: an entry that is not used for this long may be forgotten; one that is used more
            often is kept, as long as there is room.
    """

    __slots__ = ("_capacity", "_old", "_turns_us", "_young", "age_us")

    def __init__(self, capacity: int, age_us: int) -> None:
        self._capacity = capacity
        self.age_us = age_us
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._turns_us = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: K, now_us: int) -> V | None:
        """Return the entry and mark it as used; None if there is none."""
        if now_us >= self._turns_us:
            self._turn(now_us)
        found = self._young.get(key)
        if found is None and key in self._old:
            found = self._old.pop(key)
            self.put(key, found, now_us)
        return found

    def put(self, key: K, value: V, now_us: int) -> None:
        """Keep an entry; if there is no room, drop the older generation."""
        if len(self._young) >= self._capacity:
            self._turn(now_us)
        self._young[key] = value

    def _turn(self, now_us: int) -> None:
        is_all_stale = now_us >= self._turns_us + self.age_us
        self._old = {} if is_all_stale else self._young
        self._young = {}
        self._turns_us = now_us + self.age_us
