"""Token bucket, as the generic cell rate algorithm (GCRA, ITU-T I.371).

The state is one integer: the theoretical arrival time in nanoseconds, the moment at which the
bucket will be full again. A bucket that was never used, or is full, has no state. Waiting requests
reserve their turn by moving that time further into the future, so turns are given in order of
arrival and never exceed the rate.
"""

from __future__ import annotations

from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import NS_PER_US, Limit

State = int


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if it is allowed.

    Args:
        state: the result of the last call; None for an unknown key.
        now_us: the current time, from the clock that all callers for this key share.
        cost: tokens to take; 0 peeks without taking any.
        limit: the limit as it is now; it may have changed since the last call.
        max_wait_us: how long this request can wait, at most `limit.max_wait_us`; or `DEBIT`.

    Returns:
        The new state, and `wait_us` and `retry_after_us` as in `Decision`; the request is refused
        if the latter is not 0. Keep the state of an admission only if every limit of the request
        admits it. The state of a refusal is the old one, corrected, with nothing spent: if the key
        was known, always keep it, or `retry_after_us` would be wrong after the clock went back or
        the limit was lowered. A peek (cost 0) need not keep anything.
    """
    now = now_us * NS_PER_US
    tolerance = limit.tolerance_ns
    furthest = now + limit.furthest_ns
    tat = now
    if state is not None and state > now:
        # Further ahead than any reservation or debt can be: the clock went back or the limit was
        # lowered. The state is capped at an empty bucket, a full queue and the maximum debt.
        tat = state if state <= furthest else furthest
    after = tat + cost * limit.interval_ns
    if max_wait_us == DEBIT:
        after = min(after, furthest)
        return after, max(-((now + tolerance - after) // NS_PER_US), 0), 0
    if cost > limit.burst:
        return tat, 0, NEVER
    wait_ns = after - tolerance - now
    if wait_ns <= 0 or cost == 0:
        return after, 0, 0
    wait_us = -(-wait_ns // NS_PER_US)
    if wait_us <= max_wait_us:
        return after, wait_us, 0
    return tat, 0, wait_us - max_wait_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision: what `spend` returned, and what follows from it.

    Args:
        state: the state that `spend` returned.
        now_us: as given to `spend`.
        cost: likewise.
        limit: likewise.
        wait_us: see `state`.
        retry_after_us: see `state`.
    """
    now = now_us * NS_PER_US
    room = now + limit.tolerance_ns - state
    turn = now if room >= 0 else now - room
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.burst,
        room // limit.interval_ns if room > 0 else 0,
        # Negative floor division rounds up to a whole microsecond.
        -((now - state) // NS_PER_US),
        0 if retry_after_us else turn,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo an admission, as far as this cannot exceed the limit.

    A request that still waits for its turn gives it back if no later turn is reserved: later
    requests keep their turns, so a gap among them cannot be used again. Once its turn has come, its
    tokens refill with time like all others; only the part that cannot have been refilled yet is
    given back, and only if no request waits: other requests may already have spent what was
    refilled. Without a queue no request waits, and usage beyond the limit is debt: that is given
    back. For every order of decisions and undos, the state is never more permissive than if the
    undone requests had never been made.

    Args:
        state: the current state of the key.
        now_us: the current time.
        cost: what the request took.
        limit: the limit.
        receipt: the `Decision.receipt` of the request: the moment of its turn, in
            nanoseconds.
    """
    if state is None:
        return None
    now = now_us * NS_PER_US
    taken = cost * limit.interval_ns
    if receipt > now:
        return state - taken if state == receipt + limit.tolerance_ns else state
    owed_us = 0 if limit.max_wait_us else limit.debt_us
    if state > now + limit.tolerance_ns + owed_us * NS_PER_US:
        return state
    return state - max(taken - (now - receipt), 0)


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    return -(-state // NS_PER_US)
