"""Sliding window counter: two counters a key, weighted by how much of each is in the window.

Time is cut into windows of `period_us`, aligned to the epoch of the clock. At a moment that is
`elapsed` into its window, the requests of the last period are taken to be

    previous * (period - elapsed) / period + current

as if those of the previous window were spread evenly. A request passes if this estimate plus its
cost does not exceed `count`. The comparison uses whole numbers, without rounding. The limit bounds
the estimate, not the true count: a client that sends everything at the end of one window can get up
to twice the limit within one period, never more. Of evenly spread requests, fewer than one per
period is refused because of the estimate.

The state is three whole numbers, `(last, previous, current)`: the latest turn in microseconds, and
how much was counted in the window before that one and in that window. The beginning of the window
is `last - last % period`, so windows follow from the state even if the period changes. Requests
that may wait are counted at their turn; as turns never go back, the two windows at the latest turn
are all that a later one needs to know.

A twin without wide integers: no number here is above 2**53, except the product in `_first_fit`,
`room * period // previous` with room < previous <= 10**9 and period < 2**45, which long division
does in two steps.
"""

from __future__ import annotations

from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, int, int]


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if allowed; arguments and result as in `token_bucket.spend`."""
    capacity = limit.count
    at, previous, current = _roll(state, now_us, limit)
    if max_wait_us == DEBIT:
        current = max(current, min(current + cost, capacity + limit.debt))
        return (at, previous, current), _owed_us(at, previous, current, now_us, limit), 0
    if cost > capacity:
        return (at, previous, current), 0, NEVER
    if cost == 0:
        return (at, previous, current), 0, 0
    turn = _turn(at, previous, current, cost, limit)
    wait_us = turn - now_us
    if wait_us <= max_wait_us:
        if turn != at:
            at, previous, current = _roll((at, previous, current), turn, limit)
        return (at, previous, current + cost), wait_us, 0
    if limit.count_refused:
        current = max(current, min(current + cost, capacity))
        wait_us = _turn(at, previous, current, cost, limit) - now_us
    return (at, previous, current), 0, wait_us - max_wait_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision; arguments and result as in `token_bucket.describe`."""
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.count,
        _remaining(*state, now_us, limit),
        max(expires_us(state, limit) - now_us, 0),
        0 if retry_after_us else now_us + wait_us if cost else now_us,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo an admission: its window no longer counts it, if the window still matters."""
    if state is None:
        return None
    last, previous, current = state
    windows_ago = last // limit.period_us - receipt // limit.period_us
    if windows_ago == 0:
        return last, previous, max(current - cost, 0)
    if windows_ago == 1:
        return last, max(previous - cost, 0), current
    return state


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    last, previous, current = state
    if not previous and not current:
        # All was given back, but nothing passes before the latest turn.
        return last
    start = last - last % limit.period_us
    return start + limit.period_us * (2 if current else 1)


def _roll(state: State | None, now_us: int, limit: Limit) -> State:
    """Return the counters as of now, or as of the latest turn if that is in the future."""
    if state is None:
        return now_us, 0, 0
    last, previous, current = state
    at = now_us
    if last > now_us:
        # The clock went back: the count is kept as if made at the latest possible turn.
        at = min(last, now_us + limit.max_wait_us)
    windows = at // limit.period_us - last // limit.period_us
    if windows <= 0:
        return at, previous, current
    return at, current if windows == 1 else 0, 0


def _turn(at: int, previous: int, current: int, cost: int, limit: Limit) -> int:
    """Return the first moment, not before `at`, at which the estimate has room for `cost`."""
    period = limit.period_us
    room = limit.count - current - cost
    if room >= 0:
        if previous <= room:
            return at
        return max(at, at - at % period + _first_fit(previous, room, period))
    end = at - at % period + period
    room = limit.count - cost
    return end if current <= room else end + _first_fit(current, room, period)


def _owed_us(at: int, previous: int, current: int, now_us: int, limit: Limit) -> int:
    """Return how long something is owed: until the estimate is no longer above the limit."""
    turn = _turn(at, previous, current, 0, limit)
    return turn - now_us if turn > at else 0


def _first_fit(previous: int, room: int, period: int) -> int:
    """Return how far into a window `previous`, greater than `room`, weighs at most `room`."""
    return period - room * period // previous


def _remaining(at: int, previous: int, current: int, now_us: int, limit: Limit) -> int:
    """Return how many requests of cost 1 could pass now: none while others wait."""
    if at > now_us:
        return 0
    period = limit.period_us
    left = period - at % period
    return max((limit.count * period - previous * left) // period - current, 0)
