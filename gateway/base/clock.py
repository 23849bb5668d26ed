"""Clocks.

Decisions take the time only from here: algorithms and stores receive a clock, so that tests can
move time by hand instead of sleeping until a limit refills.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

US: Final = 1_000_000
"""Microseconds in a second."""


Clock = Callable[[], int]
"""A function that returns the current time in whole microseconds, from an origin of its own."""


def monotonic_us() -> int:
    """Microseconds that never run backwards, for state that stays inside one process."""
    return time.monotonic_ns() // 1000


monotonic_ns: Final = time.monotonic_ns
"""The same in nanoseconds. It is the function itself, because each request calls it several times.
"""


def wall_us() -> int:
    """Microseconds since 1970 (UTC), for times that other machines or people read."""
    return time.time_ns() // 1000


class ManualClock:
    """A clock that tests move by hand, in this repository and in yours.

    >>> clock = ManualClock(5)
    >>> clock.advance(seconds=2)
    >>> clock()
    2000005
    """

    __slots__ = ("now_us",)

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        """Return the time as it was last set."""
        return self.now_us

    def advance(self, *, us: int = 0, seconds: float = 0) -> None:
        """Move time forward; a negative amount moves it back."""
        self.now_us += us + round(seconds * 1_000_000)


def pause() -> None:
    """Let other threads have their turn, which they otherwise get every few milliseconds."""
    time.sleep(0)
