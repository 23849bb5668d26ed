"""Detects processes of the gateway that hang; pure.

Each child of the supervisor sends beats from its event loop. A child that has sent
none for the watchdog's time hangs, unless the machine is too busy to run it: then it has hardly
used any CPU time since, and gets more time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.base.clock import US

BEAT_S: Final = 0.3
"""How often a healthy child sends a beat; one may be late, even with a watchdog of one second."""
START_US: Final = 60 * US
"""How long a new child may take to send its first beat."""
STARVED: Final = 6
"""By how many times the watchdog's time is extended for a child that is runnable but not run."""
SPINNING_US: Final = US
"""A child that used this much CPU time without a beat is not starved."""
_WAITS_FOR_THE_MACHINE: Final = frozenset("RD")
"""States of a runnable process: waiting for a CPU (R), or for a disk (D)."""


class Sample(NamedTuple):
    """The state of a process, according to the system.

    Attributes:
        state: a letter, as in `proc(5)`.
        cpu_us: CPU time that it has used.
    """

    state: str
    cpu_us: int


class Watchdog:
    """Watches one child.

    Args:
        limit_us: how long it may send no beat.
        now_us: the current time, just after the start.
    """

    def __init__(self, limit_us: int, now_us: int) -> None:
        self._limit_us = limit_us
        self._heard_us = now_us
        self._allowed_us = max(START_US, limit_us)
        self._first: Sample | None = None

    def beat(self, now_us: int) -> None:
        """Record that the child is healthy, or that silence up to now does not count."""
        self._heard_us = now_us
        self._allowed_us = self._limit_us
        self._first = None

    def silent_us(self, now_us: int) -> int:
        """Return how long it has sent nothing."""
        return now_us - self._heard_us

    def next_us(self) -> int:
        """Return when to check it next if it sends nothing."""
        allowed_us = self._allowed_us
        if self._first is None:
            allowed_us //= 2
        return self._heard_us + allowed_us

    def hangs(self, now_us: int, sample: Sample | None) -> bool:
        """Return whether it hangs; call this at `next_us`.

        Args:
            now_us: the current time.
            sample: the current state of its process; None if unknown.
        """
        silent_us = self.silent_us(now_us)
        if self._first is None:
            self._first = sample or Sample("", 0)
        if silent_us < self._allowed_us:
            return False
        if sample is None or sample.state not in _WAITS_FOR_THE_MACHINE:
            return True
        is_starved = sample.cpu_us - self._first.cpu_us < SPINNING_US
        if is_starved and silent_us < STARVED * self._limit_us:
            # Check again later.
            self._allowed_us = silent_us + self._limit_us // 2
            return False
        return True
