"""The reference for what is kept of reports: pure functions of a state, at any cost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit
from gateway.limits.reported import FURTHEST_US

State = tuple[int, ...]


class After(NamedTuple):
    """What became of a key.

    Attributes:
        state: what is kept for it; empty if nothing is.
        next_us: when the next request may go; 0 if it may go now.
        expires_us: when the state can be forgotten.
    """

    state: State
    next_us: int
    expires_us: int


def record(state: State, at_us: int, now_us: int, limit: Limit) -> After:
    """Take down a request, and say when the next may go.

    Args:
        state: what is kept for the key; empty for a new one.
        at_us: when the request went on, or will; not after `now_us` + `FURTHEST_US`.
        now_us: the present.
        limit: a limit of an algorithm that can follow reports.
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
        return After((), 0, 0)
    newest = times[-1]
    next_us = 0
    if len(times) >= limit.burst:
        next_us = max(now_us, newest) + interval_us(limit)
    return After(times, next_us, newest + window_us(limit) + 1)


def _record_in_bucket(state: State, at_us: int, now_us: int, limit: Limit) -> After:
    """One token is taken at `at_us`; the next request is allowed as soon as there is another.

    Requests that went on although there was none are owed for, up to `FURTHEST_US`.
    """
    interval = interval_us(limit)
    whole = limit.burst * interval
    # A bucket that is full is as good as a new one, also for what is told late.
    full = max(state[0], at_us) if state and state[0] > now_us else at_us
    full = min(full, now_us + FURTHEST_US + whole) + interval
    next_us = full + interval - whole
    return After((full,), next_us if next_us > now_us else 0, full)
