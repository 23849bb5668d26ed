"""The keys of one limit of one policy in memory.

Keys that have a place are in a table, exactly. For the others, which were evicted or never had a
place, only the usage is kept (`forgotten`), so that a key that returns does not start anew. Leases
are kept by name and cannot be condensed: keys that find no place for their leases share a few keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gateway.base.clock import Clock
from gateway.limits import ALGORITHMS, Algorithm
from gateway.limits.condensed import CONDENSED, Condensed, Condensing
from gateway.limits.decision import DEBIT
from gateway.limits.rate import Limit
from gateway.stores.memory.capacity import Capacity, Idle
from gateway.stores.memory.forgotten import Forgotten
from gateway.stores.memory.table import Table

NEW_KEYS_PER_SWEEP: Final = 64
"""New keys between two sweeps of a piece of the table: each new key gets some four looks."""
IDLE_US: Final = 1_000_000
"""How long ago a key must have expired to be forgotten although there is room: a key that is used
again and again should not be a new one each time."""
SHARED_KEYS: Final = 256
"""How many keys are shared by those whose leases find no place."""

Spent = tuple[Any, int, int, int]
"""The result of a request: the key's state, the time, `wait_us` and `retry_after_us`."""


class UnplacedKey(NamedTuple):
    """The usage held against a key that has no place.

    Attributes:
        key: the key that it is counted under.
        state: the state held against it; None for none.
        is_own: whether all of it is its own usage.
    """

    key: str
    state: Any
    is_own: bool


