"""Who makes room when a memory store is full, and how its operator is told.

Expired keys go first. Then the limit that has most keys gives up some, those that used least: so
each limit has its share of the room, and a flood of keys takes places of its own kind. Keys that
are being refused keep their places against new ones of the same limit.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gateway.base.clock import Clock
from gateway.stores.memory.table import SHARD_KEYS

if TYPE_CHECKING:
    from gateway.stores.memory.scope import Scope

SCOPES_PER_LOOK: Final = 16
"""Of how many limits it is seen who has most keys, and whether something expired."""
EVICTED_OF: Final = 4
"""One of so many keys that are looked at loses its place: room for the next ones too."""
LOOK_EVERY: Final = 64
"""After it was in vain, so many new keys of a limit go without a look for room."""
TOLD_EVERY_US: Final = 60_000_000
"""How often the log says that the store is full; and how long it is called full afterwards."""

log = logging.getLogger(__name__)


class Crowd:
    """The limits of a store, as they compete for room.

    Args:
        max_keys: how many keys there may be.
        clock: the store's.
        remedy: what an operator would do, for the log.
    """

    def __init__(self, max_keys: int, clock: Clock, remedy: str) -> None:
        self._max_keys = max_keys
        self._clock = clock
        self._remedy = remedy
        self._ring: deque[Scope] = deque()
        self._told_us: dict[str, int] = {}
        self._charged: Counter[str] = Counter()
        self._told_refused: dict[str, int] = {}
        self._full_until_us = 0
        self._policy = ""

    def __len__(self) -> int:
        return len(self._ring)

    def join(self, scope: Scope) -> None:
        """One more limit."""
        self._ring.append(scope)

    @property
    def warning(self) -> str:
        """What is to be said of the store at the moment; empty if all keys have places."""
        if self._clock() >= self._full_until_us:
            return ""
        return f"the memory store is full (max_keys={self._max_keys}, policy {self._policy})"

    def make_room(self, scope: Scope, spared: Sequence[str]) -> int:
        """Take places for new keys of a limit from others; returns how many.

        Args:
            scope: the limit; where it has most keys of all, its own that can still spend go.
            spared: keys that must stay, since they are being decided on.
        """
        if scope.until_look:
            scope.until_look -= 1
            return 0
        made = self._forget_expired() or self._evict(scope, spared)
        if not made:
            scope.until_look = LOOK_EVERY
        return made

    def _evict(self, scope: Scope, spared: Sequence[str]) -> int:
        largest = self._largest(scope)
        now_us = largest.clock()
        idle = largest.idle(now_us, spared)
        chosen = sorted(idle)[: max(1, len(idle) // EVICTED_OF)]
        if largest is scope:
            # Of the same limit there is no sense in taking a place from who has used it up.
            chosen = [one for one in chosen if not scope.is_refusing(one[2], now_us)]
        if largest.evict(chosen, now_us) or not chosen:
            self.tell(largest)
        return len(chosen)

    def _forget_expired(self) -> int:
        looked = 0
        ring = self._ring
        for _ in range(min(len(ring), SCOPES_PER_LOOK)):
            if looked > SHARD_KEYS:
                break
            # From the far end, so that the next look begins with others.
            ring.rotate()
            scope = ring[0]
            looked += len(scope.table) // len(scope.table.shards) + 1
            forgotten = scope.forget_expired(scope.clock())
            if forgotten:
                return forgotten
        return 0

    def _largest(self, scope: Scope) -> Scope:
        """The limit with most keys, of some that take turns; `scope` if it has as many."""
        largest, most = scope, len(scope.table) if scope.may_be_forgotten else 0
        for place in range(min(len(self._ring), SCOPES_PER_LOOK)):
            one = self._ring[place]
            if one.may_be_forgotten and len(one.table) > most:
                largest, most = one, len(one.table)
        return largest

    def charge(self, scope: Scope) -> None:
        """Note that a new key was let through, and has less left for what others used."""
        self._charged[policy_of(scope.limit.scope)] += 1
        self.tell(scope)

    def tell(self, scope: Scope) -> None:
        """Note that keys of a limit have lost their places or found none, and say so at times."""
        now_us = self._clock()
        self._full_until_us = now_us + TOLD_EVERY_US
        self._policy = policy = policy_of(scope.limit.scope)
        counted = scope.counted
        held = counted.refused + self._charged[policy]
        refused = held - self._told_refused.get(policy, 0)
        kind = "refused" if refused else "full"
        if now_us < self._told_us.get(kind, now_us):
            return
        self._told_us[kind] = now_us + TOLD_EVERY_US
        if refused:
            self._told_refused[policy] = held
            log.warning(
                "requests of policy %s are refused, or will be sooner, for what other keys used: "
                "the memory store is full (max_keys=%d) and cannot tell all keys apart; "
                "%d since it last said so; %s",
                policy,
                self._max_keys,
                refused,
                self._remedy,
            )
        else:
            log.warning(
                "the memory store is full (max_keys=%d): keys of policy %s make room before they "
                "expire, and of these only what they used is kept; %s",
                self._max_keys,
                policy,
                self._remedy,
            )


def policy_of(scope: str) -> str:
    """The policy that a limit is of, by the limit's scope."""
    return scope.rpartition("/")[0] or scope
