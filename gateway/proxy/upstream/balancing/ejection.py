"""When failing requests leave a target out, how long, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ejection:
    """The rule of an upstream.

    Attributes:
        failures: failures in a row that eject a target.
        duration_us: microseconds of the first ejection; each that follows is twice as long.
        max_duration_us: the longest.
        max_parts: how many of the targets may be ejected at a time, in parts of `whole`.
        whole: what `max_parts` is a part of.
    """

    failures: int
    duration_us: int
    max_duration_us: int
    max_parts: int
    whole: int

    def length_us(self, earlier: int) -> int:
        """How long an ejection is after so many others."""
        # Beyond this many doublings any configured time is over the longest.
        return min(self.duration_us << min(earlier, 40), self.max_duration_us)

    def most(self, targets: int) -> int:
        """How many of so many targets may be ejected at a time: at least one, never all."""
        share = targets * self.max_parts // self.whole
        return min(max(1, share), targets - 1)
