"""Limits on requests that others let through and report: when may the next one go?

Who decides by itself reports afterwards, each request with the time at which it went on or will go
on. Nothing can be refused here; what is found is when the next request is allowed. Smockron's
masters do this.

For `paced_history` what is kept is what Smockron's README says: the newest `burst` times. For
`token_bucket` it is one time, that at which the bucket would be full again. Both are changed in
place: a report that comes in order costs the same with any burst, and a late one the way to its
place, found by halves.

Times are microseconds since 1970; each reported time is its reporter's, so it may be late or ahead.
The twin of this is `gateway/stores/redis/lua/report.lua`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit

FURTHEST_US: Final = 60_000_000
"""How far ahead of now a time may be; what is further is no time of a request that waits."""
SPARED: Final = 16
"""Times that are left where they are at least, before all that were dropped are taken out."""


def furthest_next_us(limits: Iterable[Limit]) -> int:
    """How far ahead of now the next request may have to wait until, by any report and limit."""
    # A bucket may owe as much as is reported up to the last moment, and one token more.
    return FURTHEST_US + 2 * max(map(interval_us, limits), default=0)


class Reported(Protocol):
    """What is kept of a key; its length is the number of times in it.

    Attributes:
        next_us: when the next request may go; 0 if it may go now.
        expires_us: when it can be forgotten; 0 for at once.
    """

    next_us: int
    expires_us: int

    def __len__(self) -> int:
        """How many times are kept."""

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """Take down a request.

        Args:
            at_us: when the request went on, or will; not after `now_us` + `FURTHEST_US`.
            now_us: the present.
            limit: the limit, of the algorithm that this is for.
        """


class History:
    """The newest `burst` times: `Reported` by `paced_history`."""

    __slots__ = ("_first", "_times", "expires_us", "next_us")

    def __init__(self) -> None:
        self.next_us = 0
        self.expires_us = 0
        # Ascending; those before the first are dropped, and are taken out many at a time.
        self._times = array("q")
        self._first = 0

    def __len__(self) -> int:
        return len(self._times) - self._first

    @property
    def times(self) -> list[int]:
        """All of them, ascending."""
        return self._times[self._first :].tolist()

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """See `Reported.record`."""
        times, window = self._times, window_us(limit)
        self._pull_back(now_us + FURTHEST_US)
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

    def _pull_back(self, furthest_us: int) -> None:
        """Bring within reach what is further ahead, as after the clock went back."""
        times = self._times
        if len(self) and times[-1] > furthest_us:
            place = bisect_right(times, furthest_us, self._first)
            times[place:] = array("q", [furthest_us]) * (len(times) - place)

    def _drop(self, first: int, oldest_us: int) -> None:
        """Keep those from a place on, of these the ones that are not before a moment."""
        times = self._times
        if first < len(times) and times[first] < oldest_us:
            first = bisect_left(times, oldest_us, first)
        if first > SPARED and 2 * first > len(times):
            del times[:first]
            first = 0
        self._first = first


class Bucket:
    """When the bucket would be full again: `Reported` by `token_bucket`."""

    __slots__ = ("expires_us", "next_us")

    def __init__(self) -> None:
        self.next_us = 0
        self.expires_us = 0

    def __len__(self) -> int:
        return 1

    def record(self, at_us: int, now_us: int, limit: Limit) -> None:
        """Take one token at a time; the next may go as soon as there is another.

        Requests that went on although there was none are owed for, up to `FURTHEST_US`.
        """
        interval = interval_us(limit)
        whole = limit.burst * interval
        # A bucket that is full is as good as a new one, also for what is told late.
        full = max(self.expires_us, at_us) if self.expires_us > now_us else at_us
        full = min(full, now_us + FURTHEST_US + whole) + interval
        next_us = full + interval - whole
        self.next_us = next_us if next_us > now_us else 0
        self.expires_us = full


ALGORITHMS: Final[Mapping[str, Callable[[], Reported]]] = {
    "paced_history": History,
    "token_bucket": Bucket,
}
"""What is kept of a new key, by those algorithms that can follow reports."""
