"""What other gateways may have admitted without a report, and how long that delays a request.

A store holds an excess against a key for up to a period (`reports.report`). Until everything has
been reported, a refused request gets the longest possible delay as its retry time: a client that
obeys is not refused again for what other gateways had admitted before.
"""

from __future__ import annotations

from typing import Final

from gateway.limits.fixed_window import bounds
from gateway.limits.paced_history import window_us
from gateway.limits.rate import NS_PER_US, Limit

REPORTED_INTERVALS: Final = 2
"""After this many intervals an admission has been reported: one to gather it, and one more for the
report to arrive."""


def longest_us(limit: Limit, cost: int, within_us: int, calendar_us: int, gateways: int) -> int:
    """Return the longest possible wait of a request, whatever others have admitted until now.

    Args:
        limit: the limit.
        cost: the cost of the request; at most the burst.
        within_us: how long until the store has counted all of it.
        calendar_us: the time of day, for windows that are aligned to all clocks.
        gateways: how many gateways decide on the same keys.
    """
    period = limit.period_us
    if limit.algorithm == "fixed_window":
        # An excess fills the window after the one in which it is counted.
        _, end_us = bounds(calendar_us + within_us, limit)
        return bounds(end_us, limit)[1] - calendar_us
    if limit.algorithm in ("token_bucket", "paced_history"):
        period = min(period, _debt_us(limit, within_us, gateways))
    # The latest turn is a period after it is counted; what passes then must also come back.
    back_us = {
        "token_bucket": -(-cost * limit.interval_ns // NS_PER_US),
        "sliding_window_log": period + 1,
        # That turn may be at the beginning of its window, which the next window sees as full.
        "sliding_window_counter": period - (-cost * period // limit.count),
        # A request that does not wait for a turn must wait until requests have left the window.
        "paced_history": window_us(limit) + 1,
    }[limit.algorithm]
    return within_us + period + back_us


def _debt_us(limit: Limit, within_us: int, gateways: int) -> int:
    """Return how far ahead of its burst a rate can be, if each gateway admits a burst.

    A gateway admits no more than that, plus what becomes free meanwhile, between the store's last
    answer and the report of its admissions since.
    """
    return gateways * (-(-limit.tolerance_ns // NS_PER_US) + 2 * within_us)
