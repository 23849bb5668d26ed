"""The weight of a target that came back: little at first, and then more and more."""

from __future__ import annotations

from typing import Final

FIRST_SHARE: Final = 10
"""A target begins with one part in so many of its weight (Envoy: 10 %)."""
STEPS: Final = 50
"""The weight is set anew so many times on its way."""


def ramped(full_weight: int, elapsed_us: int, duration_us: int) -> int:
    """The weight of a target so long after it came back; never 0.

    Args:
        full_weight: what it ends with.
        elapsed_us: microseconds since it came back.
        duration_us: microseconds that a slow start takes.
    """
    if elapsed_us >= duration_us:
        return full_weight
    least = full_weight // FIRST_SHARE
    return max(1, least, full_weight * elapsed_us // duration_us)
