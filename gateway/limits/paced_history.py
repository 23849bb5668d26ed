"""Paced history: at most `burst` requests in the past `burst / rate`, then one every `1 / rate`.

Smockron's algorithm. If fewer than `burst` requests lie in the past `burst / rate`, the next may go
now; otherwise it may go at the later of the current time and the newest request, plus `1 / rate`. A
request exactly that old still counts, two in one microsecond are two, and a delayed request counts
at the moment to which it was delayed. Unlike a token bucket, the burst does not refill gradually: a
client that spent it is paced until requests leave the window.

A request of cost n is short by n minus the free places; it may go that many times `1 / rate` after
the later of the current time and the newest request, and is recorded n times at that moment.

One edge case of the original is kept: waiting requests do not block a request that arrives after
others have left the window; it may go now although others wait.

The state is whole numbers of microseconds, `(dropped, *times)`: at most `burst` ascending times,
and before them the latest time that was dropped to stay within that number, or 0 for none (also if
the clock started less than a window ago). Dropped times are not needed while those after them stay;
when one of those is given back, `dropped` takes its place until it leaves the window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, ...]


def interval_us(limit: Limit) -> int:
    """`1 / rate`, rounded up to a whole microsecond: never faster than the rate."""
    return -(-limit.period_us // limit.count)


def window_us(limit: Limit) -> int:
    """`burst / rate`; rounded down it holds the same whole microseconds."""
    return limit.burst * limit.period_us // limit.count


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if allowed; arguments and result as in `token_bucket.spend`."""
    burst = limit.burst
    dropped, times = _repair(state, now_us, limit)
    lacking = len(times) + cost - burst
    wait_us, retry_after_us = 0, 0
    if max_wait_us == DEBIT:
        turn = _debited_at(times, now_us, lacking, limit)
        dropped, times = _add(dropped, times, turn, min(cost, burst), burst)
        # Debt is counted in the future, like waiting requests.
        wait_us = max(times[-1] - now_us, 0) if times else 0
    elif cost > burst:
        retry_after_us = NEVER
    elif cost:
        turn = now_us
        if lacking > 0:
            turn = max(now_us, times[-1]) + lacking * interval_us(limit)
        if turn - now_us <= max_wait_us:
            wait_us = turn - now_us
            dropped, times = _add(dropped, times, turn, cost, burst)
        else:
            retry_after_us = _passes_us(times, now_us, lacking, limit, max_wait_us) - now_us
    return (dropped, *times), wait_us, retry_after_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision; arguments and result as in `token_bucket.describe`."""
    counted = len(state) - 1
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.burst,
        limit.burst - counted,
        state[-1] + window_us(limit) + 1 - now_us if counted else 0,
        now_us + wait_us if cost and not retry_after_us else 0,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo an admission: remove its times from the history.

    If dropped times still count, as many come back as were removed, all of them as the latest
    dropped time: the error is on the side of admitting too little.
    """
    if state is None:
        return None
    dropped, times = state[0], state[1:]
    end = bisect_right(times, receipt)
    start = max(bisect_left(times, receipt), end - cost)
    still_counts = dropped and dropped >= now_us - window_us(limit)
    returning = (dropped,) * (end - start) if still_counts else ()
    return (dropped, *returning, *times[:start], *times[end:])


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    return state[-1] + window_us(limit) + 1 if len(state) > 1 else 0


def _repair(state: State | None, now_us: int, limit: Limit) -> tuple[int, State]:
    """Return the latest dropped time, and the history without times that have left the window.

    If the clock went back, no time counts for longer than a window and a full queue; if the limit
    was lowered, no more times are kept than it counts.
    """
    if state is None:
        return 0, ()
    dropped, times = state[0], state[1:]
    oldest = now_us - window_us(limit)
    furthest = now_us + limit.max_wait_us + limit.debt_us
    if times and times[-1] > furthest:
        dropped = min(dropped, furthest)
        times = tuple(min(time, furthest) for time in times)
    if times and times[0] < oldest:
        times = times[bisect_left(times, oldest) :]
    return _keep(dropped if dropped >= oldest else 0, times, limit.burst)


def _add(dropped: int, times: State, turn: int, cost: int, burst: int) -> tuple[int, State]:
    """Return the history with a request of this cost at its turn."""
    place = bisect_right(times, turn)
    return _keep(dropped, times[:place] + (turn,) * cost + times[place:], burst)


def _keep(dropped: int, times: State, burst: int) -> tuple[int, State]:
    """Return the newest `burst` times, and the latest dropped one."""
    excess = len(times) - burst
    if excess <= 0:
        return dropped, times
    return times[excess - 1], times[excess:]


def _debited_at(times: State, now_us: int, lacking: int, limit: Limit) -> int:
    """Return when a debit is counted: at its turn, as if it had waited, up to the maximum debt."""
    if lacking <= 0:
        return now_us
    turn = max((now_us, *times[-1:])) + lacking * interval_us(limit)
    return min(turn, now_us + limit.max_wait_us + limit.debt_us)


def _passes_us(times: State, now_us: int, lacking: int, limit: Limit, max_wait_us: int) -> int:
    """Return the first moment at which a request that exceeds the free burst is admitted.

    That is when enough requests have left the window for the remaining wait to be short enough, or
    sooner, when the newest request is old enough.
    """
    interval = interval_us(limit)
    window = window_us(limit)
    first = times[lacking - 1] + window + 1
    for still_lacking in range(1, min(lacking, max_wait_us // interval) + 1):
        left_us = now_us
        if still_lacking < lacking:
            left_us = times[lacking - still_lacking - 1] + window + 1
        due_us = times[-1] + still_lacking * interval - max_wait_us
        first = min(first, max(left_us, due_us))
    return first
