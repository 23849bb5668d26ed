"""Algorithms as pure functions of state, time, cost and limit.

Nothing here knows HTTP, Redis, sockets or clocks. Read `rate` (what a limit is), `decision`
(what is said of a request), then any algorithm.
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
    """The functions of one algorithm, and what a store has to know of it.

    Attributes:
        decide, give_back, expires_us: see `token_bucket`, where they are explained.
        tag: short name of its states in store keys.
        renew: for leases only, `leases.renew`; None where there is nothing to renew.
        is_calendar: whether its time is microseconds since 1970 (UTC), not those of any clock.
    """

    decide: Callable[[Any, int, int, Limit, int], tuple[Any, Decision]]
    give_back: Callable[[Any, int, int, Limit, int], Any]
    expires_us: Callable[[Any, Limit], int]
    tag: str
    renew: Callable[[Any, int, int, Limit, int], tuple[Any, bool]] | None = None
    is_calendar: bool = False


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "token_bucket": Algorithm(
        token_bucket.decide, token_bucket.give_back, token_bucket.expires_us, "tb"
    ),
    "sliding_window_log": Algorithm(
        sliding_log.decide, sliding_log.give_back, sliding_log.expires_us, "sl"
    ),
    "sliding_window_counter": Algorithm(
        sliding_counter.decide, sliding_counter.give_back, sliding_counter.expires_us, "sc"
    ),
    "fixed_window": Algorithm(
        fixed_window.decide,
        fixed_window.give_back,
        fixed_window.expires_us,
        "fw",
        is_calendar=True,
    ),
    "paced_history": Algorithm(
        paced_history.decide, paced_history.give_back, paced_history.expires_us, "ph"
    ),
    "concurrency": Algorithm(
        leases.decide, leases.give_back, leases.expires_us, "cl", renew=leases.renew
    ),
}
