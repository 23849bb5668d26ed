"""What is known of the servers behind a store, and a probe for those that do not answer.

A circuit breaker for each shard keeps one that is frozen from costing every call its patience. One
that is open is not tried by anybody's request: a probe asks for nothing until there is an answer.

Servers may answer a probe and not count: a Redis that is full can look, and refuse who is over a
limit. Where calls fail again before one of them has taken something a probe is not believed any
more: calls are made after it as before, but the first that fails is the last, and that all is well
is said when something was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

from gateway.base.breaker import Breaker, BreakerState
from gateway.base.clock import US, Clock
from gateway.base.errors import StoreError
from gateway.base.tasks import Tasks
from gateway.limits.decision import Verdict
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask

MAX_SHARDS: Final = 1000
"""How many shards of a store are told apart: each server of a Cluster, and some pairs."""
FAILURES: Final = 3
"""Calls in a row that may fail before the servers are left alone."""
PROBE_AFTER_US: Final = US // 4
LONGEST_PROBE_US: Final = US
"""How often servers that failed are tried: at first, and when they have been away for long."""


class Shard:
    """What is known of the servers behind some of a store's keys, or behind all of them.

    Attributes:
        breaker: of these servers.
        is_in_use: whether they are asked; if not, a probe does.
        has_failed: whether the last call did.
        is_probed: whether a probe asks.
        is_on_trial: whether a probe was answered, and no call has taken anything since.
        is_doubted: whether probes were answered and calls were not.
        lost_us: when they were left alone.
        told: the reasons that were told since.
    """

    __slots__ = (
        "breaker",
        "has_failed",
        "is_doubted",
        "is_in_use",
        "is_on_trial",
        "is_probed",
        "lost_us",
        "told",
    )

    def __init__(self) -> None:
        self.breaker = Breaker(FAILURES, PROBE_AFTER_US, LONGEST_PROBE_US)
        self.has_failed = False
        self.is_in_use = True
        self.is_probed = False
        self.is_on_trial = False
        self.is_doubted = False
        self.lost_us = 0
        self.told: set[str] = set()

    def succeeded(self, now_us: int, *, has_counted: bool) -> None:
        """A call was answered, and has taken something or not."""
        self.has_failed = False
        if self.is_doubted and not has_counted:
            return
        self.breaker.success(now_us)
        self.is_in_use = self.breaker.state is BreakerState.CLOSED
        if self.is_in_use and has_counted:
            self.is_on_trial = False

    def failed(self, now_us: int) -> None:
        """A call was not answered, or a probe."""
        self.breaker.failure(now_us)
        self.has_failed = True
        self.is_in_use = self.breaker.state is BreakerState.CLOSED
        if not self.is_in_use and self.is_on_trial:
            self.is_on_trial = False
            self.is_doubted = True

    def was_found(self, now_us: int) -> None:
        """A probe was answered."""
        if not self.is_doubted:
            self.succeeded(now_us, has_counted=False)
        elif self.breaker.state is BreakerState.HALF_OPEN:
            self.has_failed = False
            self.is_in_use = True
        self.is_on_trial = self.is_in_use


class Shards:
    """The shards of one store, by whatever it calls them; to be used inside an event loop.

    Args:
        call: asks the store; raises `StoreError` if there is no answer in time.
        metrics: where failures are counted.
        clock: this process's time.
        lost: called when servers are left alone, with each reason that turns up.
        found: called when they are asked again.
        back: called when they are believed to count again, with the seconds since `lost`.
    """

    def __init__(
        self,
        call: Callable[[list[Ask]], Awaitable[object]],
        metrics: StoreMetrics,
        clock: Clock,
        lost: Callable[[StoreError], None] = lambda _: None,
        found: Callable[[], None] = lambda: None,
        back: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._call = call
        self._metrics = metrics
        self._clock = clock
        self._lost = lost
        self._found = found
        self._back = back
        self._shards: dict[Hashable, Shard] = {None: Shard()}
        self._probes = Tasks()
        self._is_closed = False

    def __getitem__(self, name: Hashable) -> Shard:
        shard = self._shards.get(name)
        if shard is None:
            if len(self._shards) >= MAX_SHARDS:
                # Shards that are gone; one that fails still will say so again.
                self._shards = {None: self._shards[None]}
            shard = self._shards[name] = Shard()
        return shard

    @property
    def any_in_use(self) -> bool:
        """Whether some of them are asked."""
        return any(shard.is_in_use for shard in self._shards.values())

    @property
    def all_in_use(self) -> bool:
        """Whether all of them are asked."""
        return all(shard.is_in_use for shard in self._shards.values())

    @property
    def worst_state(self) -> str:
        """The state of the breaker that is the worst off."""
        # The last by the alphabet as well: closed, half_open, open.
        return max(shard.breaker.state.value for shard in self._shards.values())

    def succeeded(self, shard: Shard, asks: Sequence[Ask], verdicts: Sequence[Verdict]) -> None:
        """A call was answered."""
        # Calls of healthy servers are not logged.
        has_counted = not (shard.is_on_trial or shard.is_doubted) or any(
            verdict.allowed and ask.cost for ask, verdict in zip(asks, verdicts, strict=True)
        )
        shard.succeeded(self._clock(), has_counted=has_counted)
        if shard.is_doubted and has_counted and shard.is_in_use:
            shard.is_doubted = False
            self._is_back(shard)

    def failed(self, shard: Shard, error: StoreError, ask: Ask) -> None:
        """A call failed; after some in a row the servers are asked by a probe alone.

        Args:
            shard: whose call it was.
            error: how it failed.
            ask: what was asked; the probe asks for the same keys, so of the same servers.
        """
        shard.failed(self._clock())
        self._metrics.errors[error.reason] += 1
        if shard.is_in_use or self._is_closed:
            return
        if not shard.told:
            shard.lost_us = self._clock()
        if error.reason not in shard.told:
            # The first may only say that there is no connection; why not is known later.
            shard.told.add(error.reason)
            self._lost(error)
        if not shard.is_probed:
            shard.is_probed = True
            self._probes.start(self._probe(shard, ask._replace(cost=0)))

    async def aclose(self) -> None:
        """Probe no more, whatever fails from now on."""
        self._is_closed = True
        await self._probes.finish(0)

    async def _probe(self, shard: Shard, nothing: Ask) -> None:
        while True:
            await asyncio.sleep(PROBE_AFTER_US / US)
            if not shard.breaker.allow(self._clock()):
                continue
            try:
                await self._call([nothing])
            except StoreError as error:
                self.failed(shard, error, nothing)
            else:
                shard.was_found(self._clock())
                # A call from before the outage may have failed while this one was under way.
                if shard.is_in_use:
                    break
        shard.is_probed = False
        if not shard.is_doubted:
            self._is_back(shard)
        self._found()

    def _is_back(self, shard: Shard) -> None:
        # A call from before the outage may have said so while the probe was under way.
        if shard.told:
            shard.told.clear()
            self._back((self._clock() - shard.lost_us) / US)
