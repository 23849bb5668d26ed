"""The condition of the servers behind a store, and a probe for those that do not answer.

A circuit breaker for each shard keeps a frozen one from costing every call its patience. While a
breaker is open, no request tries the shard: a probe that takes nothing does, until it is answered.

Servers may answer a probe and not count: a Redis that is full can look, and refuse requests over a
limit. If calls fail again before one of them has taken something, probes are not trusted any more.
Calls are still made after a probe as before, but the first that fails is the last, and recovery is
reported only when something was taken.
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
"""How many shards of a store are tracked: each server of a Cluster, and some pairs."""
FAILURES: Final = 3
"""Calls in a row that may fail before the servers are out of use."""
PROBE_AFTER_US: Final = US // 4
LONGEST_PROBE_US: Final = US
"""How often servers that failed are probed: at first, and after a long outage."""


class Shard:
    """The condition of the servers behind some of a store's keys, or behind all of them.

    Attributes:
        breaker: the breaker of these servers.
        is_in_use: whether calls are made to them; if not, a probe is.
        has_failed: whether the last call failed.
        is_probed: whether a probe is running.
        is_on_trial: whether a probe was answered, and no call has taken anything since.
        is_doubted: whether probes were answered and calls were not.
        lost_us: when they went out of use.
        logged: the reasons that were logged since.
    """

    __slots__ = (
        "breaker",
        "has_failed",
        "is_doubted",
        "is_in_use",
        "is_on_trial",
        "is_probed",
        "logged",
        "lost_us",
    )

    def __init__(self) -> None:
        self.breaker = Breaker(FAILURES, PROBE_AFTER_US, LONGEST_PROBE_US)
        self.has_failed = False
        self.is_in_use = True
        self.is_probed = False
        self.is_on_trial = False
        self.is_doubted = False
        self.lost_us = 0
        self.logged: set[str] = set()

    def succeeded(self, now_us: int, *, has_counted: bool) -> None:
        """Note that a call was answered, and whether it has taken something."""
        self.has_failed = False
        if self.is_doubted and not has_counted:
            return
        self.breaker.success(now_us)
        self.is_in_use = self.breaker.state is BreakerState.CLOSED
        if self.is_in_use and has_counted:
            self.is_on_trial = False

    def failed(self, now_us: int) -> None:
        """Note that a call or a probe was not answered."""
        self.breaker.failure(now_us)
        self.has_failed = True
        self.is_in_use = self.breaker.state is BreakerState.CLOSED
        if not self.is_in_use and self.is_on_trial:
            self.is_on_trial = False
            self.is_doubted = True

    def was_found(self, now_us: int) -> None:
        """Note that a probe was answered."""
        if not self.is_doubted:
            self.succeeded(now_us, has_counted=False)
        elif self.breaker.state is BreakerState.HALF_OPEN:
            self.has_failed = False
            self.is_in_use = True
        self.is_on_trial = self.is_in_use


class Shards:
    """The shards of one store, by the store's names for them; use it inside an event loop.

    Args:
        call: asks the store; raises `StoreError` if there is no answer in time.
        metrics: counts failures.
        clock: this process's time.
        lost: called when servers go out of use, with each new reason.
        found: called when they are in use again.
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
                # Drop shards that no longer exist; one that still fails is added again.
                self._shards = {None: self._shards[None]}
            shard = self._shards[name] = Shard()
        return shard

    @property
    def any_in_use(self) -> bool:
        """Whether any shard is in use."""
        return any(shard.is_in_use for shard in self._shards.values())

    @property
    def all_in_use(self) -> bool:
        """Whether all shards are in use."""
        return all(shard.is_in_use for shard in self._shards.values())

    @property
    def worst_state(self) -> str:
        """The worst state of all breakers."""
        # Also the last alphabetically: closed, half_open, open.
        return max(shard.breaker.state.value for shard in self._shards.values())

    def succeeded(self, shard: Shard, asks: Sequence[Ask], verdicts: Sequence[Verdict]) -> None:
        """Note that a call was answered."""
        # Calls of healthy servers are not logged.
        has_counted = not (shard.is_on_trial or shard.is_doubted) or any(
            verdict.allowed and ask.cost for ask, verdict in zip(asks, verdicts, strict=True)
        )
        shard.succeeded(self._clock(), has_counted=has_counted)
        if shard.is_doubted and has_counted and shard.is_in_use:
            shard.is_doubted = False
            self._is_back(shard)

    def failed(self, shard: Shard, error: StoreError, ask: Ask) -> None:
        """Note that a call failed; after some in a row only a probe asks the servers.

        Args:
            shard: the shard of the call.
            error: how it failed.
            ask: what was asked; the probe asks for the same keys, so it reaches the same servers.
        """
        shard.failed(self._clock())
        self._metrics.errors[error.reason] += 1
        if shard.is_in_use or self._is_closed:
            return
        if not shard.logged:
            shard.lost_us = self._clock()
        if error.reason not in shard.logged:
            # The first error may only say that there is no connection; the reason is known later.
            shard.logged.add(error.reason)
            self._lost(error)
        if not shard.is_probed:
            shard.is_probed = True
            self._probes.start(self._probe(shard, Ask(ask.limits, ask.keys, 0, ask.max_wait_us)))

    async def aclose(self) -> None:
        """Stop probing, whatever fails from now on."""
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
                # A call from before the outage may have failed while this one was in flight.
                if shard.is_in_use:
                    break
        shard.is_probed = False
        if not shard.is_doubted:
            self._is_back(shard)
        self._found()

    def _is_back(self, shard: Shard) -> None:
        # A call from before the outage may have reported this while the probe was in flight.
        if shard.logged:
            shard.logged.clear()
            self._back((self._clock() - shard.lost_us) / US)
