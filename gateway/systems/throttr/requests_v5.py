"""What Throttr 5 is told, and what it answers: bytes and numbers, nothing else.

Protocol 5.0.0, as its servers 4.0.12 to 4.0.16 speak it; numbers are little-endian and of one
size, which the server was built with and nobody says on the wire. Of the six types of requests
a store needs those about counters: INSERT makes one and leaves one that is there alone, UPDATE
changes what is left, QUERY tells it, PURGE forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SIZES: Final = (8, 16, 32, 64)
"""Bits of a number; a server is built for one of them."""

USUAL_SIZE: Final = 16
"""That of a server for which nobody chose another."""

MAX_KEY: Final = 255
"""Bytes of a key."""

OK: Final = 1
REFUSED: Final = 0

INSERT: Final = 1
QUERY: Final = 2
UPDATE: Final = 3
PURGE: Final = 4

QUOTA: Final = 0
TTL: Final = 1
"""What `UPDATE` changes: what is left, or for how long."""

PATCH: Final = 0
INCREASE: Final = 1
DECREASE: Final = 2

UNITS_NS: Final[dict[int, int]] = {
    1: 1,
    2: 1_000,
    3: 1_000_000,
    4: 1_000_000_000,
    5: 60_000_000_000,
    6: 3_600_000_000_000,
}
"""Nanoseconds of each unit of time, by its code."""


class Ttl(NamedTuple):
    """A time in one of the units.

    Attributes:
        unit: its code.
        value: how many.
    """

    unit: int
    value: int

    @property
    def us(self) -> int:
        """The time in microseconds, rounded down."""
        return self.value * UNITS_NS[self.unit] // 1_000

    @property
    def step_us(self) -> int:
        """One unit in microseconds, rounded up."""
        return -(-UNITS_NS[self.unit] // 1_000)


class Counter(NamedTuple):
    """A counter as `QUERY` tells it: what is left, and for how long.

    The time is rounded down: it is less than a unit more.
    """

    quota: int
    ttl: Ttl


Answer = int | Counter
"""A status, or what a `QUERY` tells; `REFUSED` if it has nothing to tell."""


class ThrottrRequest(NamedTuple):
    """What is asked, and whether it is a `QUERY`, whose answer is longer."""

    data: bytes
    is_query: bool = False


def largest(size: int) -> int:
    """The largest number of so many bits."""
    return (1 << size) - 1


def ttl_of(period_us: int, size: int) -> Ttl | None:
    """A period in the finest unit in which it is a whole number that fits; None if none does.

    No nanoseconds: microseconds are as fine as limits are.
    """
    for unit in range(2, len(UNITS_NS) + 1):
        value, rest = divmod(period_us * 1_000, UNITS_NS[unit])
        if not rest and value <= largest(size):
            return Ttl(unit, value)
    return None


def insert(size: int, quota: int, ttl: Ttl, key: bytes) -> bytes:
    """A counter, if there is none under the key; the answer is a status."""
    width = size // 8
    return b"".join(
        (
            bytes((INSERT,)),
            quota.to_bytes(width, "little"),
            bytes((ttl.unit,)),
            ttl.value.to_bytes(width, "little"),
            bytes((len(key),)),
            key,
        )
    )


def query(key: bytes) -> bytes:
    """How a counter stands; the answer is `REFUSED`, or `OK` and a `Counter`."""
    return bytes((QUERY, len(key))) + key


def update(size: int, attribute: int, change: int, value: int, key: bytes) -> bytes:
    """Change a counter; the answer is a status, `REFUSED` if there is none.

    Args:
        size: bits of a number.
        attribute: `QUOTA`, or `TTL` in the unit that the counter was made with.
        change: `PATCH`, `INCREASE` or `DECREASE`; the last is refused if less is left.
        value: to what, or by how much.
        key: of which counter.
    """
    head = bytes((UPDATE, attribute, change)) + value.to_bytes(size // 8, "little")
    return head + bytes((len(key),)) + key


def purge(key: bytes) -> bytes:
    """Forget a counter; the answer is a status."""
    return bytes((PURGE, len(key))) + key


class AnswerStream:
    """Answers out of a stream of bytes, in the order of asking.

    Args:
        size: bits of a number.
    """

    __slots__ = ("_data", "_length", "_width")

    def __init__(self, size: int) -> None:
        self._width = size // 8
        self._length = 2 + 2 * self._width
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """More has come."""
        self._data += data

    def read(self, is_query: Sequence[bool], answers: list[Answer]) -> bool:
        """Go on with the answers to some requests, as far as they are there.

        Args:
            is_query: for each request whether it is a `QUERY`.
            answers: those that were there before; the next ones are added.

        Returns:
            Whether all of them are there.

        Raises:
            ValueError: no Throttr server of this size answers so.
        """
        data, width, length = self._data, self._width, self._length
        at, end = 0, len(data)
        for query_here in is_query[len(answers) :]:
            if at == end:
                break
            status = data[at]
            if status > OK:
                raise ValueError(f"{status} is no status")
            if not query_here or not status:
                at += 1
                answers.append(status)
                continue
            if at + length > end:
                break
            unit = data[at + 1 + width]
            if unit not in UNITS_NS:
                raise ValueError(f"there is no unit of time {unit}")
            quota = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            value = int.from_bytes(data[at + 2 + width : at + length], "little")
            at += length
            answers.append(Counter(quota, Ttl(unit, value)))
        del data[:at]
        return len(answers) == len(is_query)
