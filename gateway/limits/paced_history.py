"""Paced history: at most `burst` requests in the past `burst / rate`, then one every `1 / rate`.

Smockron's rule. If fewer than `burst` requests lie in the past `burst / rate`, the next may go
now; otherwise at the later of the present and the newest of them, plus `1 / rate`. One exactly
that old still counts, two in one microsecond are two, and one that was delayed counts at the
moment to which it was delayed. Unlike a token bucket nothing comes back a little at a time: a
client that spent its burst is paced until requests leave the window.

A request of cost n lacks n minus what is free; it may go that many times `1 / rate` after the
later of the present and the newest, and is kept n times at that moment.

The rule has an edge that is kept: requests that may wait do not stop one that comes after some
have left the window; it may go now although others wait.

The state is whole numbers of microseconds, `(dropped, *times)`: at most `burst` ascending times,
and before them the latest time that was dropped to keep to that number, or 0 for none (also where
the clock has begun less than a window ago). Dropped ones are not needed as long as those after
them stay; when one of those is given back, `dropped` takes its place until it leaves the window.
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
    """Take what a request costs, if it may go; arguments and result as in `token_bucket.spend`."""
    burst = limit.burst
    dropped, times = _put_right(state, now_us, limit)
    lacking = len(times) + cost - burst
    wait_us, retry_after_us = 0, 0
    if max_wait_us == DEBIT:
        turn = _debited_at(times, now_us, lacking, limit)
        dropped, times = _add(dropped, times, turn, min(cost, burst), burst)
        # What is owed is counted in the future, as what waits is.
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
    """All there is to say of a request; arguments and result as in `token_bucket.describe`."""
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
    """Undo a decision that was allowed: its times are taken out of the history.

    Where others were dropped that still count, as many times come back as were taken out; all
    of them as the latest that was dropped, so that too little may pass rather than too much.
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
    """When the state can be forgotten, in microseconds of the same clock."""
    return state[-1] + window_us(limit) + 1 if len(state) > 1 else 0


def _put_right(state: State | None, now_us: int, limit: Limit) -> tuple[int, State]:
    """What was dropped, and the history without what has left the window.

    A clock that went back must not hold requests against the key for longer than a window and
    a full queue, nor a limit that was lowered more of them than it counts.
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
    """The history with a request of this cost at its turn."""
    place = bisect_right(times, turn)
    return _keep(dropped, times[:place] + (turn,) * cost + times[place:], burst)


def _keep(dropped: int, times: State, burst: int) -> tuple[int, State]:
    """The newest `burst` times, and the latest that was dropped."""
    excess = len(times) - burst
    if excess <= 0:
        return dropped, times
    return times[excess - 1], times[excess:]


def _debited_at(times: State, now_us: int, lacking: int, limit: Limit) -> int:
    """Where a debit is counted: at its turn, as if it had waited; not beyond what may be owed."""
    if lacking <= 0:
        return now_us
    turn = max((now_us, *times[-1:])) + lacking * interval_us(limit)
    return min(turn, now_us + limit.max_wait_us + limit.debt_us)


def _passes_us(times: State, now_us: int, lacking: int, limit: Limit, max_wait_us: int) -> int:
    """The first moment at which a request that lacks some of the burst is let through.

    It may be when so many have left the window that the wait for the rest is short enough; or
    sooner, when the newest is long enough ago.
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
