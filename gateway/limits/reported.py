"""Limits on requests that others let through and report: when may the next one go?

Who decides by itself reports afterwards, each request with the time at which it went on or will go
on. Nothing can be refused here; what is found is when the next request is allowed. Smockron's
masters do this.

For `paced_history` the state is what Smockron's README says: the newest `burst` times, ascending.
For `token_bucket` it is one time, that at which the bucket would be full again.

Times are microseconds since 1970; each reported time is its reporter's, so it may be late or ahead.
The twin of this is `gateway/stores/lua/report.lua`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit

State = tuple[int, ...]

ALGORITHMS: Final = ("paced_history", "token_bucket")
"""Those that can follow reports."""

FURTHEST_US: Final = 60_000_000
"""How far ahead of now a time may be; what is further is no time of a request that waits."""


class Reported(NamedTuple):
    """What became of a key.

    Attributes:
        state: what is kept for it; empty if nothing is.
        next_us: when the next request may go; 0 if it may go now.
        expires_us: when the state can be forgotten.
    """

    state: State
    next_us: int
    expires_us: int


def record(state: State, at_us: int, now_us: int, limit: Limit) -> Reported:
    """Take down a request, and say when the next may go.

    Args:
        state: what is kept for the key; empty for a new one.
        at_us: when the request went on, or will; not after `now_us` + `FURTHEST_US`.
        now_us: the present.
        limit: a limit of one of `ALGORITHMS`.
    """
    if limit.algorithm == "token_bucket":
        return _record_in_bucket(state, at_us, now_us, limit)
    furthest = now_us + FURTHEST_US
    oldest = now_us - window_us(limit)
    if state and state[-1] > furthest:  # The clock went back.
        state = tuple(min(time, furthest) for time in state)
    if not state or at_us >= state[-1]:
        times = (*state, at_us)
    else:
        place = bisect_right(state, at_us)
        times = (*state[:place], at_us, *state[place:])
    first = max(len(times) - limit.burst, 0)
    if times[first] < oldest:
        first = bisect_left(times, oldest)
    if first:
        times = times[first:]
    if not times:
        return Reported((), 0, 0)
    newest = times[-1]
    next_us = 0
    if len(times) >= limit.burst:
        next_us = max(now_us, newest) + interval_us(limit)
    return Reported(times, next_us, newest + window_us(limit) + 1)


def bucket_us(limit: Limit) -> int:
    """How long an empty bucket takes to be full."""
    return limit.burst * interval_us(limit)


def _record_in_bucket(state: State, at_us: int, now_us: int, limit: Limit) -> Reported:
    """One token is taken at `at_us`; the next request is allowed as soon as there is another.

    Requests that went on although there was none are owed for, up to `FURTHEST_US`.
    """
    interval, whole = interval_us(limit), bucket_us(limit)
    # A bucket that is full is as good as a new one, also for what is told late.
    full = max(state[0], at_us) if state and state[0] > now_us else at_us
    full = min(full, now_us + FURTHEST_US + whole) + interval
    next_us = full + interval - whole
    return Reported((full,), next_us if next_us > now_us else 0, full)
