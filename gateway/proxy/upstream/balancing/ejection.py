"""When failed requests eject a target, for how long, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ejection:
    """The ejection rule of an upstream.

    Attributes:
        failures: consecutive failures that eject a target.
        duration_us: microseconds of the first ejection; each further one is twice as long.
        max_duration_us: the longest ejection.
        max_parts: most targets ejected at a time, in parts of `whole`.
        whole: what `max_parts` is a part of.
    """

    failures: int
    duration_us: int
    max_duration_us: int
    max_parts: int
    whole: int

    def length_us(self, earlier: int) -> int:
        """Return the length of an ejection after this many others."""
        # After this many doublings any configured duration exceeds the longest.
        return min(self.duration_us << min(earlier, 40), self.max_duration_us)

    def max_ejected(self, targets: int) -> int:
        """Return how many of the targets may be ejected at a time: at least one, never all."""
        share = targets * self.max_parts // self.whole
        return min(max(1, share), targets - 1)
