"""The weight of a target that came back: small at first, then growing."""

from __future__ import annotations

from typing import Final

FIRST_SHARE: Final = 10
"""A target starts with this fraction (one part in so many) of its weight (Envoy: 10 %)."""
STEPS: Final = 50
"""How many times the weight is raised during a slow start."""


def ramped(full_weight: int, elapsed_us: int, duration_us: int) -> int:
    """Return the weight of a target at some time after it came back; never 0.

    Args:
        full_weight: the weight at the end.
        elapsed_us: microseconds since it came back.
        duration_us: microseconds of the whole slow start.
    """
    if elapsed_us >= duration_us:
        return full_weight
    least = full_weight // FIRST_SHARE
    return max(1, least, full_weight * elapsed_us // duration_us)
