"""States condensed to two whole numbers, for memory that cannot keep the whole state.

A restored state is never more permissive than the original: it admits no request that the original
would have refused, but it may refuse more. Of a log, only the newest time is left, and all requests
count as made at that time. Usage above the limit is kept as well: it is debt, or was counted under
a limit that may be raised again.

Leases are not condensed: each of them is released by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.limits import (
    fixed_window,
    paced_history,
    sliding_counter,
    sliding_log,
    token_bucket,
)
from gateway.limits.rate import Limit

MOST: Final = 2**63 - 1
"""The largest number kept; as a time it is centuries away."""

Condensed = tuple[int, int]
"""A time and the amount counted at it; for a token bucket, the time is the whole state.

The element-wise maximum of two of them is as strict as either.
"""


class Condensing(NamedTuple):
    """How the states of one algorithm are condensed.

    Attributes:
        condense: converts a state and the current time, in microseconds, to two numbers.
        restore: converts these to a state that is as strict under the current limit. If a debit
            follows, its cost is given (otherwise 0), and the state has room for it: a debit that
            counts for a whole period replaces usage that may be of other requests, or that is
            taken to be newer than it was.
        expires_us: when they no longer matter.
    """

    condense: Callable[[Any, int, Limit], Condensed]
    restore: Callable[[Condensed, Limit, int], Any]
    expires_us: Callable[[Condensed, Limit], int]


def _of_bucket(state: int, now_us: int, limit: Limit) -> Condensed:
    return min(state, MOST), 0


def _to_bucket(condensed: Condensed, limit: Limit, debit: int) -> int:
    return condensed[0]


def _bucket_expires_us(condensed: Condensed, limit: Limit) -> int:
    return token_bucket.expires_us(condensed[0], limit)


def _of_log(state: tuple[int, ...], now_us: int, limit: Limit) -> Condensed:
    times = sliding_log.spend(state, now_us, 0, limit, 0)[0]
    return (times[-1], len(times)) if times else (0, 0)


def _to_log(condensed: Condensed, limit: Limit, debit: int) -> tuple[int, ...]:
    at, used = condensed
    if debit:
        used = max(min(used, limit.count + limit.debt - debit), 0)
    return (at,) * used


def _log_expires_us(condensed: Condensed, limit: Limit) -> int:
    return condensed[0] + limit.period_us + 1


def _of_counter(state: sliding_counter.State, now_us: int, limit: Limit) -> Condensed:
    """The estimate as it is now; it only decreases until the next window begins."""
    at, previous, current = sliding_counter.spend(state, now_us, 0, limit, 0)[0]
    period = limit.period_us
    return at, current - (-previous * (period - at % period) // period)


def _to_counter(condensed: Condensed, limit: Limit, debit: int) -> sliding_counter.State:
    at, used = condensed
    return at, 0, used


def _counter_expires_us(condensed: Condensed, limit: Limit) -> int:
    at, used = condensed
    return sliding_counter.expires_us((at, 0, used), limit)


def _of_window(state: fixed_window.State, now_us: int, limit: Limit) -> Condensed:
    return state


def _to_window(condensed: Condensed, limit: Limit, debit: int) -> fixed_window.State:
    return condensed


def _window_expires_us(condensed: Condensed, limit: Limit) -> int:
    return fixed_window.expires_us(condensed, limit)


def _of_history(state: paced_history.State, now_us: int, limit: Limit) -> Condensed:
    _, *times = paced_history.spend(state, now_us, 0, limit, 0)[0]
    return (times[-1], len(times)) if times else (0, 0)


def _to_history(condensed: Condensed, limit: Limit, debit: int) -> paced_history.State:
    at, used = condensed
    # It is unknown whether more were dropped than it holds.
    return (at if used >= limit.burst else 0, *(at,) * used)


def _history_expires_us(condensed: Condensed, limit: Limit) -> int:
    return condensed[0] + paced_history.window_us(limit) + 1


CONDENSED: Final[dict[str, Condensing]] = {
    "token_bucket": Condensing(_of_bucket, _to_bucket, _bucket_expires_us),
    "sliding_window_log": Condensing(_of_log, _to_log, _log_expires_us),
    "sliding_window_counter": Condensing(_of_counter, _to_counter, _counter_expires_us),
    "fixed_window": Condensing(_of_window, _to_window, _window_expires_us),
    "paced_history": Condensing(_of_history, _to_history, _history_expires_us),
}
"""By algorithm; leases are not included."""
