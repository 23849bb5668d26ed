"""A circuit breaker: stop asking who does not answer, and look again from time to time.

Pure data that is given the time, for stores and for upstreams alike. Its states and what
moves it between them::

    state      success      failure                        time
    CLOSED     count = 0    count += 1; at the limit OPEN  -
    OPEN       (ignored)    (ignored)                      when the open time is over HALF_OPEN
    HALF_OPEN  CLOSED       OPEN, for twice as long        if the probe is never heard of,
                                                           another one after the open time

Answers that come while it is open belong to calls from before it opened; they say nothing
new. In HALF_OPEN exactly one call, the probe, is let through.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

MAX_DOUBLINGS: Final = 6
"""The open time grows to 64 times its first length at most, unless a cap is given."""


class BreakerState(Enum):
    """Whether calls are let through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Decides whether a call may be made, from how the last ones went.

    Args:
        failures: how many failures in a row open it.
        open_us: microseconds that it stays open the first time. Doubled every time the probe
            fails, without jitter: whoever shares a target should not share a `Breaker`.
        max_open_us: the longest it stays open; by default 64 times `open_us`.

    Raises:
        ValueError: one of them is less than 1, or the cap is below `open_us`.
    """

    __slots__ = ("_base_us", "_failures", "_limit", "_max_us", "_open_us", "_state", "_until_us")

    def __init__(self, failures: int, open_us: int, max_open_us: int | None = None) -> None:
        cap = open_us << MAX_DOUBLINGS if max_open_us is None else max_open_us
        if failures < 1 or open_us < 1 or cap < open_us:
            raise ValueError("a breaker needs failures >= 1 and 1 <= open_us <= max_open_us")
        self._limit = failures
        self._base_us = open_us
        self._max_us = cap
        self._open_us = open_us
        self._failures = 0
        self._until_us = 0
        self._state = BreakerState.CLOSED

    def __repr__(self) -> str:
        return f"<Breaker {self._state.value}, {self._failures} of {self._limit} failures>"

    @property
    def state(self) -> BreakerState:
        """The state as of the last call of a method: time alone does not change it."""
        return self._state

    def allow(self, now_us: int) -> bool:
        """Whether a call may be made now; if so, its outcome is to be reported.

        Args:
            now_us: the present, from a clock that does not run backwards.
        """
        if self._state is BreakerState.CLOSED:
            return True
        if now_us < self._until_us:
            return False
        # The open time is over; or the probe was never heard of for as long.
        self._state = BreakerState.HALF_OPEN
        self._until_us = now_us + self._open_us
        return True

    def success(self, now_us: int) -> None:
        """A call was answered."""
        if self._state is BreakerState.OPEN:
            return
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._open_us = self._base_us

    def failure(self, now_us: int) -> None:
        """A call failed."""
        if self._state is BreakerState.OPEN:
            return
        if self._state is BreakerState.HALF_OPEN:
            self._open_us = min(self._open_us * 2, self._max_us)
        else:
            self._failures += 1
            if self._failures < self._limit:
                return
        self._state = BreakerState.OPEN
        self._until_us = now_us + self._open_us
