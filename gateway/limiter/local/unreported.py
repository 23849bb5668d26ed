"""What gateways that have not been heard of may have let through, and how long that may take.

A store holds what was too much against a key for up to a period (`reports.report`). As long as not
all has been heard, a refused request is told to stay away for as long as that can be: whoever obeys
is not refused again for what others had let through before.
"""

from __future__ import annotations

from typing import Final

from gateway.limits.fixed_window import bounds
from gateway.limits.paced_history import window_us
from gateway.limits.rate import NS_PER_US, Limit

REPORTED_INTERVALS: Final = 2
"""After so many intervals what was let through has been reported: one to gather it, and as much
again for the way."""


def longest_us(limit: Limit, cost: int, within_us: int, calendar_us: int, gateways: int) -> int:
    """How long a request has to stay away at most, whatever others have let through until now.

    Args:
        limit: the limit.
        cost: of the request; at most the burst.
        within_us: until when all of that has been counted, from now.
        calendar_us: the time of day, for windows that all clocks have in common.
        gateways: how many decide on the same keys.
    """
    period = limit.period_us
    if limit.algorithm == "fixed_window":
        # What is too much fills the window after the one in which it is counted.
        _, end_us = bounds(calendar_us + within_us, limit)
        return bounds(end_us, limit)[1] - calendar_us
    if limit.algorithm in ("token_bucket", "paced_history"):
        period = min(period, _debt_us(limit, within_us, gateways))
    # The latest turn is a period after it is counted; and then what passes has to come back.
    back_us = {
        "token_bucket": -(-cost * limit.interval_ns // NS_PER_US),
        "sliding_window_log": period + 1,
        # That turn may be at the beginning of its window, which is full, as the next sees it.
        "sliding_window_counter": period - (-cost * period // limit.count),
        # Who does not wait for a turn has to wait until requests have left the window.
        "paced_history": window_us(limit) + 1,
    }[limit.algorithm]
    return within_us + period + back_us


def _debt_us(limit: Limit, within_us: int, gateways: int) -> int:
    """How far ahead of its burst a rate can be, if each of the gateways lets a burst through.

    None lets more through than that, and what has come back meanwhile, before it hears of the
    others: from when it last heard, until what it let through since has been reported.
    """
    return gateways * (-(-limit.tolerance_ns // NS_PER_US) + 2 * within_us)
