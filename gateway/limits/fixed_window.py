"""Fixed window: a counter that begins anew with each window.

Windows of `period_us` are aligned to the epoch of the clock: a minute begins with the minute.
A limit with a `calendar` has the days, weeks or months of its `zone` instead. Time must then be
microseconds since 1970 (UTC), which is why stores give this algorithm the wall clock. A window
holds its first microsecond and not the first of the next one. Twice the limit may pass around
the boundary of two windows: that is what fixed windows are.

Requests that may wait are counted in a later window and all have their turn when it begins, as
many of them as the limit allows.

The state is two whole numbers, `(last, used)`: the latest turn in microseconds, and how much is
counted in the window that holds it. A changed window finds what it may count by itself.
"""

from __future__ import annotations

from gateway.limits import calendar
from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, int]


def bounds(moment_us: int, limit: Limit) -> tuple[int, int]:
    """The window that holds a moment: its first microsecond, and the first of the next."""
    if limit.calendar:
        return calendar.window(moment_us, limit.calendar, limit.zone)
    start = moment_us - moment_us % limit.period_us
    return start, start + limit.period_us


def decide(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, Decision]:
    """Decide on one request; arguments and result as in `token_bucket.decide`."""
    capacity = limit.count
    last, used = state if state is not None else (now_us, 0)
    # A clock that went back: what was counted is held against the key as if it had been at
    # the latest moment that a turn can have.
    at = min(max(now_us, last), now_us + limit.max_wait_us)
    start, end = bounds(at, limit)
    if last < start:
        used = 0
    receipt, wait_us, retry_after_us = 0, 0, 0
    if cost > capacity:
        retry_after_us = NEVER
    elif cost:
        fits = used + cost <= capacity
        turn = at if fits else end
        if turn - now_us <= max_wait_us:
            wait_us, receipt = turn - now_us, turn
            at, used = turn, used + cost if fits else cost
            end = end if fits else bounds(turn, limit)[1]
        else:
            retry_after_us = turn - now_us - max_wait_us
            if limit.count_refused:
                used = max(used, min(used + cost, capacity))
    return (at, used), Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        capacity,
        max(capacity - used, 0) if at == now_us else 0,
        end - now_us if used else 0,
        receipt,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo a decision that was allowed, if its window is still the one being counted."""
    if state is None:
        return None
    last, used = state
    start, end = bounds(last, limit)
    return (last, max(used - cost, 0)) if start <= receipt < end else state


def expires_us(state: State, limit: Limit) -> int:
    """When the state can be forgotten, in microseconds of the same clock."""
    last, used = state
    return bounds(last, limit)[1] if used else 0
