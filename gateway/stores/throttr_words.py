"""What Throttr 5 is told, and what it answers: bytes and numbers, nothing else.

Protocol 5.0.0, as its servers 4.0.12 to 4.0.17 speak it; numbers are little-endian and of one
size, which the server was built with and nobody says on the wire. Of the six types of requests
a store needs those about counters: INSERT makes one and leaves one that is there alone, UPDATE
changes what is left, QUERY tells it, PURGE forgets it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SIZES: Final = (8, 16, 32, 64)
"""Bits of a number; a server is built for one of them, 16 unless somebody chose."""

MAX_KEY: Final = 255
"""Bytes of a key."""

OK: Final = 1
REFUSED: Final = 0
STATUSES: Final = (REFUSED, OK)

INSERT: Final = 1
QUERY: Final = 2
UPDATE: Final = 3
PURGE: Final = 4

QUOTA: Final = 0
"""The attribute that `UPDATE` changes."""

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
            b"\x01",
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


def update_quota(size: int, change: int, value: int, key: bytes) -> bytes:
    """Change what is left; the answer is a status.

    Args:
        size: bits of a number.
        change: `PATCH`, `INCREASE` or `DECREASE`; the last is refused if less is left.
        value: by how much, or to what.
        key: of which counter.
    """
    head = bytes((UPDATE, QUOTA, change)) + value.to_bytes(size // 8, "little")
    return head + bytes((len(key),)) + key


def purge(key: bytes) -> bytes:
    """Forget a counter; the answer is a status."""
    return bytes((PURGE, len(key))) + key


def read_counter(size: int, data: bytes, at: int) -> Counter:
    """What follows the status of a `QUERY`, `counter_length` bytes.

    Raises:
        ValueError: the time has no known unit.
    """
    width = size // 8
    unit = data[at + width]
    if unit not in UNITS_NS:
        raise ValueError(f"there is no unit of time {unit}")
    quota = int.from_bytes(data[at : at + width], "little")
    value = int.from_bytes(data[at + width + 1 : at + 2 * width + 1], "little")
    return Counter(quota, Ttl(unit, value))


def counter_length(size: int) -> int:
    """Bytes of a `Counter`, without the status before it."""
    return 2 * (size // 8) + 1
