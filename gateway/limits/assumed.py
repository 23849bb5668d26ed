"""How much of its share of a limit a gateway has used, based on the store's last answer.

A gateway that must decide alone limits each key to a share of its limit (`Limit.share`). Such a
share does not start unused: it starts as full, in proportion, as the whole limit was when the store
last answered.
"""

from __future__ import annotations

from typing import Any

from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, Decision
from gateway.limits.rate import NS_PER_US, Limit


def assumed_state(limit: Limit, share: Limit, decision: Decision, at_us: int) -> Any:
    """Return the state of a share that is used to the same proportion as the whole limit was.

    For a token bucket, `reset_us` is sufficient, including the turns of waiting requests. For a
    window, the usage is known but not its times: requests are assumed to be spread evenly.

    Args:
        limit: the whole limit; not one of leases.
        share: the share that one gateway may spend.
        decision: the store's decision on the latest request of the key.
        at_us: when that was, on the clock of the algorithm.
    """
    if limit.algorithm == "token_bucket":
        # Burst and rate of a share are smaller by the same factor: it refills in the same time.
        return (at_us + decision.reset_us) * NS_PER_US
    used = max(limit.burst - decision.remaining, 0)
    used = -(-used * share.burst // limit.burst)
    if limit.algorithm == "fixed_window":
        return ALGORITHMS[limit.algorithm].spend(None, at_us, used, share, DEBIT)[0]
    if limit.algorithm == "sliding_window_counter":
        # The same usage in the previous window, so that the estimate is right at any moment.
        elapsed_us = at_us % share.period_us
        return at_us, used, used * elapsed_us // share.period_us
    window_us = share.burst * share.period_us // share.count
    times = tuple(at_us - window_us * left // used for left in reversed(range(used)))
    return (0, *times) if limit.algorithm == "paced_history" else times
