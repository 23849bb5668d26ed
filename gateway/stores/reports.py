"""Stores for requests that gatekeepers report to have admitted: in memory or in Redis.

Masters of Smockron use this instead of a `Store`: nothing is decided, only recorded
(`gateway.limits.reported`). A store that several masters share makes them act as one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from gateway.base.errors import StoreError
from gateway.limits.rate import Limit
from gateway.limits.reported import ALGORITHMS, Reported

MAX_KEYS: Final = 100_000
"""Keys of one limit to remember in memory."""
MAX_TIMES: Final = 2_000_000
"""Times to remember in memory for one limit: some 32 MB."""
TIME_BYTES: Final = 16
KEY_BYTES: Final = 600
"""Approximate memory of a time and a key, including removed entries and room for growth."""
LOOKED_AT: Final = 8
"""How many old keys are examined to find one that can be forgotten."""


Answer = int | StoreError
"""The answer to a report."""


class Report(NamedTuple):
    """A request that a gatekeeper admitted.

    Attributes:
        limits: what it counts for.
        keys: for each of the limits the identity that is counted.
        at_us: when it passes or passed, in microseconds since 1970; at most
            `reported.FURTHEST_US` ahead of now.
    """

    limits: tuple[Limit, ...]
    keys: tuple[str, ...]
    at_us: int


@runtime_checkable
class Reports(Protocol):
    """Records reports, and returns when the next request may pass."""

    async def start(self) -> None:
        """Connect in the background; never fail because the server is not there yet."""

    async def record(self, reports: Sequence[Report], now_us: int) -> Sequence[Answer]:
        """Record reports, one after the other.

        Args:
            reports: the reports.
            now_us: the present, in microseconds since 1970.

        Returns:
            For each report when the next request of its keys may pass, by the limit with the
            longest wait; 0 for now. An error if it is unknown whether all of it was recorded, and
            the known part delays no request.

        Raises:
            StoreError: this applies to all of the reports.
        """

    async def aclose(self) -> None:
        """Close connections."""


Hear = Callable[[bytes], None]
"""Handles a message of a `Relay` immediately: there may be many."""


class Relay(Protocol):
    """Carries messages between all gateways that share their reports, on a best-effort basis."""

    def start(self) -> None:
        """Subscribe in the background."""

    def tell(self, data: bytes, missed: Callable[[], None]) -> None:
        """Send a message to all of them, this gateway included, without waiting.

        Args:
            data: the message.
            missed: called, immediately or later, if it was not sent.
        """

    async def aclose(self) -> None:
        """Unsubscribe."""


@runtime_checkable
class SharedReports(Reports, Protocol):
    """Reports that several gateways share."""

    def relay(self, name: str, hear: Hear) -> Relay:
        """Return a relay for messages between them; close it before this.

        Args:
            name: distinguishes one kind of messages from another.
            hear: handles each message.
        """


class _Keys:
    """The keys of one limit, the most recently reported last."""

    __slots__ = ("_max_keys", "_max_times", "_states", "_times")

    def __init__(self, max_keys: int, max_times: int) -> None:
        self._max_keys = max_keys
        self._max_times = max_times
        # Not a `dict`: finding its first entry scans all entries that were removed before it.
        self._states: OrderedDict[str, Reported] = OrderedDict()
        self._times = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def used_bytes(self) -> int:
        """The approximate memory of these keys."""
        return len(self._states) * KEY_BYTES + self._times * TIME_BYTES

    def record(self, limit: Limit, key: str, at_us: int, now_us: int) -> int:
        """Return when the next request of a key may pass."""
        states = self._states
        kept = states.pop(key, None)
        is_new = kept is None
        if kept is None:
            kept = ALGORITHMS[limit.algorithm]()
        else:
            self._times -= len(kept)
        kept.record(at_us, now_us, limit)
        if kept.expires_us > now_us:
            states[key] = kept
            self._times += len(kept)
        if is_new:
            self._forget_old(now_us)
        while len(states) > self._max_keys or (self._times > self._max_times and len(states) > 1):
            self._forget(self._least_missed(now_us))
        return kept.next_us

    def _forget_old(self, now_us: int) -> None:
        """Forget up to two old keys that do not matter any more: one more than arrived."""
        for _ in range(2):
            oldest = next(iter(self._states), None)
            if oldest is None or self._states[oldest].expires_us > now_us:
                return
            self._forget(oldest)

    def _least_missed(self, now_us: int) -> str:
        """Return an old key; one that must wait only if no other is nearby."""
        states = self._states
        near = [key for key, _ in zip(states, range(LOOKED_AT), strict=False)]
        return next((key for key in near if states[key].next_us <= now_us), near[0])

    def _forget(self, key: str) -> None:
        self._times -= len(self._states.pop(key))


class MemoryReports:
    """Reports that this process keeps, bounded in number.

    If there is no more room, the oldest are forgotten: too much may pass then, never too little.

    Args:
        max_keys: how many keys of one limit to remember.
        max_times: how many times of one limit to remember.
    """

    def __init__(self, max_keys: int = MAX_KEYS, max_times: int = MAX_TIMES) -> None:
        self._max_keys = max_keys
        self._max_times = max_times
        self._scopes: dict[tuple[str, str], _Keys] = {}

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._scopes.values())

    @property
    def used_bytes(self) -> int:
        """The approximate memory of all reports."""
        return sum(keys.used_bytes for keys in self._scopes.values())

    async def start(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def aclose(self) -> None:
        """Forget everything."""
        self._scopes.clear()

    async def record(self, reports: Sequence[Report], now_us: int) -> Sequence[int]:
        """See `record_now`."""
        return self.record_now(reports, now_us)

    def record_now(self, reports: Sequence[Report], now_us: int) -> list[int]:
        """Record reports immediately; see `Reports.record`."""
        answers = []
        for limits, keys, at_us in reports:
            next_us = 0
            for limit, key in zip(limits, keys, strict=True):
                scope = (limit.scope, limit.algorithm)
                kept = self._scopes.get(scope)
                if kept is None:
                    kept = self._scopes[scope] = _Keys(self._max_keys, self._max_times)
                next_us = max(next_us, kept.record(limit, key, at_us, now_us))
            answers.append(next_us)
        return answers
