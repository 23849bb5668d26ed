"""Sliding window log: the exact times of the requests in the window.

The state is the ascending times of the requests that count, in microseconds; those of waiting
requests lie in the future. A request exactly one window old still counts (ThrottleX, ratio and
Smockron agree on that), and two in one microsecond are two.

With `count_refused`, a refused request is recorded too, as in ratio: a client that does not slow
down stays refused. The newest `count` times are then enough, and no more are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, ...]


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if allowed; arguments and result as in `token_bucket.spend`."""
    window = limit.period_us
    capacity = limit.count
    times = state if state is not None else ()
    if times:
        # If the clock went back, requests count for no longer than a window and a full queue.
        furthest = now_us + limit.max_wait_us
        if times[-1] > furthest:
            times = tuple(min(time, furthest) for time in times)
        if times[0] < now_us - window:
            times = times[bisect_left(times, now_us - window) :]
    if max_wait_us == DEBIT:
        counted = max(min(cost, capacity + limit.debt - len(times)), 0)
        times += (max((now_us, *times[-1:])),) * counted
        return times, _owed_us(times, now_us, limit), 0
    if cost > capacity:
        return times, 0, NEVER
    if cost == 0:
        return times, 0, 0
    surplus = len(times) + cost - capacity
    turn = now_us
    if surplus > 0:
        turn = times[surplus - 1] + window + 1
    if times and times[-1] > turn:
        turn = times[-1]
    wait_us = turn - now_us
    if wait_us <= max_wait_us:
        return times + (turn,) * cost, wait_us, 0
    if limit.count_refused:
        # A debt does not change how much is kept.
        kept = max(capacity, min(len(times), capacity + limit.debt))
        times = (times + (now_us,) * cost)[-kept:]
        wait_us = times[len(times) + cost - capacity - 1] + window + 1 - now_us
    return times, 0, wait_us - max_wait_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision; arguments and result as in `token_bucket.describe`."""
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.count,
        max(limit.count - len(state), 0),
        state[-1] + limit.period_us + 1 - now_us if state else 0,
        now_us + wait_us if cost and not retry_after_us else 0,
    )


def _owed_us(times: State, now_us: int, limit: Limit) -> int:
    """Return how long something is owed: until enough requests have left the window."""
    surplus = len(times) - limit.count
    return times[surplus - 1] + limit.period_us + 1 - now_us if surplus > 0 else 0


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo an admission: remove its times from the log."""
    if state is None:
        return None
    end = bisect_right(state, receipt)
    start = max(bisect_left(state, receipt), end - cost)
    return state[:start] + state[end:]


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    return state[-1] + limit.period_us + 1 if state else 0
