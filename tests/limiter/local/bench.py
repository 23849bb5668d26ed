"""Several gateways on one store, on virtual time: what their deciders let through, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat

from gateway.base.clock import Clock
from gateway.base.errors import StoreUnavailable
from gateway.limiter.decider import Decider, Outcome
from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits.consistency_mode import Terms
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import PolicyMetrics, StoreMetrics
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore
from tests.virtual_time import clock

SECOND_US = 1_000_000
FOREVER_US = 2**62
DEADLINE_US = 20_000


def rule(
    limit: Limit, terms: Terms | None, queue_max: int = 0, on_store_error: str = "local"
) -> Rule:
    """A rule of a policy of its own."""
    policy = CompiledPolicy(
        name=limit.scope,
        queue_max=queue_max,
        status=429,
        body="problem",
        on_store_error=on_store_error,
        draft_headers=True,
        legacy_headers=True,
        metrics=PolicyMetrics(),
        terms=terms,
    )
    return Rule(policy, limit, lambda _: "k", limit.scope, "ip")


class RemoteStore:
    """A store that several gateways share and that takes its time.

    Args:
        counts: what they share.
        delays_s: how long each call takes; for ever the last one.

    Attributes:
        asks: how many were decided.
        sizes: of the calls.
        most_at_once: calls that were under way at the same time.
        is_down: whether calls fail.
    """

    def __init__(self, counts: MemoryStore, delays_s: Iterable[float] = ()) -> None:
        self._counts = counts
        self._delays = iter((*delays_s, *repeat(0.001, 1_000_000)))
        self.asks = 0
        self.sizes: list[int] = []
        self.most_at_once = 0
        self._under_way = 0
        self.is_down = False
        self.is_ready = True
        self.gateways = 1

    async def start(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Others go on."""

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """The counts' decisions, a little later."""
        if self.is_down:
            raise StoreUnavailable("down")
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        await asyncio.sleep(next(self._delays))
        self._under_way -= 1
        self.asks += len(asks)
        self.sizes.append(len(asks))
        return await self._counts.decide(asks)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Likewise."""
        await asyncio.sleep(next(self._delays))
        await self._counts.give_back(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Likewise."""
        return await self._counts.renew(ask, verdict)


class Gateways:
    """Some deciders on one store, all of whose rules are the same.

    Args:
        rules: what each request has to pass.
        number: how many gateways.
        delays_s: how long the store takes.
        counts: what it knows already.
        know_each_other: whether the store tells them how many they are.

    Attributes:
        passed: when each request was let through, in microseconds.
    """

    def __init__(
        self,
        *rules: Rule,
        number: int = 1,
        delays_s: Sequence[float] = (),
        counts: MemoryStore | None = None,
        know_each_other: bool = False,
    ) -> None:
        time: Clock = clock()
        self.rules = rules
        if counts is None:
            counts = MemoryStore(clock=time, calendar_clock=time)
        self.counts = counts
        self.stores = [RemoteStore(self.counts, delays_s) for _ in range(number)]
        for store in self.stores:
            store.gateways = number if know_each_other else 1
        self.deciders = [
            Decider(
                store,
                deadline_us=DEADLINE_US,
                share=None,
                max_waiting=10,
                metrics=StoreMetrics(),
                clock=time,
                calendar_clock=time,
                terms=[each.policy.terms for each in rules if each.policy.terms],
            )
            for store in self.stores
        ]
        self.passed: list[int] = []

    async def ask(
        self, gateway: int = 0, *, key: str = "k", cost: int = 1, max_wait_us: int = FOREVER_US
    ) -> Outcome:
        """One request, at one of them."""
        limits = tuple(each.limit for each in self.rules)
        asked = Ask(limits, (key,) * len(limits), cost, max_wait_us)
        outcome = self.deciders[gateway].decide(asked, self.rules)
        if not isinstance(outcome, Outcome):
            outcome = await outcome
        if outcome.verdict.allowed:
            self.passed += [clock()()] * cost
        return outcome

    async def hammer(self, gateway: int, seconds: float, pause_s: float) -> int:
        """Ask for so long, one request after each pause; how many were let through."""
        end_us = clock()() + round(seconds * SECOND_US)
        passed = 0
        while clock()() < end_us:
            passed += (await self.ask(gateway)).verdict.allowed
            await asyncio.sleep(pause_s)
        return passed

    def remaining(self, limit: Limit, key: str = "k") -> int:
        """What the store says is left."""
        look = self.counts.decide_now(Ask((limit,), (key,), 0, 0))
        return look.decisions[0].remaining

    async def aclose(self) -> None:
        """End all of them in order."""
        for decider in self.deciders:
            await decider.aclose()
