"""Counts in this process: exact, immediate and bounded.

The keys of one scope live in one table. Whenever some new keys have come, a piece of it is looked
through and what expired a while ago is forgotten. When all room is taken, expired keys go first,
then of those looked at the ones that would expire soonest, which of one limit are nearly the
least recently used; a key that would be refused now stays, so a flood of new keys cannot free one
that is over its limit. If only such keys are found, new ones are counted together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from gateway.clock import Clock, monotonic_us, wall_us
from gateway.limits import ALGORITHMS, Algorithm
from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.table import SHARD_KEYS, Table

DEFAULT_MAX_KEYS = 1_000_000
OVERFLOW_KEY = "%overflow"
"""The key that new ones share when every place is taken by a key over its limit; no identity is
like it, since there two digits follow a `%`."""


NEW_KEYS_PER_SWEEP: Final = 64
"""A piece is looked through each time so many new keys have come: some four looks for each."""
IDLE_US: Final = 1_000_000
"""How long ago a key must have expired to be forgotten although there is room: one that is asked
for again and again is not to be a new one each time."""
SHARDS_PER_EVICTION: Final = 3
"""How many pieces are looked through to find keys to forget: some hundred microseconds."""


Spent = tuple[Any, int, int, int]
"""What became of a request: the key's state, the moment, `wait_us` and `retry_after_us`."""


class Scope:
    """The keys of one limit of one policy, as a `MemoryStore` counts them.

    Args:
        store: whose keys they are.
        limit: the limit as it was last asked for.
        clock: where the time comes from.
    """

    __slots__ = ("_spend", "_store", "algorithm", "clock", "limit", "table", "until_sweep")

    def __init__(self, store: MemoryStore, limit: Limit, clock: Clock) -> None:
        self.limit = limit
        self.algorithm: Algorithm = ALGORITHMS[limit.algorithm]
        self.clock = clock
        self.table = Table()
        self.until_sweep = NEW_KEYS_PER_SWEEP
        self._store = store
        self._spend = self.algorithm.spend

    def spend(
        self,
        key: str,
        cost: int,
        limit: Limit,
        max_wait_us: int,
        identity: Callable[[str], str] | None = None,
    ) -> Spent:
        """Take what a request costs, if this limit lets it go; all but putting it in words.

        Args:
            key: the identity that is counted.
            cost: what the request costs; 0 looks without taking.
            limit: the limit.
            max_wait_us: how long the request would wait, at most `limit.max_wait_us`.
            identity: makes the identity of `key`, if that is a name of somebody's own; escapes
                begin with `%`, and nothing else does.
        """
        now_us = self.clock()
        table = self.table
        shard = table.shards[hash(key) & table.mask]
        before = shard.get(key)
        if identity is not None and (before is None or "%" in key):
            # A name that is there, and holds no escapes, is an identity already.
            return self.spend(identity(key), cost, limit, max_wait_us)
        if before is None:
            return self._spend_new(key, now_us, cost, limit, max_wait_us)
        after, wait_us, retry_after_us = self._spend(before, now_us, cost, limit, max_wait_us)
        # A refusal put it right where the clock went back or the limit was lowered.
        if cost or retry_after_us:
            shard[key] = after
        return after, now_us, wait_us, retry_after_us

    def _spend_new(self, key: str, now_us: int, cost: int, limit: Limit, max_wait_us: int) -> Spent:
        store = self._store
        key = store.room(self, key, 1, (key,))
        before = self.table.get(key)
        after, wait_us, retry_after_us = self._spend(before, now_us, cost, limit, max_wait_us)
        if before is not None or (cost and not retry_after_us):
            store.count += self.table.put(key, after)
        return after, now_us, wait_us, retry_after_us

    def is_refusing(self, state: Any, now_us: int) -> bool:
        """Whether a request with this state would be refused now."""
        return bool(self._spend(state, now_us, 1, self.limit, 0)[2])

    def sweep(self) -> int:
        """Forget the keys of one piece that are of no use; returns how many."""
        self.until_sweep = NEW_KEYS_PER_SWEEP
        expired_us = self.clock() - IDLE_US
        expires_us, limit = self.algorithm.expires_us, self.limit
        shard = self.table.next_shard()
        expired = [key for key, state in shard.items() if expires_us(state, limit) <= expired_us]
        if expired:
            self.table.forget(expired)
        return len(expired)

    def idle_keys(self, spared: Sequence[str]) -> list[tuple[int, str]]:
        """Keys of one piece that may be forgotten, each after how long it would expire."""
        now_us = self.clock()
        return [
            (self.algorithm.expires_us(state, self.limit) - now_us, key)
            for key, state in self.table.next_shard().items()
            if key != OVERFLOW_KEY and key not in spared and not self.is_refusing(state, now_us)
        ]


