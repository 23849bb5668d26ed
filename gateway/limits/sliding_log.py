"""Sliding window log: the exact times of the requests in the window.

The state is the ascending times of the requests that count, in microseconds; those of
requests that wait for their turn lie in the future. A request exactly one window old still
counts (ThrottleX, ratio and Smockron agree on that), and two in one microsecond are two.

With `count_refused` a refused request is kept too, as in ratio: a client that does not stop
asking stays refused. The newest `count` times are then enough, and no more are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, ...]


def decide(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, Decision]:
    """Decide on one request; arguments and result as in `token_bucket.decide`."""
    window = limit.period_us
    capacity = limit.count
    times = state if state is not None else ()
    if times:
        # A clock that went back must not hold requests against the key for longer than a
        # window and a full queue.
        furthest = now_us + limit.max_wait_us
        if times[-1] > furthest:
            times = tuple(min(time, furthest) for time in times)
        if times[0] < now_us - window:
            times = times[bisect_left(times, now_us - window) :]
    used = len(times)
    reset_us = times[-1] + window + 1 - now_us if times else 0
    if cost > capacity:
        return times, Decision(False, 0, NEVER, capacity, max(capacity - used, 0), reset_us, 0)
    surplus = used + cost - capacity
    if cost == 0:
        return times, Decision(True, 0, 0, capacity, max(capacity - used, 0), reset_us, 0)
    turn = now_us
    if surplus > 0:
        turn = times[surplus - 1] + window + 1
    if times and times[-1] > turn:
        turn = times[-1]
    wait_us = turn - now_us
    if wait_us <= max_wait_us:
        return times + (turn,) * cost, Decision(
            True,
            wait_us,
            0,
            capacity,
            max(capacity - used - cost, 0),
            turn + window + 1 - now_us,
            turn,
        )
    if limit.count_refused:
        times = (times + (now_us,) * cost)[-capacity:]
        used = len(times)
        wait_us = times[used + cost - capacity - 1] + window + 1 - now_us
        reset_us = window + 1
    return times, Decision(
        False, 0, wait_us - max_wait_us, capacity, max(capacity - used, 0), reset_us, 0
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo a decision that was allowed: its times are taken out of the log."""
    if state is None:
        return None
    end = bisect_right(state, receipt)
    start = max(bisect_left(state, receipt), end - cost)
    return state[:start] + state[end:]


def expires_us(state: State, limit: Limit) -> int:
    """When the state can be forgotten, in microseconds of the same clock."""
    return state[-1] + limit.period_us + 1 if state else 0
