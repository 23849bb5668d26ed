"""Token bucket, as the generic cell rate algorithm (GCRA, ITU-T I.371).

The state is one integer: the theoretical arrival time in nanoseconds, the moment at which
the bucket will be full again. A bucket that was never used, or is full, has no state.
Requests that may wait reserve their place by moving that time further into the future, so
turns are handed out in order of asking and never exceed the rate.
"""

from __future__ import annotations

from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import NS_PER_US, Limit

State = int


def decide(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, Decision]:
    """Decide on one request.

    Args:
        state: what the last call returned; None for a key that is not known.
        now_us: the present, from whichever clock all callers for this key share.
        cost: tokens to take; 0 looks without taking.
        limit: the limit as it is now; it may have changed since the last call.
        max_wait_us: how long this request would wait, at most `limit.max_wait_us`.

    Returns:
        The new state, and the decision. The state is to be kept only if every limit of the
        request allows it.
    """
    now = now_us * NS_PER_US
    interval = limit.interval_ns
    tolerance = limit.tolerance_ns
    if state is None or state < now:
        tat = now
    else:
        # Further ahead than any reservation can be: the clock went back or the limit was
        # lowered. An empty bucket with a full queue is the most that may be held against
        # the key.
        furthest = now + tolerance + limit.max_wait_us * NS_PER_US
        tat = state if state <= furthest else furthest
    burst = limit.burst
    if cost > burst:
        remaining = (now + tolerance - tat) // interval
        return tat, Decision(
            False, 0, NEVER, burst, max(remaining, 0), -((now - tat) // NS_PER_US), tat
        )
    after = tat + cost * interval
    wait_ns = after - tolerance - now
    if wait_ns <= 0:
        # Negative floor division rounds the reset up to a whole microsecond.
        return after, Decision(
            True, 0, 0, burst, -wait_ns // interval, -((now - after) // NS_PER_US), after
        )
    wait_us = -(-wait_ns // NS_PER_US)
    if wait_us <= max_wait_us or cost == 0:
        return after, Decision(
            True,
            wait_us if cost else 0,
            0,
            burst,
            0,
            -((now - after) // NS_PER_US),
            after,
        )
    remaining = (now + tolerance - tat) // interval
    return tat, Decision(
        False,
        0,
        wait_us - max_wait_us,
        burst,
        max(remaining, 0),
        -((now - tat) // NS_PER_US),
        tat,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Undo a decision that was allowed, as far as that cannot let too much through.

    A reservation is given back if nothing was reserved behind it. Tokens taken without
    waiting are given back as long as they are not yet refilled and nobody waits: taking a
    conforming request out of the sequence then leaves a conforming sequence.

    Args:
        state: the present state of the key.
        now_us: the present.
        cost: what the request took.
        limit: the limit.
        receipt: the `Decision.receipt` of the request.
    """
    if state is None:
        return None
    now = now_us * NS_PER_US
    is_last = state == receipt
    nobody_waits = state <= now + limit.tolerance_ns
    if is_last or (nobody_waits and receipt > now):
        return state - cost * limit.interval_ns
    return state


def expires_us(state: State, limit: Limit) -> int:
    """When the state can be forgotten, in microseconds of the same clock."""
    return -(-state // NS_PER_US)
