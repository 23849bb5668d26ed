"""Counts in this process: exact, immediate and bounded.

The keys of one scope live in one dictionary, least recently used first, which is nearly the
order in which they expire. Whenever a number of new keys has come, as many at the front are
looked at and the expired ones forgotten. When all room is taken, expired keys go first, then
the least recently used; a key that would be refused now stays, so a flood of new keys cannot
free one that is over its limit. If only such keys are left, new ones are counted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from gateway.clock import Clock, monotonic_us, wall_us
from gateway.limits import ALGORITHMS, Algorithm
from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask

DEFAULT_MAX_KEYS = 1_000_000
OVERFLOW_KEY = "\x00overflow"
"""The key that new ones share when every place is taken by a key over its limit."""


class _Scope:
    """The keys of one limit of one policy, least recently used first."""

    __slots__ = ("algorithm", "clock", "decide", "limit", "states", "until_sweep")

    def __init__(self, limit: Limit, clock: Clock, calendar_clock: Clock) -> None:
        self.limit = limit
        self.algorithm: Algorithm = ALGORITHMS[limit.algorithm]
        self.decide = self.algorithm.decide
        self.clock = calendar_clock if self.algorithm.is_calendar else clock
        self.states: dict[str, Any] = {}
        self.until_sweep = 64

    def is_refusing(self, state: Any, now_us: int) -> bool:
        return not self.decide(state, now_us, 1, self.limit, 0)[1].allowed

    def sweep(self) -> None:
        """Forget the expired among the least recently used keys; constant work on average."""
        now_us = self.clock()
        batch = 64 + (len(self.states) >> 9)
        self.until_sweep = batch
        expires_us = self.algorithm.expires_us
        expired = [
            key
            for key, state in islice(self.states.items(), 2 * batch)
            if expires_us(state, self.limit) <= now_us
        ]
        for key in expired:
            del self.states[key]


class MemoryStore:
    """An `ImmediateStore`.

    Args:
        max_keys: how many keys are remembered at most, the one of each scope aside that
            new keys share when there is no room.
        clock: where the time comes from.
        calendar_clock: where it comes from for algorithms that go by the calendar.

    Attributes:
        evicted: keys that were forgotten before their time because room was needed.
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
        self._scopes: dict[tuple[str, str], _Scope] = {}
        self._count = 0
        self.evicted = 0

    def __len__(self) -> int:
        return sum(len(scope.states) for scope in self._scopes.values())

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
        self._count = 0

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
        limit = limits[0]
        key = keys[0]
        scope = self._scope(limit)
        now_us = scope.clock()
        states = scope.states
        before = states.pop(key, None)
        if before is None:
            key = self._room(scope, key)
            before = states.pop(key, None)
        wait_us = limit.max_wait_us
        if wait_us > max_wait_us:
            wait_us = max_wait_us
        state, decision = scope.decide(before, now_us, cost, limit, wait_us)
        if decision.allowed:
            if cost:
                states[key] = state
            elif before is not None:
                states[key] = before
            return Verdict(True, decision.wait_us, 0, (decision,))
        if before is not None:
            # Put right where the clock went back or the limit was lowered.
            states[key] = state
        return Verdict(False, 0, decision.retry_after_us, (decision,))

    def _decide_several(self, ask: Ask) -> Verdict:
        now_us = self._clock()
        calendar_us = self._calendar_clock()
        places: list[tuple[_Scope, str, Any, Any]] = []
        decisions: list[Decision] = []
        for limit, asked_key in zip(ask.limits, ask.keys, strict=True):
            scope = self._scope(limit)
            key = asked_key
            # Out of the way, so that making room for the next one cannot evict it.
            before = scope.states.pop(key, None)
            if before is None:
                key = self._room(scope, key, pending=len(places))
                before = scope.states.pop(key, None)
            wait_us = min(limit.max_wait_us, ask.max_wait_us)
            moment_us = calendar_us if scope.algorithm.is_calendar else now_us
            after, decision = scope.decide(before, moment_us, ask.cost, limit, wait_us)
            places.append((scope, key, before, after))
            decisions.append(decision)
        verdict = combine(decisions)
        for (scope, key, before, after), decision in zip(places, decisions, strict=True):
            if verdict.allowed and ask.cost:
                scope.states[key] = after
            elif before is not None:
                scope.states[key] = before if decision.allowed else after
        return verdict

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo an allowed decision as far as that cannot let too much through."""
        if not verdict.allowed:
            return
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self._scope(limit)
            if key in scope.states:
                scope.states[key] = scope.algorithm.give_back(
                    scope.states[key], scope.clock(), ask.cost, limit, decision.receipt
                )

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep the leases of an allowed decision; false if one of them is held no more."""
        all_held = verdict.allowed
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            scope = self._scope(limit)
            renew = scope.algorithm.renew
            if renew is None or not verdict.allowed or not ask.cost:
                continue
            state, is_held = renew(
                scope.states.pop(key, None), scope.clock(), ask.cost, limit, decision.receipt
            )
            if state is not None:
                scope.states[key] = state
            all_held = all_held and is_held
        return all_held

    def _scope(self, limit: Limit) -> _Scope:
        """The keys that `limit` counts; a change of its numbers keeps them."""
        name = (limit.scope, limit.algorithm)
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = _Scope(limit, self._clock, self._calendar_clock)
        elif scope.limit is not limit:
            scope.limit = limit
        return scope

    def _room(self, scope: _Scope, key: str, pending: int = 0) -> str:
        """Make room for a new key; returns the key under which it is to be counted.

        `pending` other keys of the same ask have a place but are not in it now.
        """
        scope.until_sweep -= 1
        if scope.until_sweep <= 0:
            scope.sweep()
            self._count = len(self) + pending
        # Refusals and looks leave nothing behind, so this is too high rather than too low.
        self._count += 1
        if self._count <= self._max_keys:
            return key
        self._count = len(self) + pending + 1
        if self._count <= self._max_keys or self._evict():
            return key
        return OVERFLOW_KEY

    def _evict(self) -> bool:
        """Forget a batch of keys; false if only keys that are being refused were found."""
        idle: list[tuple[int, _Scope, str]] = []
        batch = 64 + (self._max_keys >> 9)
        freed = 0
        for scope in self._scopes.values():
            expires_us = scope.algorithm.expires_us
            now_us = scope.clock()
            latest = 0
            for key, state in list(islice(scope.states.items(), batch)):
                expiry = expires_us(state, scope.limit)
                if expiry <= now_us:
                    del scope.states[key]
                    freed += 1
                elif key == OVERFLOW_KEY or scope.is_refusing(state, now_us):
                    # To the far end, so that the next batch looks at other keys.
                    del scope.states[key]
                    scope.states[key] = state
                else:
                    # The running maximum keeps the order of use within the scope; between
                    # scopes, what would be forgotten sooner goes first.
                    latest = max(latest, expiry - now_us)
                    idle.append((latest, scope, key))
        if not freed:
            idle.sort(key=lambda entry: entry[0])
            for _, scope, key in idle[: max(1, len(idle) // 8)]:
                del scope.states[key]
                self.evicted += 1
                freed += 1
        self._count -= freed
        return freed > 0
