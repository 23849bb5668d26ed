"""Algorithms as pure functions of state, time, cost and limit.

Nothing here knows HTTP, Redis, sockets or clocks. Read `rate` (what a limit is), `decision`
(what is said of a request), then any algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.limits import sliding_log, token_bucket
from gateway.limits.decision import Decision
from gateway.limits.rate import Limit


class Algorithm(NamedTuple):
    """The functions of one algorithm, and the short tag of its states in store keys."""

    decide: Callable[[Any, int, int, Limit, int], tuple[Any, Decision]]
    give_back: Callable[[Any, int, int, Limit, int], Any]
    expires_us: Callable[[Any, Limit], int]
    tag: str


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "token_bucket": Algorithm(
        token_bucket.decide, token_bucket.give_back, token_bucket.expires_us, "tb"
    ),
    "sliding_window_log": Algorithm(
        sliding_log.decide, sliding_log.give_back, sliding_log.expires_us, "sl"
    ),
}
