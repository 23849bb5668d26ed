"""States in two whole numbers, for who has forgotten the rest.

What is made of them again is never less than the state that they were made from: no request is let
through that this would have refused. It may be more. Of a log only the newest time is left, and
everything counts as made at that time. More than the limit is kept as well: it is what is owed,
or was counted by a limit that may be raised again.

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
"""The largest number that is kept; as a time it is centuries away."""

Condensed = tuple[int, int]
"""A time and how much is counted at it; of a token bucket the time is its whole state.

The larger of both numbers of two of them is as strict as either.
"""


class Condensing(NamedTuple):
    """What one algorithm's states are condensed by.

    Attributes:
        condense: from a state and the present, in microseconds, to two numbers.
        restore: from these to a state that is as strict, under the limit as it is now. Where a
            debit follows, of this cost or else 0, it has room for that: a debit that is counted
            for a whole period takes the place of what others may have used, or of what is taken
            for newer than it was.
        expires_us: when they matter no more.
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
    """The estimate as it is now, which only goes down until the next window begins."""
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
    # Nobody knows whether more were dropped than it holds.
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
"""By algorithm; leases are not among them."""
