"""Algorithms as pure functions of state, time, cost and limit.

Nothing here depends on HTTP, Redis, sockets or clocks. Read `rate` (what a limit is), `decision`
(the result for a request), then any algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.limits import (
    fixed_window,
    leases,
    paced_history,
    sliding_counter,
    sliding_log,
    token_bucket,
)
from gateway.limits.decision import Decision
from gateway.limits.rate import Limit


class Algorithm(NamedTuple):
    """The functions of one algorithm, and what a store needs to know about it.

    Attributes:
        spend, describe, give_back, expires_us: documented in `token_bucket`.
        tag: short name of its states in store keys.
        renew: `leases.renew` for leases; None for all others.
        is_calendar: whether its time must be microseconds since 1970 (UTC).
    """

    spend: Callable[[Any, int, int, Limit, int], tuple[Any, int, int]]
    describe: Callable[[Any, int, int, Limit, int, int], Decision]
    give_back: Callable[[Any, int, int, Limit, int], Any]
    expires_us: Callable[[Any, Limit], int]
    tag: str
    renew: Callable[[Any, int, int, Limit, int], tuple[Any, bool]] | None = None
    is_calendar: bool = False

    def decide(
        self, state: Any, now_us: int, cost: int, limit: Limit, max_wait_us: int
    ) -> tuple[Any, Decision]:
        """Decide on one request: `spend` followed by `describe`."""
        after, wait_us, retry_after_us = self.spend(state, now_us, cost, limit, max_wait_us)
        return after, self.describe(after, now_us, cost, limit, wait_us, retry_after_us)


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "token_bucket": Algorithm(
        token_bucket.spend,
        token_bucket.describe,
        token_bucket.give_back,
        token_bucket.expires_us,
        "tb",
    ),
    "sliding_window_log": Algorithm(
        sliding_log.spend,
        sliding_log.describe,
        sliding_log.give_back,
        sliding_log.expires_us,
        "sl",
    ),
    "sliding_window_counter": Algorithm(
        sliding_counter.spend,
        sliding_counter.describe,
        sliding_counter.give_back,
        sliding_counter.expires_us,
        "sc",
    ),
    "fixed_window": Algorithm(
        fixed_window.spend,
        fixed_window.describe,
        fixed_window.give_back,
        fixed_window.expires_us,
        "fw",
        is_calendar=True,
    ),
    "paced_history": Algorithm(
        paced_history.spend,
        paced_history.describe,
        paced_history.give_back,
        paced_history.expires_us,
        "ph",
    ),
    "concurrency": Algorithm(
        leases.spend,
        leases.describe,
        leases.give_back,
        leases.expires_us,
        "cl",
        renew=leases.renew,
    ),
}
