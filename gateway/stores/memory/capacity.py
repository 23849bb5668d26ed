"""How many keys a memory store has room for, and which of them make room when it is full.

Expired keys go first. Then the limit with the most keys gives up those that used least: each limit
keeps its share of the room, and a flood of keys displaces only keys of its own limit. Keys that are
being refused are not displaced by new keys of the same limit. The log tells the operator.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.base.clock import Clock
from gateway.limits.rate import Limit
from gateway.observe.metrics import MemoryMetrics
from gateway.stores.base import PROBE
from gateway.stores.memory.table import SHARD_KEYS, Table

SCOPES_PER_SEARCH: Final = 16
"""How many limits are examined for expired keys, and for the one with the most keys."""
EVICTED_OF: Final = 4
"""One of this many examined keys is evicted: that makes room for the next new keys, too."""
SEARCH_EVERY: Final = 64
"""How many new keys of the limit arrive between an unsuccessful search for room and the next."""
LOG_EVERY_US: Final = 60_000_000
"""The interval of log lines about a full store, and how long it counts as full after one."""
FORGOTTEN_PER_KEY: Final = 3
"""For each key with a place, the usage of this many keys without one is kept."""

Idle = tuple[int, int, str]
"""A key that may be evicted, after how much it used and when: the smallest goes first."""

log = logging.getLogger(__name__)


class KeyHolder(Protocol):
    """The keys of one limit, as the store's other limits see them.

    Attributes:
        limit: the limit.
        table: its keys.
        counted: the counters of its policy.
        clock: where its time comes from.
        until_sweep: new keys that arrive before a part of the table is examined, and
        until_search: before room is searched again after an unsuccessful search.
    """

    limit: Limit
    table: Table
    counted: MemoryMetrics
    clock: Clock
    until_sweep: int
    until_search: int

    @property
    def may_be_forgotten(self) -> bool:
        """Whether keys can be evicted before they expire."""

    def sweep(self) -> None:
        """Forget keys of a part of the table that expired a while ago."""

    def forget_expired(self, until_us: int) -> int:
        """Forget the keys of a part of the table that had expired then; return how many."""

    def idle(self, now_us: int, spared: Sequence[str]) -> list[Idle]:
        """Return the keys of a part of the table that may be evicted."""

    def is_refusing(self, key: str, now_us: int) -> bool:
        """Whether a request of this key would be refused now."""

    def evict(self, idle: Sequence[Idle], now_us: int) -> int:
        """Evict keys; return for how many of them the usage still matters."""


class Capacity:
    """The room that the limits of a store share.

    Args:
        max_keys: how many keys there may be.
        clock: the store's.
        advice: see below.
        new: makes the counters of a policy's keys.

    Attributes:
        max_keys: as given.
        advice: what the operator can do, for the log.
        count: how many keys have a place.
        memory: the counters of each policy's keys.
    """

    def __init__(
        self,
        max_keys: int,
        clock: Clock,
        advice: str,
        new: Callable[[str], MemoryMetrics] = lambda _: MemoryMetrics(),
    ) -> None:
        self.max_keys = max_keys
        self.count = 0
        self.memory: dict[str, MemoryMetrics] = {}
        self._clock = clock
        self.advice = advice
        self._new = new
        self._ring: deque[KeyHolder] = deque()
        self._logged_us: dict[str, int] = {}
        self._charged: Counter[str] = Counter()
        self._logged_refused: dict[str, int] = {}
        self._full_until_us = 0
        self._policy = ""

    def add(self, scope: KeyHolder) -> None:
        """Add a limit."""
        self._ring.append(scope)

    def of_policy(self, scope: str) -> MemoryMetrics:
        """Return the counters of a policy's keys, by the scope of one of its limits."""
        if scope == PROBE:
            return MemoryMetrics()
        policy = policy_of(scope)
        if policy not in self.memory:
            self.memory[policy] = self._new(policy)
        return self.memory[policy]

    def clear(self) -> None:
        """Forget how many keys there were, once there are none."""
        self.count = 0
        for counted in self.memory.values():
            counted.keys = 0

    @property
    def warning(self) -> str:
        """The warning for the operator now; empty if all keys have places."""
        if self._clock() >= self._full_until_us:
            return ""
        return f"the memory store is full (max_keys={self.max_keys}, policy {self._policy})"

    @property
    def room_for_forgotten(self) -> int:
        """For how many keys without a place each limit keeps their usage."""
        return max(1, FORGOTTEN_PER_KEY * self.max_keys // len(self._ring))

    def has_room(self, scope: KeyHolder, spared: Sequence[str]) -> bool:
        """Make room for a new key if there is none; return whether there is room now.

        Args:
            scope: the limit of the new key.
            spared: keys that must stay, since they are being decided on.
        """
        scope.until_sweep -= 1
        if scope.until_sweep <= 0:
            scope.sweep()
        if self.count >= self.max_keys:
            self._make_room(scope, spared)
        return self.count < self.max_keys

    def _make_room(self, scope: KeyHolder, spared: Sequence[str]) -> None:
        """Evict keys for new ones of a limit; if it has the most keys, those that can still spend.

        Args:
            scope: the limit.
            spared: keys that must stay.
        """
        if scope.until_search:
            scope.until_search -= 1
        elif not self._forget_expired() and not self._evict(scope, spared):
            scope.until_search = SEARCH_EVERY

    def _evict(self, scope: KeyHolder, spared: Sequence[str]) -> int:
        largest = self._largest(scope)
        now_us = largest.clock()
        idle = largest.idle(now_us, spared)
        chosen = sorted(idle)[: max(1, len(idle) // EVICTED_OF)]
        if largest is scope:
            # Within one limit, evicting a key that has used the limit up would gain nothing.
            chosen = [one for one in chosen if not scope.is_refusing(one[2], now_us)]
        if largest.evict(chosen, now_us) or not chosen:
            self.note_full(largest)
        return len(chosen)

    def _forget_expired(self) -> int:
        looked = 0
        ring = self._ring
        for _ in range(min(len(ring), SCOPES_PER_SEARCH)):
            if looked > SHARD_KEYS:
                break
            # From the far end, so that the next search begins with others.
            ring.rotate()
            scope = ring[0]
            looked += len(scope.table) // len(scope.table.shards) + 1
            forgotten = scope.forget_expired(scope.clock())
            if forgotten:
                return forgotten
        return 0

    def _largest(self, scope: KeyHolder) -> KeyHolder:
        """Return the limit with the most keys of those examined; `scope` if it has as many."""
        largest, most = scope, len(scope.table) if scope.may_be_forgotten else 0
        for place in range(min(len(self._ring), SCOPES_PER_SEARCH)):
            one = self._ring[place]
            if one.may_be_forgotten and len(one.table) > most:
                largest, most = one, len(one.table)
        return largest

    def charge(self, scope: KeyHolder) -> None:
        """Count a new key that has less left because of the usage of others."""
        self._charged[policy_of(scope.limit.scope)] += 1
        self.note_full(scope)

    def note_full(self, scope: KeyHolder) -> None:
        """Note that keys of a limit were evicted or found no place, and log it now and then."""
        now_us = self._clock()
        self._full_until_us = now_us + LOG_EVERY_US
        self._policy = policy = policy_of(scope.limit.scope)
        counted = scope.counted
        held = counted.refused + self._charged[policy]
        refused = held - self._logged_refused.get(policy, 0)
        kind = "refused" if refused else "full"
        if now_us < self._logged_us.get(kind, now_us):
            return
        self._logged_us[kind] = now_us + LOG_EVERY_US
        if refused:
            self._logged_refused[policy] = held
            log.warning(
                "the memory store is full (max_keys=%d) and cannot distinguish all keys: "
                "requests of policy %s are refused, or will be sooner, because of other keys; "
                "%d since the last such message; %s",
                self.max_keys,
                policy,
                refused,
                self.advice,
            )
        else:
            log.warning(
                "the memory store is full (max_keys=%d): keys of policy %s make room before "
                "they expire, and only their usage is kept; %s",
                self.max_keys,
                policy,
                self.advice,
            )


def policy_of(scope: str) -> str:
    """Return the policy of a limit, by the limit's scope."""
    return scope.rpartition("/")[0] or scope
