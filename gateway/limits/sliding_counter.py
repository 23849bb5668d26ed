"""Sliding window counter: two counters a key, weighted by how much of each is in the window.

Time is cut into windows of `period_us`, aligned to the epoch of the clock. At a moment that is
`elapsed` into its window, the requests of the last period are taken to be

    previous * (period - elapsed) / period + current

as if those of the window before had come evenly. A request passes if that and its cost are not
more than `count`. The comparison is made in whole numbers, without rounding. It is a law about
the estimate: a client that sends everything at the end of one window can get up to twice the
limit through within one period, never more. Of requests that come evenly, less than one in each
period is refused for the estimate's sake.

The state is three whole numbers, `(last, previous, current)`: the latest turn in microseconds,
and how much was counted in the window before that one and in that window. The beginning of the
window is `last - last % period`, so a changed period finds its windows by itself. Requests that
may wait are counted at their turn; as turns never go back, the two windows at the latest turn
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
    """Take what a request costs, if it may go; arguments and result as in `token_bucket.spend`."""
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
    """All there is to say of a request; arguments and result as in `token_bucket.describe`."""
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
    """Undo a decision that was allowed: its window, if it still matters, counts it no more."""
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
    """When the state can be forgotten, in microseconds of the same clock."""
    last, previous, current = state
    if not previous and not current:
        # All was given back; but nobody passes before the latest turn.
        return last
    start = last - last % limit.period_us
    return start + limit.period_us * (2 if current else 1)


def _roll(state: State | None, now_us: int, limit: Limit) -> State:
    """The counters as they stand at the present, or at the latest turn if that is to come."""
    if state is None:
        return now_us, 0, 0
    last, previous, current = state
    at = now_us
    if last > now_us:
        # A clock that went back: what was counted is held against the key as if it had been at
        # the latest moment that a turn can have.
        at = min(last, now_us + limit.max_wait_us)
    windows = at // limit.period_us - last // limit.period_us
    if windows <= 0:
        return at, previous, current
    return at, current if windows == 1 else 0, 0


def _turn(at: int, previous: int, current: int, cost: int, limit: Limit) -> int:
    """The first moment, not before `at`, at which the estimate has room for `cost`."""
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
    """How long something is owed: until the estimate is not above the limit any more."""
    turn = _turn(at, previous, current, 0, limit)
    return turn - now_us if turn > at else 0


def _first_fit(previous: int, room: int, period: int) -> int:
    """How far into a window `previous`, more than `room`, of the one before weigh no more."""
    return period - room * period // previous


def _remaining(at: int, previous: int, current: int, now_us: int, limit: Limit) -> int:
    """How many of cost 1 could pass now: none while somebody waits."""
    if at > now_us:
        return 0
    period = limit.period_us
    left = period - at % period
    return max((limit.count * period - previous * left) // period - current, 0)
