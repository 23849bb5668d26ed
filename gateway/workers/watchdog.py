"""Whether a process of the gateway hangs; pure.

A child of the supervisor sends a beat each second from its event loop. One that has sent none for
the watchdog's time hangs, unless the machine is too busy to let it run: then it has hardly used
any CPU since, and is given more time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.base.clock import US

BEAT_S: Final = 1.0
"""How often a child that is well sends a beat."""
START_US: Final = 60 * US
"""How long a new child may take until its first beat."""
STARVED: Final = 6
"""How many times the watchdog's time a child gets that may run and is not let."""
SPINNING_US: Final = US
"""A child that used so much CPU without a beat is not starved."""
_WAITS_FOR_THE_MACHINE: Final = frozenset("RD")
"""States of a process that would run if it could: for a CPU (R), or for a disk (D)."""


class Sample(NamedTuple):
    """What the system says of a process.

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
        now_us: the present, when it has just been started.
    """

    def __init__(self, limit_us: int, now_us: int) -> None:
        self._limit_us = limit_us
        self._heard_us = now_us
        self._allowed_us = max(START_US, limit_us)
        self._first: Sample | None = None

    def beat(self, now_us: int) -> None:
        """The child is well; or what nobody could have seen is not held against it."""
        self._heard_us = now_us
        self._allowed_us = self._limit_us
        self._first = None

    def silent_us(self, now_us: int) -> int:
        """How long it has sent nothing."""
        return now_us - self._heard_us

    def next_us(self) -> int:
        """When to look at it next, if it sends nothing."""
        allowed_us = self._allowed_us
        if self._first is None:
            allowed_us //= 2
        return self._heard_us + allowed_us

    def hangs(self, now_us: int, sample: Sample | None) -> bool:
        """Whether it hangs; to be asked when `next_us` has come.

        Args:
            now_us: the present.
            sample: of its process now; None where the system does not say.
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
            # Looked at again in a while.
            self._allowed_us = silent_us + self._limit_us // 2
            return False
        return True
