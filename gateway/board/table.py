"""Numbers by name in memory of fixed size, written by one process and read by others; pure.

Names are kept as marks of 64 bits. Each has two buckets where it may be, and is put into the one
with more room, so that nearly all of the memory can be used before a name finds none. Nothing moves
once it is there: others may be reading. They read whole words, so they see a number as it was
before a change or as it is after it; only if one name takes the entry of another at that moment may
they see the number of the other, once.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

BUCKET: Final = 8
"""Entries in a bucket."""
ENTRIES: Final = 1 << 16
"""How many names a table has room for: 1 MiB of memory, which is used only as far as needed."""
WORDS: Final = 2 * ENTRIES
"""The size of a table, in words of 64 bits."""


class Spot(NamedTuple):
    """Where the number of a name may be.

    Attributes:
        mark: stands for the name; never 0.
        first: the first entry of one bucket.
        second: the first entry of the other.
    """

    mark: int
    first: int
    second: int


def spot_of(name: str, secret: bytes, entries: int = ENTRIES) -> Spot:
    """Return where the number of a name may be.

    Args:
        name: the name; clients may choose it.
        secret: makes the buckets unpredictable, or clients could fill one of them.
        entries: how many there are.
    """
    data = name.encode("utf-8", "surrogateescape")
    digest = blake2b(data, digest_size=16, key=secret).digest()
    buckets = entries // BUCKET
    return Spot(
        int.from_bytes(digest[:8], "big") or 1,
        int.from_bytes(digest[8:12], "big") % buckets * BUCKET,
        int.from_bytes(digest[12:], "big") % buckets * BUCKET,
    )


class BoardTable:
    """The numbers of one process.

    Args:
        words: the memory: an even number of words, half of them for marks.
    """

    __slots__ = ("_marks", "_numbers")

    def __init__(self, words: memoryview) -> None:
        entries = len(words) // 2
        self._marks = words[:entries]
        self._numbers = words[entries:]

    def read(self, spot: Spot) -> int:
        """Return the number of a name; 0 if it has none."""
        for begin in (spot.first, spot.second):
            marks = self._marks[begin : begin + BUCKET].tolist()
            if spot.mark in marks:
                return int(self._numbers[begin + marks.index(spot.mark)])
        return 0

    def write(self, spot: Spot, number: int) -> bool:
        """Set the number of a name, at least 0; return False if there is no room for it.

        Only the process that the table belongs to may call this.
        """
        free, most = -1, 0
        for begin in (spot.first, spot.second):
            marks = self._marks[begin : begin + BUCKET].tolist()
            if spot.mark in marks:
                self._put(begin + marks.index(spot.mark), spot.mark, number)
                return True
            room = marks.count(0)
            if room > most:
                free, most = begin + marks.index(0), room
        if number and not most:
            return False
        if number:
            self._put(free, spot.mark, number)
        return True

    def _put(self, entry: int, mark: int, number: int) -> None:
        # The number first: a mark that is seen belongs to a number that is.
        self._numbers[entry] = number
        self._marks[entry] = mark if number else 0
