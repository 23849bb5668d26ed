"""Counts in this process: exact, immediate and bounded.

The keys of one limit live in one table (`scope`). Whenever some new keys have come, a piece of it
is looked through and what expired a while ago is forgotten. When all room is taken, somebody makes
room (`crowding`); what a key had used that loses its place is held against it when it comes back
(`forgotten`), so a flood of new keys frees nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.base.clock import Clock, monotonic_us, wall_us
from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.observe.metrics import MemoryMetrics
from gateway.stores.base import PROBE, Ask
from gateway.stores.memory.crowding import Crowd, policy_of
from gateway.stores.memory.scope import Scope, UnplacedKey, shared_key

DEFAULT_MAX_KEYS = 1_000_000
REMEDY: Final = "a larger max_keys or a store outside this process has room for more"
FORGOTTEN_PER_KEY: Final = 3
"""For each key that may have a place, what so many used that have none is kept."""


class MemoryStore:
    """An `ImmediateStore`.

    Args:
        max_keys: how many keys have places, those aside that share some for their leases. Of
            three times as many that have none is kept what they used.
        clock: where the time comes from.
        calendar_clock: where it comes from for algorithms that go by the calendar.
        remedy: what the log says would do when the store is full.

    Attributes:
        counts_debits: as in a `DebitStore`; it does.
        count: how many keys have a place.
        crowd: who makes room.
        memory: what is counted of the keys of each policy.
    """

    def __init__(
        self,
        max_keys: int = DEFAULT_MAX_KEYS,
        clock: Clock = monotonic_us,
        calendar_clock: Clock = wall_us,
        remedy: str = REMEDY,
    ) -> None:
        if max_keys < 1:
            raise ValueError("max_keys is at least 1")
        self._max_keys = max_keys
        self._clock = clock
        self._calendar_clock = calendar_clock
        self._scopes: dict[tuple[str, str], Scope] = {}
        # The same by the `id` of the limit that each was last asked for: names take longer.
        self._current: dict[int, Scope] = {}
        self.memory: dict[str, MemoryMetrics] = {}
        self.count = 0
        self.counts_debits = True
        self.crowd = Crowd(max_keys, clock, remedy)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self)} of {self._max_keys} keys, {self.evicted} evicted>"

    @property
    def evicted(self) -> int:
        """How many keys lost their places before their time."""
        return sum(counted.evicted for counted in self.memory.values())

    @property
    def warning(self) -> str:
        """What is to be said of the store at the moment; empty if all is well."""
        return self.crowd.warning

    @property
    def room_for_forgotten(self) -> int:
        """Of how many keys of one limit more it is kept what they used."""
        return max(1, FORGOTTEN_PER_KEY * self._max_keys // len(self.crowd))

    def expect(self, policies: Mapping[str, Sequence[Limit]]) -> None:
        """Take note of which policies there are; see `PreparedStore`."""
        for limits in policies.values():
            if limits:
                self.of_policy(limits[0].scope)

    def of_policy(self, scope: str) -> MemoryMetrics:
        """What is counted of the keys of a policy, by the scope of one of its limits."""
        if scope == PROBE:
            return MemoryMetrics()
        return self.memory.setdefault(policy_of(scope), MemoryMetrics())

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
        for counted in self.memory.values():
            counted.keys = 0

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

    def assume(self, limit: Limit, key: str, state: Any) -> None:
        """Hold a state against a key, unless as much is held against it already."""
        scope = self.scope(limit)
        scope.assume(key, state, limit)

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
            self.crowd.join(scope)
        else:
            self._current.pop(id(scope.limit), None)
            scope.limit = limit
        # The scope keeps the limit, so nothing else can get its identity meanwhile.
        self._current[id(limit)] = scope
        return scope

    def _decide_several(self, ask: Ask) -> Verdict:
        now_us = self._clock()
        calendar_us = self._calendar_clock()
        debit = ask.cost if ask.max_wait_us == DEBIT else 0
        places: list[tuple[Scope, UnplacedKey | None, int, Any]] = []
        decisions: list[Decision] = []
        for limit, key in zip(ask.limits, ask.keys, strict=True):
            scope = self.scope(limit)
            moment_us = calendar_us if scope.algorithm.is_calendar else now_us
            before = scope.table.get(key)
            found = None
            if before is None:
                found = scope.find(key, moment_us, limit, ask.keys, debit)
                before = found.state
            wait_us = min(limit.max_wait_us, ask.max_wait_us)
            after, decision = scope.algorithm.decide(before, moment_us, ask.cost, limit, wait_us)
            places.append((scope, found, moment_us, after))
            decisions.append(decision)
        verdict = combine(decisions)
        spends = verdict.allowed and ask.cost
        for key, place, decision in zip(ask.keys, places, decisions, strict=True):
            scope, found, moment_us, after = place
            if not spends and decision.allowed:
                continue
            if found is None:
                scope.put(key, after)
            elif spends:
                is_known = found.state is not None
                scope.keep_new(
                    *(found.key, after, moment_us, ask.keys),
                    is_known=is_known,
                    is_own=found.is_own,
                )
            else:
                scope.keep_refused(found, after, moment_us)
        return verdict

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo an allowed decision as far as that cannot let too much through."""
        if not verdict.allowed:
            return
        for limit, asked_key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self.scope(limit)
            key, state = _held(scope, asked_key)
            if state is not None:
                state = scope.algorithm.give_back(
                    state, scope.clock(), ask.cost, limit, decision.receipt
                )
                scope.table.put(key, state)

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep the leases of an allowed decision; false if one of them is held no more."""
        all_held = verdict.allowed
        for limit, asked_key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self.scope(limit)
            renew = scope.algorithm.renew
            if renew is None or not verdict.allowed or not ask.cost:
                continue
            key, state = _held(scope, asked_key)
            state, is_held = renew(state, scope.clock(), ask.cost, limit, decision.receipt)
            if state is not None:
                scope.table.put(key, state)
            all_held = all_held and is_held
        return all_held

    def room(self, scope: Scope, spared: Sequence[str]) -> bool:
        """Make room for a new key, if there is none; whether there is some.

        Args:
            scope: where the new key belongs.
            spared: keys that must stay, since they are being decided on.
        """
        scope.until_sweep -= 1
        if scope.until_sweep <= 0:
            scope.sweep()
        if self.count >= self._max_keys:
            self.crowd.make_room(scope, spared)
        return self.count < self._max_keys


def _held(scope: Scope, key: str) -> tuple[str, Any]:
    """Under which key a request was counted that had this one, and its state if it has a place."""
    state = scope.table.get(key)
    if state is None and not scope.may_be_forgotten:
        key = shared_key(key)
        state = scope.table.get(key)
    return key, state