class Scope:
    """The keys of one limit of one policy, as a `MemoryStore` counts them.

    Args:
        capacity: the room that it shares with the store's other limits.
        limit: the limit as it was last asked for.
        clock: the source of the time.

    Attributes:
        until_sweep: new keys that arrive before a piece of the table is swept, and
        until_search: before room is searched again after an unsuccessful search.
    """

    __slots__ = (
        "_capacity",
        "_condensing",
        "_forgotten",
        "_spend",
        "algorithm",
        "clock",
        "counted",
        "limit",
        "table",
        "until_search",
        "until_sweep",
    )

    def __init__(self, capacity: Capacity, limit: Limit, clock: Clock) -> None:
        self.limit = limit
        self.algorithm: Algorithm = ALGORITHMS[limit.algorithm]
        self.clock = clock
        self.table = Table()
        self.until_sweep = NEW_KEYS_PER_SWEEP
        self.until_search = 0
        self.counted = capacity.of_policy(limit.scope)
        self._capacity = capacity
        self._spend = self.algorithm.spend
        self._condensing: Condensing | None = CONDENSED.get(limit.algorithm)
        self._forgotten: Forgotten | None = None

    def spend(
        self,
        key: str,
        cost: int,
        limit: Limit,
        max_wait_us: int,
        identity: Callable[[str], str] | None = None,
    ) -> Spent:
        """Take what a request costs if this limit admits it; return the raw result.

        Args:
            key: the identity that is counted.
            cost: what the request costs; 0 looks without taking.
            limit: the limit.
            max_wait_us: how long the request may wait, at most `limit.max_wait_us`.
            identity: returns the identity of `key`, if that is a caller's own name; escapes begin
                with `%`, and nothing else does.
        """
        now_us = self.clock()
        table = self.table
        shard = table.shards[hash(key) & table.mask]
        before = shard.get(key)
        if identity is not None and (before is None or "%" in key):
            # A name that is known, and has no escapes, is already an identity.
            return self.spend(identity(key), cost, limit, max_wait_us)
        if before is None:
            return self._spend_new(key, now_us, cost, limit, max_wait_us)
        after, wait_us, retry_after_us = self._spend(before, now_us, cost, limit, max_wait_us)
        # A refusal corrects the state if the clock went back or the limit was lowered.
        if cost or retry_after_us:
            shard[key] = after
        return after, now_us, wait_us, retry_after_us

    def _spend_new(self, key: str, now_us: int, cost: int, limit: Limit, max_wait_us: int) -> Spent:
        if self._forgotten is None and self._condensing is not None:
            # The usual case: no usage is held against a new key. This saves 5 % of its time.
            after, wait_us, retry_after_us = self._spend(None, now_us, cost, limit, max_wait_us)
            if cost and not retry_after_us:
                self.keep_new(key, after, now_us, (key,))
            return after, now_us, wait_us, retry_after_us
        debit = cost if max_wait_us == DEBIT else 0
        found = self.find(key, now_us, limit, (key,), debit)
        after, wait_us, retry_after_us = self._spend(found.state, now_us, cost, limit, max_wait_us)
        if retry_after_us:
            self.keep_refused(found, after, now_us)
        elif cost:
            is_known = found.state is not None
            self.keep_new(found.key, after, now_us, (key,), is_known=is_known, is_own=found.is_own)
        return after, now_us, wait_us, retry_after_us

    def find(
        self, key: str, now_us: int, limit: Limit, spared: Sequence[str], debit: int = 0
    ) -> UnplacedKey:
        """Return the usage held against a key that has no place.

        Args:
            key: the key.
            now_us: the current time.
            limit: the limit as it is asked for.
            spared: keys that are being decided on and must keep their places.
            debit: usage from before this ask that is counted next.
        """
        if self._condensing is None:
            return self._find_lease(key, now_us, spared)
        if self._forgotten is None:
            return UnplacedKey(key, None, True)
        recalled = self._forgotten.recall(key, now_us)
        if recalled is None:
            return UnplacedKey(key, None, True)
        state = self._condensing.restore(recalled.condensed, limit, debit)
        return UnplacedKey(key, state, recalled.is_own)

    def _find_lease(self, key: str, now_us: int, spared: Sequence[str]) -> UnplacedKey:
        """Return a key of its own, if there is room and it holds nothing by another."""
        shared = shared_key(key)
        state = self.table.get(shared)
        if state is not None and self.algorithm.expires_us(state, self.limit) > now_us:
            return UnplacedKey(shared, state, False)
        has_room = self._capacity.has_room(self, spared)
        return UnplacedKey(key if has_room else shared, None if has_room else state, has_room)

    def keep_new(
        self,
        key: str,
        state: Any,
        now_us: int,
        spared: Sequence[str],
        *,
        is_known: bool = False,
        is_own: bool = True,
    ) -> None:
        """Keep the state of an admitted key that has no place, in a place if there is room.

        Args:
            key: as it was found.
            state: the state held against it now.
            now_us: the current time.
            spared: as for `find`.
            is_known: whether any usage was held against it before.
            is_own: whether that was its own usage; otherwise usage of others becomes its own.
        """
        capacity = self._capacity
        if not is_own and self._condensing is not None:
            capacity.charge(self)
        if self._condensing is None:
            self.counted.overflowed += key.startswith(OVERFLOW_KEY)
            self.put(key, state)
        elif capacity.has_room(self, spared):
            if is_known and self._forgotten is not None:
                self._forgotten.drop(key)
            self.put(key, state)
        else:
            self.counted.overflowed += 1
            self._remember(key, self._condensing.condense(state, now_us, self.limit), now_us)
            capacity.note_full(self)

    def assume(self, key: str, state: Any, limit: Limit) -> None:
        """Hold a state against a key, unless at least as much is held against it already."""
        now_us = self.clock()
        if self.algorithm.expires_us(state, limit) <= now_us:
            return
        own = self.table.get(key)
        found = None
        if own is None:
            found = self.find(key, now_us, limit, (key,))
            own = found.state
        if own is not None and not self._is_less(own, state, now_us, limit):
            return
        if found is None:
            self.put(key, state)
        else:
            self.keep_new(
                found.key,
                state,
                now_us,
                (key,),
                is_known=found.state is not None,
                is_own=found.is_own,
            )

    def _is_less(self, one: Any, other: Any, now_us: int, limit: Limit) -> bool:
        """Return whether the first state has less usage than the second."""
        one_said, other_said = (
            self.algorithm.decide(state, now_us, 0, limit, 0)[1] for state in (one, other)
        )
        if one_said.remaining != other_said.remaining:
            return one_said.remaining > other_said.remaining
        return one_said.reset_us < other_said.reset_us

    def put(self, key: str, state: Any) -> None:
        """Keep a state in the table, whether the key has a place or not."""
        if self.table.put(key, state):
            self._capacity.count += 1
            self.counted.keys += 1

    def _forget(self, keys: list[str]) -> None:
        self.table.forget(keys)
        self._capacity.count -= len(keys)
        self.counted.keys -= len(keys)

    def keep_refused(self, found: UnplacedKey, state: Any, now_us: int) -> None:
        """Keep the state of a key that has no place, as a refusal has changed it."""
        if found.state is None:
            return
        if not found.is_own:
            self.counted.refused += 1
            self._capacity.note_full(self)
        if self._condensing is None:
            self.put(found.key, state)
        elif self._forgotten is not None:
            condensed = self._condensing.condense(state, now_us, self.limit)
            self._forgotten.correct(found.key, condensed)

    def sweep(self) -> None:
        """Forget the useless keys of one piece."""
        self.until_sweep = NEW_KEYS_PER_SWEEP
        now_us = self.clock()
        if self._forgotten is not None:
            self._forgotten.sweep(now_us)
        self.forget_expired(now_us - IDLE_US)

    def forget_expired(self, until_us: int) -> int:
        """Forget the keys of one piece that had expired by then; return how many."""
        expires_us, limit = self.algorithm.expires_us, self.limit
        shard = self.table.next_shard()
        expired = [key for key, state in shard.items() if expires_us(state, limit) <= until_us]
        if expired:
            self._forget(expired)
        return len(expired)

    @property
    def may_be_forgotten(self) -> bool:
        """Whether keys can be evicted before they expire; leases cannot."""
        return self._condensing is not None

    def idle(self, now_us: int, spared: Sequence[str]) -> list[Idle]:
        """Return the keys of one piece that may be evicted."""
        if self._condensing is None:
            return []
        condense, limit = self._condensing.condense, self.limit
        idle = []
        for key, state in self.table.next_shard().items():
            if key not in spared:
                at, used = condense(state, now_us, limit)
                idle.append((used, at, key))
        return idle

    def is_refusing(self, key: str, now_us: int) -> bool:
        """Return whether a request of a key that has a place would be refused now."""
        return bool(self._spend(self.table.get(key), now_us, 1, self.limit, 0)[2])

    def evict(self, idle: Sequence[Idle], now_us: int) -> int:
        """Evict keys; return for how many of them the usage still matters."""
        evicted = sum(self._remember(key, (at, used), now_us) for used, at, key in idle)
        self.counted.evicted += evicted
        self._forget([key for _, _, key in idle])
        return evicted

    def _remember(self, key: str, condensed: Condensed, now_us: int) -> bool:
        """Keep the usage of a key that has no place; return False if it no longer matters."""
        condensing = self._condensing
        if condensing is None or condensing.expires_us(condensed, self.limit) <= now_us:
            return False
        if self._forgotten is None:
            room = self._capacity.room_for_forgotten
            self._forgotten = Forgotten(room, condensing, lambda: self.limit)
        self._forgotten.put(key, condensed, now_us)
        return True


OVERFLOW_KEY: Final = "%overflow"
"""The prefix of shared keys; no identity begins with it, since there two digits follow a `%`."""


def shared_key(key: str) -> str:
    """Return the shared key of a key whose leases find no place."""
    return f"{OVERFLOW_KEY}{hash(key) % SHARED_KEYS}"
