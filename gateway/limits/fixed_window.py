"""Fixed window: a counter that starts again at zero in each window.

Windows of `period_us` are aligned to the epoch of the clock: a minute begins with the minute. A
limit with a `calendar` has the days, weeks or months of its `zone` instead. Time must then be
microseconds since 1970 (UTC), which is why stores give this algorithm the wall clock. A window
includes its first microsecond and excludes the first of the next one. Up to twice the limit can
pass around the boundary of two windows; this is inherent to fixed windows.

Requests that may wait are counted in a later window and all get their turns when it begins, up to
the limit.

The state is two whole numbers, `(last, used)`: the latest turn in microseconds, and how much is
counted in the window that contains it. If the window changes, its counts follow from these.
"""

from __future__ import annotations

from gateway.limits import calendar
from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, int]


def bounds(moment_us: int, limit: Limit) -> tuple[int, int]:
    """Return the window of a moment: its first microsecond, and the first of the next."""
    if limit.calendar:
        return calendar.window(moment_us, limit.calendar, limit.zone)
    start = moment_us - moment_us % limit.period_us
    return start, start + limit.period_us


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if allowed; arguments and result as in `token_bucket.spend`."""
    last, used = state if state is not None else (now_us, 0)
    at = now_us
    if last > now_us:
        # The clock went back: the count is kept as if made at the latest possible turn.
        at = min(last, now_us + limit.max_wait_us)
    start = bounds(at, limit)[0] if limit.calendar else at - at % limit.period_us
    if last < start:
        used = 0
    capacity = limit.count
    if max_wait_us == DEBIT:
        used = max(used, min(used + cost, capacity + limit.debt))
        return (at, used), _owed_us(at, used, now_us, limit), 0
    if cost > capacity:
        return (at, used), 0, NEVER
    if cost == 0:
        return (at, used), 0, 0
    fits = used + cost <= capacity
    turn = at if fits else bounds(at, limit)[1]
    wait_us = turn - now_us
    if wait_us <= max_wait_us:
        return (turn, used + cost if fits else cost), wait_us, 0
    if limit.count_refused:
        used = max(used, min(used + cost, capacity))
    return (at, used), 0, wait_us - max_wait_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision; arguments and result as in `token_bucket.describe`."""
    last, used = state
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.count,
        max(limit.count - used, 0) if last == now_us else 0,
        (bounds(last, limit)[1] if used else last) - now_us,
        0 if retry_after_us else now_us + wait_us if cost else now_us,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo an admission, if its window is still the one being counted."""
    if state is None:
        return None
    last, used = state
    start, end = bounds(last, limit)
    return (last, max(used - cost, 0)) if start <= receipt < end else state


def _owed_us(at: int, used: int, now_us: int, limit: Limit) -> int:
    """How long something is owed: debts end with their window."""
    return bounds(at, limit)[1] - now_us if used > limit.count else 0


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    last, used = state
    # Even if all of a later window was given back, earlier windows stay closed.
    return bounds(last, limit)[1] if used else last
