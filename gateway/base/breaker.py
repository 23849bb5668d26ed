"""A circuit breaker: stop calls to a service that fails, and probe it from time to time.

Pure: the time is an argument. Used for stores and for upstreams. Its states and transitions::

    state      success      failure                        time
    CLOSED     count = 0    count += 1; at the limit OPEN  -
    OPEN       (ignored)    (ignored)                      when the open time is over HALF_OPEN
    HALF_OPEN  CLOSED       OPEN, for twice as long        if the probe never reports,
                                                           another probe after the open time

Results that arrive while the breaker is open belong to calls from before it opened, and are
ignored. In HALF_OPEN exactly one call is allowed: the probe.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

MAX_DOUBLINGS: Final = 6
"""Without a cap, the open time grows to at most 64 times its first length."""


class BreakerState(Enum):
    """Whether calls are allowed."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Decides whether a call may be made, based on the outcomes of the last ones.

    Args:
        failures: consecutive failures that open the breaker.
        open_us: microseconds it stays open the first time. Doubled each time the probe
            fails, without jitter: do not share one `Breaker` between processes.
        max_open_us: the longest it stays open; by default 64 times `open_us`.

    Raises:
        ValueError: an argument is less than 1, or the cap is below `open_us`.
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
        """The state as of the last method call: the passing of time alone does not change it."""
        return self._state

    def allow(self, now_us: int) -> bool:
        """Return whether a call may be made now; if so, report its outcome afterwards.

        Args:
            now_us: the current time, from a clock that does not run backwards.
        """
        if self._state is BreakerState.CLOSED:
            return True
        if now_us < self._until_us:
            return False
        # The open time is over, or the probe has not reported for that long.
        self._state = BreakerState.HALF_OPEN
        self._until_us = now_us + self._open_us
        return True

    def success(self, now_us: int) -> None:
        """Record that a call succeeded."""
        if self._state is BreakerState.OPEN:
            return
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._open_us = self._base_us

    def failure(self, now_us: int) -> None:
        """Record that a call failed."""
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
