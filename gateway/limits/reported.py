"""Limits on requests that other processes admit and report: when may the next one go?

Clients that decide by themselves report each request afterwards, with the time at which it passed
or will pass. Nothing can be refused here; the result is when the next request is allowed.
Smockron's masters work this way.

`paced_history` keeps what Smockron's README describes: the newest `burst` times. `token_bucket`
keeps one time, at which the bucket would be full again. Both are changed in place: a report in
order takes constant time with any burst, a late one a binary search.

Times are microseconds since 1970; reported times are by the reporter's clock, so they may be late
or ahead. The Lua twin is `gateway/stores/redis/lua/report.lua`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit

FURTHEST_US: Final = 60_000_000
"""How far ahead of now a time may be; later ones cannot be of a waiting request."""
SPARED: Final = 16
"""How many dropped times are left in place before all of them are removed."""


def furthest_next_us(limits: Iterable[Limit]) -> int:
    """How far ahead of now the next request may have to wait, for any report and limit."""
    # A bucket may owe as much as is reported up to the last moment, and one token more.
    return FURTHEST_US + 2 * max(map(interval_us, limits), default=0)


class Reported(Protocol):
    """The state of a key; its length is the number of times in it.

    Attributes:
        next_us: when the next request may go; 0 if it may go now.
        expires_us: when it can be dropped; 0 for immediately.
    """

    next_us: int
    expires_us: int

    def __len__(self) -> int:
        """Return the number of times kept."""

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """Record a request.

        Args:
            at_us: when the request passed, or will pass; not after `now_us` + `FURTHEST_US`.
            now_us: the present.
            limit: a limit of this algorithm.
        """


class History:
    """The newest `burst` times: `Reported` by `paced_history`."""

    __slots__ = ("_first", "_times", "expires_us", "next_us")

    def __init__(self) -> None:
        self.next_us = 0
        self.expires_us = 0
        # Ascending; those before the first are dropped, and removed many at a time.
        self._times = array("q")
        self._first = 0

    def __len__(self) -> int:
        return len(self._times) - self._first

    @property
    def times(self) -> list[int]:
        """Return all times, ascending."""
        return self._times[self._first :].tolist()

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """See `Reported.record`."""
        times, window = self._times, window_us(limit)
        self._clamp_future(now_us + FURTHEST_US)
        if len(times) == self._first or at_us >= times[-1]:
            times.append(at_us)
        else:
            times.insert(bisect_right(times, at_us, self._first), at_us)
        self._drop(max(len(times) - limit.burst, self._first), now_us - window)
        kept = len(self)
        self.next_us = self.expires_us = 0
        if kept:
            self.expires_us = times[-1] + window + 1
        if kept >= limit.burst:
            self.next_us = max(now_us, times[-1]) + interval_us(limit)

    def _clamp_future(self, furthest_us: int) -> None:
        """Bring times that are too far ahead within reach, as after the clock went back."""
        times = self._times
        if len(self) and times[-1] > furthest_us:
            place = bisect_right(times, furthest_us, self._first)
            times[place:] = array("q", [furthest_us]) * (len(times) - place)

    def _drop(self, first: int, oldest_us: int) -> None:
        """Keep the times from a position on that are not before a moment."""
        times = self._times
        if first < len(times) and times[first] < oldest_us:
            first = bisect_left(times, oldest_us, first)
        if first > SPARED and 2 * first > len(times):
            del times[:first]
            first = 0
        self._first = first


class Bucket:
    """The time at which the bucket would be full again: `Reported` by `token_bucket`."""

    __slots__ = ("expires_us", "next_us")

    def __init__(self) -> None:
        self.next_us = 0
        self.expires_us = 0

    def __len__(self) -> int:
        return 1

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """Take one token; the next request may go when another is available.

        Requests that passed without a token become debt, up to `FURTHEST_US`.
        """
        interval = interval_us(limit)
        whole = limit.burst * interval
        # A full bucket is the same as a new one, also for late reports.
        full = max(self.expires_us, at_us) if self.expires_us > now_us else at_us
        full = min(full, now_us + FURTHEST_US + whole) + interval
        next_us = full + interval - whole
        self.next_us = next_us if next_us > now_us else 0
        self.expires_us = full


ALGORITHMS: Final[Mapping[str, Callable[[], Reported]]] = {
    "paced_history": History,
    "token_bucket": Bucket,
}
"""The state of a new key, for the algorithms that support reports."""
