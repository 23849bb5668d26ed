"""Counts in this process: exact, immediate and bounded.

The keys of one limit live in one table (`scope`). Whenever some new keys have arrived, a piece of
it is swept and keys that expired a while ago are forgotten. When the store is full, some keys are
evicted (`capacity`); what an evicted key had used counts against it when it returns (`forgotten`),
so a flood of new keys frees no key from its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.base.clock import Clock, monotonic_us, wall_us
from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.observe.metrics import MemoryMetrics
from gateway.stores.base import Ask
from gateway.stores.memory.capacity import Capacity
from gateway.stores.memory.scope import Scope, UnplacedKey, shared_key

DEFAULT_MAX_KEYS = 1_000_000
REMEDY: Final = "a larger max_keys or a store outside this process has room for more"


class MemoryStore:
    """An `ImmediateStore`.

    Args:
        max_keys: how many keys have places, not counting shared keys for leases. The usage of three
            times as many keys without places is kept.
        clock: the source of the time.
        calendar_clock: the source of the time for algorithms that follow the calendar.
        advice: the fix that the log proposes when the store is full.
        new_counters: makes the counters of a policy's keys.

    Attributes:
        counts_debits: as in a `DebitStore`; True.
        memory: the counters of each policy's keys.
    """

    def __init__(
        self,
        max_keys: int = DEFAULT_MAX_KEYS,
        clock: Clock = monotonic_us,
        calendar_clock: Clock = wall_us,
        advice: str = REMEDY,
        new_counters: Callable[[str], MemoryMetrics] = lambda _: MemoryMetrics(),
    ) -> None:
        if max_keys < 1:
            raise ValueError("max_keys is at least 1")
        self._clock = clock
        self._calendar_clock = calendar_clock
        self._scopes: dict[tuple[str, str], Scope] = {}
        # The same by the `id` of the limit that each was last asked for: lookup by name is slower.
        self._current: dict[int, Scope] = {}
        self.counts_debits = True
        self._capacity = Capacity(max_keys, clock, advice, new_counters)
        self.memory: dict[str, MemoryMetrics] = self._capacity.memory

    def __len__(self) -> int:
        return self._capacity.count

    def __repr__(self) -> str:
        max_keys = self._capacity.max_keys
        return f"<MemoryStore {len(self)} of {max_keys} keys, {self.evicted} evicted>"

    @property
    def evicted(self) -> int:
        """How many keys were evicted before they expired."""
        return sum(counted.evicted for counted in self.memory.values())

    @property
    def warning(self) -> str:
        """The current warning about the store; empty if there is no problem."""
        return self._capacity.warning

    def expect(self, policies: Mapping[str, Sequence[Limit]]) -> None:
        """Note which policies there are; see `PreparedStore`."""
        for limits in policies.values():
            if limits:
                self._capacity.of_policy(limits[0].scope)

    def reconfigure(self, max_keys: int, advice: str) -> None:
        """Have room for another number of keys; arguments as in the constructor.

        If there are more than that, some are evicted as others arrive.
        """
        self._capacity.max_keys = max_keys
        self._capacity.advice = advice

    @property
    def is_ready(self) -> bool:
        """Always True: there is nothing to connect to."""
        return True

    @property
    def gateways(self) -> int:
        """Always 1: these counts belong to this process only."""
        return 1

    async def start(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def aclose(self) -> None:
        """Forget everything."""
        self._scopes.clear()
        self._current.clear()
        self._capacity.clear()

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
        """Decide on one request immediately."""
        limits, keys, cost, max_wait_us = ask
        if len(limits) > 1:
            return self._decide_several(ask)
        # One limit is the usual case; it skips the lists of the general one.
        decision = self.decide_limit(limits[0], keys[0], cost, max_wait_us)
        return Verdict(decision.allowed, decision.wait_us, decision.retry_after_us, (decision,))

    def decide_limit(self, limit: Limit, key: str, cost: int, max_wait_us: int) -> Decision:
        """Decide on a request that has one limit immediately; see `Ask` for the arguments."""
        scope = self.scope(limit)
        wait_us = limit.max_wait_us
        if wait_us > max_wait_us:
            wait_us = max_wait_us
        state, now_us, wait_us, retry_after_us = scope.spend(key, cost, limit, wait_us)
        return scope.algorithm.describe(state, now_us, cost, limit, wait_us, retry_after_us)

    def assume(self, limit: Limit, key: str, state: Any) -> None:
        """Hold at least the usage of a state against a key, together with what it has used."""
        scope = self.scope(limit)
        scope.assume(key, state, limit)

    def scope(self, limit: Limit) -> Scope:
        """Return the keys that `limit` counts; a change of its numbers keeps them."""
        scope = self._current.get(id(limit))
        if scope is not None:
            return scope
        name = (limit.scope, limit.algorithm)
        scope = self._scopes.get(name)
        if scope is None:
            is_calendar = ALGORITHMS[limit.algorithm].is_calendar
            clock = self._calendar_clock if is_calendar else self._clock
            scope = self._scopes[name] = Scope(self._capacity, limit, clock)
            self._capacity.add(scope)
        else:
            self._current.pop(id(scope.limit), None)
            scope.limit = limit
        # The scope keeps the limit, so no other object can get its id meanwhile.
        self._current[id(limit)] = scope
        return scope

    def _decide_several(self, ask: Ask) -> Verdict:
        limits, keys, cost, max_wait_us = ask
        costs = ask.costs or (cost,) * len(limits)
        now_us = self._clock()
        calendar_us = self._calendar_clock()
        spent: list[tuple[Scope, Any, int, int, int]] = []
        refused = False
        for limit, key, own_cost in zip(limits, keys, costs, strict=True):
            scope = self._current.get(id(limit)) or self.scope(limit)
            table = scope.table
            before = table.shards[hash(key) & table.mask].get(key)
            if before is None:
                return self._decide_with_new_keys(ask, now_us, calendar_us)
            moment_us = calendar_us if scope.algorithm.is_calendar else now_us
            wait_us = limit.max_wait_us
            if wait_us > max_wait_us:
                wait_us = max_wait_us
            after, wait_us, retry_after_us = scope.algorithm.spend(
                before, moment_us, own_cost, limit, wait_us
            )
            if retry_after_us:
                refused = True
            spent.append((scope, after, moment_us, wait_us, retry_after_us))
        decisions: list[Decision] = []
        for limit, key, own_cost, (scope, after, moment_us, wait_us, retry_after_us) in zip(
            limits, keys, costs, spent, strict=True
        ):
            decisions.append(
                scope.algorithm.describe(after, moment_us, own_cost, limit, wait_us, retry_after_us)
            )
            # All are spent or none. The state of a refusal has nothing spent, and is corrected.
            if retry_after_us or (cost and not refused):
                table = scope.table
                table.shards[hash(key) & table.mask][key] = after
        return combine(decisions)

    def _decide_with_new_keys(self, ask: Ask, now_us: int, calendar_us: int) -> Verdict:
        """Decide on a request with several limits, where not all of its keys have places."""
        is_debit = ask.max_wait_us == DEBIT
        places: list[tuple[Scope, UnplacedKey | None, int, Any]] = []
        decisions: list[Decision] = []
        for limit, key, cost in zip(ask.limits, ask.keys, ask.each_cost, strict=True):
            scope = self.scope(limit)
            moment_us = calendar_us if scope.algorithm.is_calendar else now_us
            before = scope.table.get(key)
            found = None
            if before is None:
                found = scope.find(key, moment_us, limit, ask.keys, cost if is_debit else 0)
                before = found.state
            wait_us = min(limit.max_wait_us, ask.max_wait_us)
            after, decision = scope.algorithm.decide(before, moment_us, cost, limit, wait_us)
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
                    found.key,
                    after,
                    moment_us,
                    ask.keys,
                    is_known=is_known,
                    is_own=found.is_own,
                )
            else:
                scope.keep_refused(found, after, moment_us)
        return verdict

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo an allowed decision as far as that cannot admit too much."""
        if not verdict.allowed:
            return
        for limit, asked_key, cost, decision in zip(
            ask.limits, ask.keys, ask.each_cost, verdict.decisions, strict=True
        ):
            scope = self.scope(limit)
            key, state = _held(scope, asked_key)
            if state is not None:
                state = scope.algorithm.give_back(
                    state, scope.clock(), cost, limit, decision.receipt
                )
                scope.table.put(key, state)

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep the leases of an allowed decision; return False if one of them is no longer held."""
        all_held = verdict.allowed
        for limit, asked_key, cost, decision in zip(
            ask.limits, ask.keys, ask.each_cost, verdict.decisions, strict=True
        ):
            scope = self.scope(limit)
            renew = scope.algorithm.renew
            if renew is None or not verdict.allowed or not cost:
                continue
            key, state = _held(scope, asked_key)
            state, is_held = renew(state, scope.clock(), cost, limit, decision.receipt)
            if state is not None:
                scope.table.put(key, state)
            all_held = all_held and is_held
        return all_held


def _held(scope: Scope, key: str) -> tuple[str, Any]:
    """Return the key that requests of a key are counted under, and its state if it has a place."""
    state = scope.table.get(key)
    if state is None and not scope.may_be_forgotten:
        key = shared_key(key)
        state = scope.table.get(key)
    return key, state
