"""The usage of keys that were forgotten, in 16 bytes each.

A key is identified by a part of its hash, in a set of eight that another part selects, and its
state is condensed (`limits.condensed`). If a set is full of states that still matter, the smallest
is dropped, and becomes the least that is from then on held against every key of the set that is not
in it. So a forgotten key never passes more than its limit; some may pass less, and are counted as
such.

Two keys are confused with a probability below one in a hundred million.

Python's string hash has a new key in each process, so clients cannot choose keys that collide.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.limits.condensed import MOST, Condensed, Condensing
from gateway.limits.rate import Limit

WAYS: Final = 8
"""Keys of one set."""
SETS_PER_PAGE: Final = 64
"""Sets that are allocated together: memory grows by some 9 kB at a time."""
_MOST_USED: Final = 2**32 - 1
_NOTHING: Final[Condensed] = (0, 0)


class _SetPage:
    """Some sets: a part of a hash, a time and a number per place, and the least of each set."""

    __slots__ = ("at", "least_at", "least_used", "names", "used")

    def __init__(self) -> None:
        places = SETS_PER_PAGE * WAYS
        self.names = array("I", bytes(4 * places))
        self.at = array("q", bytes(8 * places))
        self.used = array("I", bytes(4 * places))
        self.least_at = array("q", bytes(8 * SETS_PER_PAGE))
        self.least_used = array("I", bytes(4 * SETS_PER_PAGE))


class RememberedState(NamedTuple):
    """The usage held against a key.

    Attributes:
        condensed: the usage held against it.
        is_own: whether it is the usage of this key; otherwise, of other keys of its set.
    """

    condensed: Condensed
    is_own: bool


class Forgotten:
    """The keys of one limit that had no room.

    Args:
        keys: about how many there is room for.
        condensing: condenses states.
        limit: returns the current limit, by which states expire.
    """

    __slots__ = ("_condensing", "_hand", "_limit", "_pages", "_sets")

    def __init__(self, keys: int, condensing: Condensing, limit: Callable[[], Limit]) -> None:
        pages = -(-keys // (WAYS * SETS_PER_PAGE))
        self._pages: list[_SetPage | None] = [None] * pages
        self._sets = pages * SETS_PER_PAGE
        self._condensing = condensing
        self._limit = limit
        self._hand = 0

    @property
    def room(self) -> int:
        """For how many keys memory is allocated."""
        return sum(page is not None for page in self._pages) * SETS_PER_PAGE * WAYS

    def recall(self, key: str, now_us: int) -> RememberedState | None:
        """Return the usage held against a key that is not counted elsewhere; None if none is."""
        name, page, first = self._find(key)
        if page is None:
            return None
        place = _place_of(page, name, first)
        if place is not None:
            condensed = page.at[place], page.used[place]
            return RememberedState(condensed, True) if self._matters(condensed, now_us) else None
        number = first // WAYS
        condensed = page.least_at[number], page.least_used[number]
        return RememberedState(condensed, False) if self._matters(condensed, now_us) else None

    def put(self, key: str, condensed: Condensed, now_us: int) -> None:
        """Store the usage of a key, replacing an earlier one."""
        name, page, first = self._find(key)
        if page is None:
            page = self._make_page(key)
        at, used = min(condensed[0], MOST), min(condensed[1], _MOST_USED)
        place = _place_of(page, name, first)
        if place is None:
            place = self._free_place(page, first, (at, used), now_us)
        if place is None:
            self._raise_least(page, first // WAYS, (at, used), now_us)
            return
        page.names[place], page.at[place], page.used[place] = name, at, used

    def correct(self, key: str, condensed: Condensed) -> None:
        """Replace a recalled state by the one after a refusal: the clock may have gone back."""
        name, page, first = self._find(key)
        if page is None:
            return
        at, used = min(condensed[0], MOST), min(condensed[1], _MOST_USED)
        place = _place_of(page, name, first)
        number = first // WAYS
        if place is not None:
            page.at[place], page.used[place] = at, used
        elif page.least_used[number]:
            # The usage of other keys stays, even if this key has another limit.
            page.least_at[number] = min(page.least_at[number], at)

    def drop(self, key: str) -> None:
        """Drop a key, since it is counted elsewhere again."""
        name, page, first = self._find(key)
        if page is None:
            return
        place = _place_of(page, name, first)
        if place is not None:
            page.names[place], page.at[place], page.used[place] = 0, 0, 0

    def sweep(self, now_us: int) -> None:
        """Free the memory of one page, if nothing in it matters any more."""
        self._hand = (self._hand + 1) % len(self._pages)
        page = self._pages[self._hand]
        if page is None:
            return
        held = (*zip(page.at, page.used, strict=True),)
        least = zip(page.least_at, page.least_used, strict=True)
        if not any(self._matters(one, now_us) for one in (*held, *least)):
            self._pages[self._hand] = None

    def _find(self, key: str) -> tuple[int, _SetPage | None, int]:
        """Return the key's name, its page if there is one, and the first place of its set in it."""
        number = hash(key)
        chosen = number % self._sets
        return (
            # Never the name of an empty place.
            number >> 32 & _MOST_USED or 1,
            self._pages[chosen // SETS_PER_PAGE],
            chosen % SETS_PER_PAGE * WAYS,
        )

    def _make_page(self, key: str) -> _SetPage:
        page = self._pages[hash(key) % self._sets // SETS_PER_PAGE] = _SetPage()
        return page

    def _matters(self, condensed: Condensed, now_us: int) -> bool:
        if condensed == _NOTHING:
            return False
        return self._condensing.expires_us(condensed, self._limit()) > now_us

    def _free_place(self, page: _SetPage, first: int, coming: Condensed, now_us: int) -> int | None:
        """Return a place for a new key of a set; None if it used less than every key there."""
        empty = _place_of(page, 0, first)
        if empty is not None:
            return empty
        held = list(
            zip(page.at[first : first + WAYS], page.used[first : first + WAYS], strict=True)
        )
        for offset, condensed in enumerate(held):
            if not self._matters(condensed, now_us):
                return first + offset
        smallest = min(held, key=_weight)
        if _weight(coming) <= _weight(smallest):
            return None
        self._raise_least(page, first // WAYS, smallest, now_us)
        return first + held.index(smallest)

    def _raise_least(self, page: _SetPage, number: int, gone: Condensed, now_us: int) -> None:
        """Hold the usage of a dropped key against all keys of this set that are not in it."""
        at, used = page.least_at[number], page.least_used[number]
        if not self._matters((at, used), now_us):
            at, used = 0, 0
        page.least_at[number] = max(at, gone[0])
        page.least_used[number] = max(used, gone[1])


def _place_of(page: _SetPage, name: int, first: int) -> int | None:
    names = page.names[first : first + WAYS]
    return first + names.index(name) if name in names else None


def _weight(condensed: Condensed) -> tuple[int, int]:
    return condensed[1], condensed[0]
