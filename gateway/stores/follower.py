"""A store used in addition to another one, which decides alone while this one does not answer.

Its callers get no exception and wait no longer than its deadline. A decision without an answer by
then is missed: it is counted, and logged once per series of misses. A breaker for each of its
shards keeps a frozen server from costing every batch that deadline; a probe checks for its return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Hashable, Sequence
from typing import Final

from gateway.base.clock import US, Clock
from gateway.base.errors import StoreError, StoreTimeout
from gateway.base.tasks import Tasks
from gateway.limits.decision import Verdict
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, ShardedStore, Store
from gateway.stores.deadline import Deadline, decide_within
from gateway.stores.shards import PROBE_AFTER_US, Shards

log = logging.getLogger(__name__)

LONGEST_PATIENCE: Final = 1.5
"""How much of its patience a call may take if this loop was late."""
CALM_US: Final = 10 * US
"""How long nothing may be missed before a spell ends. A store that is merely too slow fails and
recovers many times a second, and would fill the log."""


class Follower:
    """Asks a store that is optional to its callers; use it inside a running event loop.

    Args:
        store: the store.
        metrics: counters of its calls, and of what it misses.
        patience_us: how long one call may take.
        clock: this process's time.
    """

    def __init__(
        self, store: Store, metrics: StoreMetrics, *, timeout_us: int, clock: Clock
    ) -> None:
        self._store = store
        self._sharded = store if isinstance(store, ShardedStore) else None
        self._metrics = metrics
        self._timeout_s = timeout_us / US
        self._clock = clock
        self._shards = Shards(self._call, metrics, clock)
        self._watching = Tasks()
        self._missed_period: _MissedPeriod | None = None
        metrics.is_follower = True
        metrics.refresh = self._refresh_metrics

    def __repr__(self) -> str:
        return f"<Follower {self._store!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would be answered now, as far as is known."""
        return self._store.is_ready and self._shards.any_in_use

    @property
    def gateways(self) -> int:
        """How many gateways share it, as last seen."""
        return self._store.gateways

    def _refresh_metrics(self) -> None:
        self._metrics.is_ready = self.is_ready
        self._metrics.breaker = self._shards.worst_state
        self._metrics.gateways = self.gateways

    async def start(self) -> None:
        """Let the store connect in the background."""
        await self._store.start()

    async def aclose(self) -> None:
        """Close the store."""
        await self.finish()
        await self._store.aclose()

    async def finish(self) -> None:
        """Ask the store nothing more."""
        await self._shards.aclose()
        await self._watching.finish(0)

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict | None]:
        """Return a verdict for each ask; None for those that it has missed."""
        places: dict[Hashable, list[int]] = {}
        for place, ask in enumerate(asks):
            name = None if self._sharded is None else self._sharded.shard(ask)
            places.setdefault(name, []).append(place)
        answers = await asyncio.gather(
            *(self._ask(name, [asks[place] for place in own]) for name, own in places.items())
        )
        verdicts: list[Verdict | None] = [None] * len(asks)
        for own, answer in zip(places.values(), answers, strict=True):
            for place, verdict in zip(own, answer, strict=True):
                verdicts[place] = verdict
        return verdicts

    async def _ask(self, name: Hashable, asks: list[Ask]) -> Sequence[Verdict | None]:
        shard = self._shards[name]
        if not shard.is_in_use:
            self._metrics.errors["breaker_open"] += len(asks)
            self._miss(asks, "breaker_open")
            return [None] * len(asks)
        started_us = self._clock()
        try:
            verdicts = await self._call(asks)
        except StoreError as error:
            self._shards.failed(shard, error, asks[0])
            self._miss(asks, f"{error.reason}: {error}")
            return [None] * len(asks)
        self._shards.succeeded(shard, asks, verdicts)
        self._metrics.answered(len(asks), self._clock() - started_us)
        return verdicts

    async def _call(self, asks: list[Ask]) -> Sequence[Verdict]:
        """Ask the store; return in time even if this loop or the store is late.

        A deadline is extended if the loop was late, and a store may be slow to end a call that has
        timed out. Neither may use up the patience of a caller that asks both stores.
        """
        calling = asyncio.get_running_loop().create_task(
            decide_within(self._store, asks, self._timeout_s)
        )
        calling.add_done_callback(_forget)
        try:
            await asyncio.wait({calling}, timeout=self._timeout_s * LONGEST_PATIENCE)
            if calling.done():
                return calling.result()
        finally:
            calling.cancel()
        raise StoreTimeout("no answer within the deadline")

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo one of its own verdicts; if that fails the ask stays spent there."""
        if await self._within_patience(self._store.give_back(ask, verdict)) is not None:
            self._metrics.errors["give_back"] += 1

    async def renew(self, ask: Ask, verdict: Verdict) -> None:
        """Keep what an allowed ask holds for another lease, if it can be reached."""
        error = await self._within_patience(self._store.renew(ask, verdict))
        if error is not None:
            self._metrics.errors[error.reason] += 1

    async def _within_patience(self, call: Awaitable[object]) -> StoreError | None:
        """Await a call that nothing depends on; return why it failed, if it did."""
        try:
            with Deadline(asyncio.get_running_loop(), self._timeout_s):
                await call
        except StoreError as error:
            return error
        return None

    def _miss(self, asks: Sequence[Ask], reason: str) -> None:
        """Count decisions that it should have made, and log the beginning of a spell of misses."""
        now_us = self._clock()
        number = sum(ask.cost > 0 for ask in asks)  # A query leaves no count.
        self._metrics.missed += number
        if self._missed_period is None:
            self._missed_period = _MissedPeriod(now_us)
            log.warning("the new store is unavailable (%s); the old store decides", reason)
            self._watching.start(self._await_calm(self._missed_period))
        self._missed_period.missed += number
        self._missed_period.last_us = now_us

    async def _await_calm(self, period: _MissedPeriod) -> None:
        """Log the end of the spell: nothing has been missed for a while, and all shards answer."""
        while True:
            rest_us = period.last_us + CALM_US - self._clock()
            if rest_us <= 0 and self._shards.all_in_use:
                break
            await asyncio.sleep(max(rest_us, PROBE_AFTER_US) / US)
        self._missed_period = None
        log.warning(
            "the new store is available again: it missed %d decisions in %.1f s, and none in the "
            "%d s since",
            period.missed,
            (period.last_us - period.first_us) / US,
            CALM_US // US,
        )


def _forget(call: asyncio.Task[Sequence[Verdict]]) -> None:
    """Ignore the result of a call that no caller waits for any more."""
    if not call.cancelled():
        call.exception()


class _MissedPeriod:
    """A period in which decisions are missed, from the first to the last one so far."""

    __slots__ = ("first_us", "last_us", "missed")

    def __init__(self, now_us: int) -> None:
        self.first_us = now_us
        self.last_us = now_us
        self.missed = 0
