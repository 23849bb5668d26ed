"""What a share of a limit has used, by what a store last said of the whole.

A gateway that has to decide alone holds each key to a share of its limit (`Limit.share`). Such a
share does not begin unused: it is taken to be as full, in proportion, as the whole limit was when
the store last answered.
"""

from __future__ import annotations

from typing import Any

from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, Decision
from gateway.limits.rate import NS_PER_US, Limit


def assumed_state(limit: Limit, share: Limit, said: Decision, at_us: int) -> Any:
    """Return the state of a share that has used as much, in proportion, as the whole limit had.

    A token bucket says by its `reset_us` all there is to know, turns of those that wait included.
    Of a window is known how much of it is used, not when: requests are taken to have come evenly.

    Args:
        limit: the whole limit, none of leases.
        share: the part of it that one gateway may spend.
        said: the store's answer to the latest request of the key.
        at_us: when that was, on the clock of the algorithm.
    """
    if limit.algorithm == "token_bucket":
        # Of a share, burst and rate are smaller by the same number: it is full as soon.
        return (at_us + said.reset_us) * NS_PER_US
    used = max(limit.burst - said.remaining, 0)
    used = -(-used * share.burst // limit.burst)
    if limit.algorithm == "fixed_window":
        return ALGORITHMS[limit.algorithm].spend(None, at_us, used, share, DEBIT)[0]
    if limit.algorithm == "sliding_window_counter":
        # As many in the window before, so that the estimate is what was used at any moment.
        elapsed_us = at_us % share.period_us
        return at_us, used, used * elapsed_us // share.period_us
    window_us = share.burst * share.period_us // share.count
    times = tuple(at_us - window_us * left // used for left in reversed(range(used)))
    return (0, *times) if limit.algorithm == "paced_history" else times
