"""How long a decision affects later ones, and so how long a store must observe to know a key."""

from __future__ import annotations

from typing import Final

from gateway.limits.calendar import Calendar
from gateway.limits.paced_history import window_us
from gateway.limits.rate import NS_PER_US, Limit

_DAY_US: Final = 86_400_000_000
_CLOCKS_US: Final = 3 * 3_600_000_000
"""How much clocks may be set back in one window: two hours at Troll, and three at Casey once."""

LONGEST_US: Final[dict[Calendar, int]] = {
    "day": _DAY_US + _CLOCKS_US,
    "week": 7 * _DAY_US + _CLOCKS_US,
    "month": 31 * _DAY_US + _CLOCKS_US,
}
"""The longest window of a calendar."""


def horizon_us(limit: Limit) -> int | None:
    """Return how long a decision can still affect the state of its key.

    Args:
        limit: the limit. A waiting request is counted at its turn, so the longest wait is included.

    Returns:
        Microseconds, never too few; None for concurrency, where a request counts until it ends.
    """
    if limit.algorithm == "concurrency":
        return None
    window = limit.period_us if limit.calendar is None else LONGEST_US[limit.calendar]
    lasts_us = {
        "token_bucket": -(-limit.tolerance_ns // NS_PER_US),
        "sliding_window_log": window,
        # The count of one window is an estimate in the next.
        "sliding_window_counter": 2 * window,
        "fixed_window": window,
        "paced_history": window_us(limit),
    }[limit.algorithm]
    return lasts_us + limit.max_wait_us
