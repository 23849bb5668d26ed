"""Where time comes from.

Nothing else in the package reads a clock for a decision: algorithms and stores are given
one, so that tests move time by hand and never sleep to see a limit refill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

US: Final = 1_000_000
"""Microseconds of a second."""


Clock = Callable[[], int]
"""A function that returns the present in whole microseconds, from an origin of its own."""


def monotonic_us() -> int:
    """Microseconds that never run backwards, for everything kept inside one process."""
    return time.monotonic_ns() // 1000


monotonic_ns: Final = time.monotonic_ns
"""The same in nanoseconds; the function itself, since each request asks it several times."""


def wall_us() -> int:
    """Microseconds since 1970 (UTC), for what other machines or people will read."""
    return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told to; for tests, ours and anyone's.

    >>> clock = ManualClock(5)
    >>> clock.advance(seconds=2)
    >>> clock()
    2000005
    """

    __slots__ = ("now_us",)

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        """The present, as it was last set."""
        return self.now_us

    def advance(self, *, us: int = 0, seconds: float = 0) -> None:
        """Move time forward; a negative amount moves it back."""
        self.now_us += us + round(seconds * 1_000_000)