class MemoryStore:
    """An `ImmediateStore`.

    Args:
        max_keys: how many keys are remembered at most, the one of each scope aside that
            new keys share when there is no room.
        clock: where the time comes from.
        calendar_clock: where it comes from for algorithms that go by the calendar.

    Attributes:
        evicted: keys that were forgotten before their time because room was needed.
        counts_debits: as in a `DebitStore`; it does.
    """

    def __init__(
        self,
        max_keys: int = DEFAULT_MAX_KEYS,
        clock: Clock = monotonic_us,
        calendar_clock: Clock = wall_us,
    ) -> None:
        if max_keys < 1:
            raise ValueError("max_keys is at least 1")
        self._max_keys = max_keys
        self._clock = clock
        self._calendar_clock = calendar_clock
        self._scopes: dict[tuple[str, str], Scope] = {}
        # The same by the `id` of the limit that each was last asked for: names take longer.
        self._current: dict[int, Scope] = {}
        self.count = 0
        self.evicted = 0
        self.counts_debits = True

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self)} of {self._max_keys} keys, {self.evicted} evicted>"

    @property
    def is_ready(self) -> bool:
        """Always: there is nothing to connect to."""
        return True

    @property
    def gateways(self) -> int:
        """One: nobody else sees these counts."""
        return 1

    async def start(self) -> None:
        """Nothing to do."""

    async def aclose(self) -> None:
        """Forget everything."""
        self._scopes.clear()
        self._current.clear()
        self.count = 0

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch; see `decide_now`."""
        return [self.decide_now(ask) for ask in asks]

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """See `give_back_now`."""
        self.give_back_now(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """See `renew_now`."""
        return self.renew_now(ask, verdict)

    def decide_now(self, ask: Ask) -> Verdict:
        """Decide on one request at once."""
        limits, keys, cost, max_wait_us = ask
        if len(limits) > 1:
            return self._decide_several(ask)
        # One limit is the usual case; it is spared the lists of the general one.
        decision = self.decide_limit(limits[0], keys[0], cost, max_wait_us)
        return Verdict(decision.allowed, decision.wait_us, decision.retry_after_us, (decision,))

    def decide_limit(self, limit: Limit, key: str, cost: int, max_wait_us: int) -> Decision:
        """Decide on a request that has one limit, at once; see `Ask` for the arguments."""
        scope = self.scope(limit)
        wait_us = limit.max_wait_us
        if wait_us > max_wait_us:
            wait_us = max_wait_us
        state, now_us, wait_us, retry_after_us = scope.spend(key, cost, limit, wait_us)
        return scope.algorithm.describe(state, now_us, cost, limit, wait_us, retry_after_us)

    def scope(self, limit: Limit) -> Scope:
        """The keys that `limit` counts; a change of its numbers keeps them."""
        scope = self._current.get(id(limit))
        if scope is not None:
            return scope
        name = (limit.scope, limit.algorithm)
        scope = self._scopes.get(name)
        if scope is None:
            is_calendar = ALGORITHMS[limit.algorithm].is_calendar
            clock = self._calendar_clock if is_calendar else self._clock
            scope = self._scopes[name] = Scope(self, limit, clock)
        else:
            self._current.pop(id(scope.limit), None)
            scope.limit = limit
        # The scope keeps the limit, so nothing else can get its identity meanwhile.
        self._current[id(limit)] = scope
        return scope

    def _decide_several(self, ask: Ask) -> Verdict:
        now_us = self._clock()
        calendar_us = self._calendar_clock()
        places: list[tuple[Scope, str, Any, Any]] = []
        decisions: list[Decision] = []
        new = 0
        for limit, asked_key in zip(ask.limits, ask.keys, strict=True):
            scope = self.scope(limit)
            key = asked_key
            before = scope.table.get(key)
            if before is None:
                key = self.room(scope, key, new + 1, ask.keys)
                before = scope.table.get(key)
                new += before is None
            wait_us = min(limit.max_wait_us, ask.max_wait_us)
            moment_us = calendar_us if scope.algorithm.is_calendar else now_us
            after, decision = scope.algorithm.decide(before, moment_us, ask.cost, limit, wait_us)
            places.append((scope, key, before, after))
            decisions.append(decision)
        verdict = combine(decisions)
        for (scope, key, before, after), decision in zip(places, decisions, strict=True):
            spends = verdict.allowed and ask.cost
            if spends or (before is not None and not decision.allowed):
                self.count += scope.table.put(key, after)
        return verdict

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo an allowed decision as far as that cannot let too much through."""
        if not verdict.allowed:
            return
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self.scope(limit)
            state = scope.table.get(key)
            if state is not None:
                state = scope.algorithm.give_back(
                    state, scope.clock(), ask.cost, limit, decision.receipt
                )
                scope.table.put(key, state)

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep the leases of an allowed decision; false if one of them is held no more."""
        all_held = verdict.allowed
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self.scope(limit)
            renew = scope.algorithm.renew
            if renew is None or not verdict.allowed or not ask.cost:
                continue
            state, is_held = renew(
                scope.table.get(key), scope.clock(), ask.cost, limit, decision.receipt
            )
            if state is not None:
                scope.table.put(key, state)
            all_held = all_held and is_held
        return all_held

    def room(self, scope: Scope, key: str, wanted: int, spared: Sequence[str]) -> str:
        """Make room for new keys; returns the key under which the last of them is counted.

        Args:
            scope: where the new key belongs.
            key: the new key.
            wanted: how many places are needed, with those that were promised just now.
            spared: keys that must stay, since they are being decided on.
        """
        scope.until_sweep -= 1
        if scope.until_sweep <= 0:
            self.count -= scope.sweep()
        if self.count + wanted > self._max_keys:
            self._evict(spared)
        return key if self.count + wanted <= self._max_keys else OVERFLOW_KEY

    def _evict(self, spared: Sequence[str]) -> None:
        """Forget some keys, if any are found that are not being refused."""
        idle: list[tuple[int, str, Scope]] = []
        for name, scope in list(self._scopes.items()):
            # To the far end, so that the next eviction begins with others.
            self._scopes[name] = self._scopes.pop(name)
            for _ in range(min(SHARDS_PER_EVICTION, len(scope.table.shards))):
                idle += [(left_us, key, scope) for left_us, key in scope.idle_keys(spared)]
            if len(idle) > SHARDS_PER_EVICTION * SHARD_KEYS:
                break
        # Between scopes too, what would be forgotten sooner goes first; the expired all go.
        idle.sort(key=itemgetter(0))
        expired = bisect_right(idle, 0, key=itemgetter(0))
        chosen = idle[: expired or max(1, len(idle) // 8)]
        by_scope: dict[Scope, list[str]] = {}
        for _, key, scope in chosen:
            by_scope.setdefault(scope, []).append(key)
        for scope, keys in by_scope.items():
            scope.table.forget(keys)
        self.count -= len(chosen)
        self.evicted += 0 if expired else len(chosen)
