"""Decides on requests by a store: one batch per turn of the event loop, and every failure.

If the store is in this process, `Decider.decide` answers immediately. Otherwise all asks of one
turn of the loop are sent together, under a deadline; a circuit breaker keeps an unavailable store
from costing every request that deadline. If the store cannot decide, the `on_store_error` of each
policy applies, so a failure of a store is never an exception here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from gateway.base.clock import US, Clock, monotonic_us, wall_us
from gateway.base.errors import StoreError, StoreTimeout
from gateway.base.tasks import Tasks
from gateway.board.board import Seat
from gateway.limiter.backfill import Backfill
from gateway.limiter.fallback import Fallback
from gateway.limiter.local.local_decider import LocalDecider
from gateway.limiter.outcome import Outcome, Pending, refused_key, refusing_rule, slowest_rule
from gateway.limiter.parts import split
from gateway.limiter.plan import Rule, is_tried
from gateway.limiter.returns import Returns
from gateway.limiter.trial import Trials
from gateway.limiter.waiting_room import WaitingRoom
from gateway.limits.consistency_mode import Terms
from gateway.limits.decision import DEBIT, Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import (
    PROBE,
    Ask,
    ImmediateStore,
    MessagingStore,
    NoBackfillStore,
    ShardedStore,
    Store,
    counts_debits,
)
from gateway.stores.deadline import Deadline, decide_within
from gateway.stores.shards import Shard, Shards

__all__ = [
    "Decider",
    "Outcome",
    "Pending",
    "refused_key",
    "refusing_rule",
    "slowest_rule",
]

log = logging.getLogger(__name__)

BATCH: Final = 32
"""Asks in one call to the store. While the store works on some, this process reads other answers
and prepares new asks; with one large batch the two would wait for each other in turn.
"""
START_S: Final = 1.0
"""How long a store may take to connect before its absence is logged."""

_NOTHING: Final = Ask((Limit(1, US, 1, scope=PROBE),), (PROBE,), 0, 0)


class Decider:
    """Sends asks to a store in batches, and never fails.

    Args:
        store: where counts live.
        deadline_us: how long one call may take before the policies' `on_store_error` applies.
        share: how many gateways share the limits while this one decides alone; None takes the
            number that the store last saw.
        siblings: the least number of gateways to assume, whatever the store has seen.
        max_waiting: how many requests may wait for their turn in total.
        metrics: counters of the store's calls.
        terms: the terms of the policies that are not strict. If the store is in this process they
            change nothing: nothing is faster or more exact than asking it.
        clock: this process's time.
        calendar_clock: the time of day, for calendar windows.
        seat: as in `WaitingRoom`.
        has_trials: whether any policy is not enforced for all of its keys.

    Attributes:
        waiting: the requests that wait for their turn.
        holding: the tasks that renew the slots of requests in flight.
    """

    def __init__(
        self,
        store: Store,
        *,
        deadline_us: int,
        share: int | None,
        siblings: int = 1,
        max_waiting: int,
        metrics: StoreMetrics,
        clock: Clock = monotonic_us,
        terms: Iterable[Terms] = (),
        calendar_clock: Clock = wall_us,
        seat: Seat | None = None,
        has_trials: bool = False,
    ) -> None:
        self._store = store
        self._immediate = store if isinstance(store, ImmediateStore) else None
        self._deadline = deadline_us / US
        self._counts_debits = counts_debits(store)
        self._share = share
        self._siblings = siblings
        self._metrics = metrics
        self._clock = clock
        self._sharded = store if isinstance(store, ShardedStore) else None
        self._shards = Shards(
            self._within_deadline,
            metrics,
            clock,
            lost=self._lost,
            found=self._found,
            back=self._back,
        )
        self._whole = self._shards[None]
        self._remembers = not isinstance(store, NoBackfillStore)
        self._fallback = Fallback(clock, calendar_clock, remembers=self._remembers)
        self._pending: list[Pending] = []
        self._tasks = Tasks()
        self._returns = Returns(store, self._deadline, metrics, self._tasks)
        self._watching = Tasks()
        self._backfill = Backfill(
            self._fallback, self._shards, self._within_deadline, self._watching
        )
        self.holding = Tasks()
        self._loop = asyncio.get_running_loop()
        self._calendar_clock = calendar_clock
        self._local: LocalDecider | None = None
        self._decide_locally(tuple(terms))
        self._trials = Trials(self._decide) if has_trials else None
        self.waiting = WaitingRoom(max_waiting, seat)
        self.publish()

    def publish(self) -> None:
        """Let the counters show this decider's store."""
        if isinstance(self._store, MessagingStore):
            self._store.messages = self._metrics.messages
        self._metrics.refresh = self._refresh_metrics

    def _decide_locally(self, terms: Sequence[Terms]) -> None:
        """Decide here on policies with these terms; those with others may still hold something."""
        if not terms or self._immediate is not None:
            return
        if self._local is not None:
            self._local.reconfigure(terms)
            return
        self._local = LocalDecider(
            terms,
            self._ask,
            self._send,
            self._returns.add,
            self._clock,
            self._calendar_clock,
            lambda: self._parts,
        )

    def reconfigure(
        self,
        *,
        deadline_us: int,
        share: int | None,
        max_waiting: int,
        terms: Iterable[Terms],
        has_trials: bool,
    ) -> None:
        """Decide as another configuration says; arguments as in the constructor.

        Those that wait keep their turns.
        """
        self._deadline = deadline_us / US
        self._returns.deadline_s = self._deadline
        self._share = share
        self._trials = Trials(self._decide) if has_trials else None
        self.waiting.reconfigure(max_waiting)
        self._decide_locally(tuple(terms))

    @property
    def is_busy(self) -> bool:
        """Whether requests wait for their turn, or hold what must be renewed."""
        return bool(len(self.waiting) or len(self.holding))

    @property
    def is_ready(self) -> bool:
        """Whether the store would answer an ask now, as far as is known."""
        return self._store.is_ready and self._shards.any_in_use

    def _refresh_metrics(self) -> None:
        self._metrics.is_ready = self.is_ready
        self._metrics.breaker = self._shards.worst_state
        self._metrics.gateways = self._store.gateways

    async def start(self) -> None:
        """Let the store connect in the background; log it if the store does not connect."""
        await self._store.start()
        if self._immediate is None:
            self._watching.start(self._look_at_store())

    async def aclose(self) -> None:
        """Finish what is in flight and close the store, even if cancelled meanwhile."""
        async with aclosing(self._store):
            await self.finish()

    async def finish(self) -> None:
        """Finish what is in flight; the store is asked nothing more."""
        self.waiting.close()
        self._backfill.close()
        try:
            await self._shards.aclose()
            await self._watching.finish(0)
            await self.holding.finish(0)
            if self._local is not None:
                self._local.close()
                await asyncio.sleep(0)  # Sends what was asked in this turn.
                # Asks in flight may still bring tokens, which are returned immediately.
                await self._tasks.finish(1)
            await self._tasks.finish(1)
        finally:
            self._tasks.cancel()
            self._returns.drop()

    def decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        """Decide on one request: immediately if the store is in this process.

        Args:
            ask: what to decide.
            rules: the rule behind each limit of the ask.
        """
        if self._trials is not None and is_tried(rules):
            return self._trials.decide(ask, rules)
        return self._decide(ask, rules)

    def _decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        if ask.max_wait_us == DEBIT and not self._counts_debits:
            ask = ask._replace(max_wait_us=0)
        if self._immediate is not None:
            return Outcome(self._immediate.decide_now(ask), rules, None, False, ask)
        # Only the store knows what is owed; decisions made here have the same cost for all limits.
        near = None if ask.max_wait_us == DEBIT or ask.costs else self._local
        pending = Pending(ask, rules) if near is None else near.decide(ask, rules)
        if isinstance(pending, Outcome):
            return pending
        return self._ask(pending) or pending

    def _ask(self, pending: Pending) -> Outcome | None:
        """Add an ask to this turn's batch; return the outcome if the store is not in use."""
        if self._is_in_use(pending):
            self._enqueue(pending)
            return None
        self._metrics.errors["breaker_open"] += 1
        return pending.lost(self._decide_alone)

    def _is_in_use(self, pending: Pending) -> bool:
        """Return whether the servers that this ask needs are in use; note its shard."""
        if self._sharded is None:
            return self._whole.is_in_use
        pending.shard = self._sharded.shard(pending.ask)
        return self._shards[pending.shard].is_in_use

    def _enqueue(self, pending: Pending) -> None:
        """Add an ask to the batch of this turn of the loop."""
        self._pending.append(pending)
        if len(self._pending) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        if len(batch) > BATCH:
            self._pending = batch[BATCH:]
            del batch[BATCH:]
            self._loop.call_soon(self._flush)
        self._ask_shards(batch)

    def _send(self, asks: Sequence[Pending]) -> None:
        """Send asks that no request waits for, in calls of their own."""
        used = []
        for pending in asks:
            if self._is_in_use(pending):
                used.append(pending)
            else:
                pending.lost(self._decide_alone)
        self._ask_shards(used)

    def _ask_shards(self, batch: list[Pending]) -> None:
        """Make one call per shard."""
        if self._sharded is None:
            if batch:
                self._tasks.start(self._ask_store(batch))
            return
        parts: dict[Hashable, list[Pending]] = {}
        for pending in batch:
            parts.setdefault(pending.shard, []).append(pending)
        for part in parts.values():
            self._tasks.start(self._ask_store(part))

    async def _ask_store(self, batch: list[Pending]) -> None:
        metrics = self._metrics
        shard = self._shards[batch[0].shard]
        asks = [pending.ask for pending in batch]
        started_us = self._clock()
        try:
            if self._fallback.unreported:
                verdicts = await self._decide_after_backfill(shard, asks)
            else:
                verdicts = await self._within_deadline(asks)
        except StoreError as error:
            self._shards.failed(shard, error, asks[0])
            self._fail_batch(batch)
            self._backfill.tell()
            return
        except asyncio.CancelledError:
            # The gateway stops; the requests that wait still need an outcome.
            self._fail_batch(batch)
            raise
        self._shards.succeeded(shard, asks, verdicts)
        now_us = self._clock()
        metrics.answered(len(batch), now_us - started_us)
        if self._fallback.unreported:
            self._backfill.tell()
        if self._remembers:
            self._fallback.note_answers(asks, verdicts, now_us)
        for pending, verdict in zip(batch, verdicts, strict=True):
            outcome = Outcome(verdict, pending.rules, None, False, pending.ask)
            if not pending.is_abandoned:
                pending.resolve(outcome)
            elif verdict.allowed:
                # The client left while the ask was in flight.
                self.give_back(outcome)

    async def _decide_after_backfill(self, shard: Shard, asks: list[Ask]) -> Sequence[Verdict]:
        """Report what the same keys were admitted without the store, then return its verdicts."""
        with Deadline(self._loop, self._deadline):
            reports = await self._backfill.before(shard, asks)
            verdicts = await self._within_deadline(reports + asks)
        return verdicts[len(reports) :]

    def _fail_batch(self, batch: list[Pending]) -> None:
        for pending in batch:
            if not pending.is_abandoned:
                pending.lost(self._decide_alone)

    def _lost(self, error: StoreError) -> None:
        log.warning("store unavailable (%s: %s); applying on_store_error", error.reason, error)

    def _found(self) -> None:
        self._backfill.tell()

    def _back(self, seconds: float) -> None:
        log.warning("store available again after %.1f s", seconds)

    async def _look_at_store(self) -> None:
        """Check that the store is usable before the first request needs it."""
        await asyncio.sleep(START_S)
        shard = self._shards[self._sharded.shard(_NOTHING) if self._sharded is not None else None]
        while shard.is_in_use:
            try:
                await self._within_deadline([_NOTHING])
            except StoreError as error:
                self._shards.failed(shard, error, _NOTHING)
            else:
                return

    async def _within_deadline(self, asks: list[Ask]) -> Sequence[Verdict]:
        return await decide_within(self._store, asks, self._deadline)

    def _decide_alone(self, pending: Pending) -> Outcome:
        return self._fallback.decide(pending, self._parts)

    @property
    def _parts(self) -> int:
        """How many gateways share the limits."""
        return self._share or max(self._store.gateways, self._siblings)

    def may_wait(self, outcome: Outcome) -> bool:
        """Return whether one more request may wait, under its policy and in total."""
        slowest = slowest_rule(outcome)
        return self.waiting.has_room(
            outcome.ask, outcome.verdict, slowest.policy.queue_max, is_alone=outcome.alone
        )

    async def wait_turn(
        self, outcome: Outcome, has_left: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when the request's turn has come; if cancelled, give the turn back.

        Args:
            outcome: the store's decision.
            has_left: returns whether the request is about to be cancelled; its turn then already
                belongs to the others.
        """
        await self.waiting.wait(
            outcome.ask,
            outcome.verdict,
            lambda ask, verdict: self.give_back(outcome._replace(ask=ask, verdict=verdict)),
            is_alone=outcome.alone,
            has_left=has_left,
        )

    def give_back(self, outcome: Outcome) -> None:
        """Undo an allowed outcome, since the request is not made. Debits cannot be undone."""
        if outcome.ask.max_wait_us == DEBIT:
            return
        if outcome.near and self._local is not None:
            outcome, taken = split(outcome)
            self._local.put_back(taken, outcome.ask.cost)
            if not outcome.rules:
                return
        if outcome.alone:
            self._fallback.give_back(outcome)
        elif self._immediate is not None:
            self._immediate.give_back_now(outcome.ask, outcome.verdict)
        else:
            self._returns.add(outcome.ask, outcome.verdict)

    async def renew(self, outcome: Outcome) -> bool:
        """Keep what an allowed outcome holds for another lease; see `Store.renew`.

        Raises:
            StoreError: it may or may not still be held.
        """
        if outcome.alone:
            return self._fallback.renew(outcome)
        try:
            async with asyncio.timeout(self._deadline):
                return await self._store.renew(outcome.ask, outcome.verdict)
        except TimeoutError:
            raise StoreTimeout("no answer within the deadline") from None
