"""Token bucket, as the generic cell rate algorithm (GCRA, ITU-T I.371).

The state is one integer: the theoretical arrival time in nanoseconds, the moment at which
the bucket will be full again. A bucket that was never used, or is full, has no state.
Requests that may wait reserve their place by moving that time further into the future, so
turns are handed out in order of asking and never exceed the rate.
"""

from __future__ import annotations

from gateway.limits.decision import DEBIT, NEVER, Decision
from gateway.limits.rate import NS_PER_US, Limit

State = int


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Take what a request costs, if it may go.

    Args:
        state: what the last call returned; None for a key that is not known.
        now_us: the present, from whichever clock all callers for this key share.
        cost: tokens to take; 0 looks without taking.
        limit: the limit as it is now; it may have changed since the last call.
        max_wait_us: how long this request would wait, at most `limit.max_wait_us`; or `DEBIT`.

    Returns:
        The new state, and `wait_us` and `retry_after_us` as `Decision` has them; a request is
        refused if the latter is not 0. The state that comes with an admission is to be kept
        only if every limit of the request allows it. The one that comes with a refusal is the
        old state put right, with nothing spent: if the key was known it is to be kept always,
        or `retry_after_us` would not hold after the clock went back or the limit was lowered.
        A look (cost 0) need not keep anything.
    """
    now = now_us * NS_PER_US
    tolerance = limit.tolerance_ns
    furthest = now + limit.furthest_ns
    tat = now
    if state is not None and state > now:
        # Further ahead than any reservation or debt can be: the clock went back or the limit was
        # lowered. An empty bucket with a full queue, and what may be owed, is the most that may
        # be held against the key.
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
    """All there is to say of a request: what `spend` returned for it, and what follows.

    Args:
        state: what `spend` returned, and `wait_us` and `retry_after_us` with it.
        now_us: what `spend` was given.
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
    """Undo a decision that was allowed, as far as that cannot let too much through.

    A request that still waits for its turn gives it back if nothing was reserved behind it:
    those behind it keep the turns they were promised, so a gap among them cannot be sold
    again. Once it could go, what it took is refilled with time like everything else; only
    the part that cannot have been refilled since is given back, and only if nobody waits. A
    part that was refilled may already have been spent by somebody else. Without a queue nobody
    waits, and what is beyond the limit is owed: that is given back. This holds for every
    order of decisions and undoings: the state is never less than if the undone requests had
    never been asked for.

    Args:
        state: the present state of the key.
        now_us: the present.
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
    """When the state can be forgotten, in microseconds of the same clock."""
    return -(-state // NS_PER_US)
