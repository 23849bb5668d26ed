"""Concurrency: requests in flight, as leases that expire.

A limit of `count` admits a request while fewer are in flight. Each request holds a lease: released
by `give_back` when the request ends, extended by `renew` while it lasts, and expired `period_us`
after the last renewal if its holder is gone. A lease is held up to the microsecond before its
expiry. The `receipt` of a decision is the lease's id.

The time at which a slot becomes free is unknown, so there is no queue by time: `max_wait_us` has no
meaning here, and a request is admitted now or refused. `retry_after_us` is when enough leases will
have expired at the latest; a slot may be free much sooner. To wait, try again.

The state is whole numbers, `(last_id, id, expires, cost, id, expires, cost, ...)`: the highest id
assigned so far, then the leases by id. An id is the microsecond of the request, or one more than
the last id if that is later: so ids are never reused, even after the state was dropped.
"""

from __future__ import annotations

from bisect import bisect_left

from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import Limit

State = tuple[int, ...]


def spend(
    state: State | None, now_us: int, cost: int, limit: Limit, max_wait_us: int
) -> tuple[State, int, int]:
    """Spend the cost of a request if allowed; arguments and result as in `token_bucket.spend`."""
    capacity = limit.count
    last_id, *held = _repair(state, now_us, limit) if state is not None else (0,)
    lacking = sum(held[2::3]) + cost - capacity
    retry_after_us = 0
    if cost > capacity:
        retry_after_us = NEVER
    elif lacking > 0 and cost:
        retry_after_us = _free_us(held, lacking) - now_us
    elif cost:
        last_id = max(now_us, last_id + 1)
        held += last_id, now_us + limit.period_us, cost
    return (last_id, *held), 0, retry_after_us


def describe(
    state: State, now_us: int, cost: int, limit: Limit, wait_us: int, retry_after_us: int
) -> Decision:
    """Return the full decision; arguments and result as in `token_bucket.describe`."""
    return Decision(
        not retry_after_us,
        wait_us,
        retry_after_us,
        limit.count,
        max(limit.count - sum(state[3::3]), 0),
        max(state[2::3]) - now_us if len(state) > 1 else 0,
        state[0] if cost and not retry_after_us else 0,
    )


def give_back(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> State | None:
    """Release the lease: the request has ended, or was not made."""
    if state is None:
        return None
    place = _find(state, receipt)
    return state[:place] + state[place + 3 :] if place else state


def renew(
    state: State | None, now_us: int, cost: int, limit: Limit, receipt: int
) -> tuple[State | None, bool]:
    """Extend the lease by another `period_us`.

    Returns:
        The new state, and whether the lease was still held. An expired lease is not: its slot may
        have been given away.
    """
    place = _find(state, receipt) if state is not None else 0
    if state is None or not place or state[place + 1] <= now_us:
        return state, False
    return (*state[: place + 1], now_us + limit.period_us, *state[place + 2 :]), True


def expires_us(state: State, limit: Limit) -> int:
    """Return when the state can be dropped, in microseconds of the same clock."""
    return max(state[0] + 1, *state[2::3]) if len(state) > 1 else state[0] + 1


def _repair(state: State, now_us: int, limit: Limit) -> State:
    """Return the state without expired leases.

    If the clock went back, or leases became shorter, no slot is held for longer than a lease.
    """
    furthest = now_us + limit.period_us
    if all(now_us < expires <= furthest for expires in state[2::3]):
        return state
    kept = [state[0]]
    for place in range(1, len(state), 3):
        lease_id, expires, cost = state[place : place + 3]
        if expires > now_us:
            kept += lease_id, min(expires, furthest), cost
    return tuple(kept)


def _free_us(held: list[int], lacking: int) -> int:
    """Return when enough leases for a cost will have expired."""
    for expires, cost in sorted(zip(held[1::3], held[2::3], strict=True)):
        lacking -= cost
        if lacking <= 0:
            return expires
    raise AssertionError("the missing slots are held by other requests")


def _find(state: State, lease_id: int) -> int:
    """Return the position of the lease in the state; 0 if it is not there."""
    ids = state[1::3]
    place = bisect_left(ids, lease_id)
    return 1 + 3 * place if place < len(ids) and ids[place] == lease_id else 0
