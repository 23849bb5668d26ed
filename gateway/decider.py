"""Between the policies and a store: one batch per turn of the event loop, and every failure.

`Decider.decide` answers at once where the store is in this process. Otherwise all asks of one
turn of the loop travel together, under a deadline; a circuit breaker keeps a dead store from
costing every request that deadline. What happens to an ask that the store could not decide is
its policies' word, so no failure of a store is ever an exception here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from gateway.breaker import Breaker, BreakerState
from gateway.clock import Clock, monotonic_us
from gateway.consistency.near import Near, split
from gateway.consistency.outcome import Outcome, Pending, refusing_rule, slowest_rule
from gateway.errors import StoreError, StoreReplyError, StoreTimeout
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.limits.terms import Terms
from gateway.metrics import StoreMetrics
from gateway.policy import Rule
from gateway.stores.base import Ask, ImmediateStore, Store
from gateway.stores.memory import MemoryStore
from gateway.tasks import Tasks
from gateway.waiting import WaitingRoom

__all__ = ["Decider", "Outcome", "Pending", "refusing_rule", "slowest_rule"]

log = logging.getLogger(__name__)

US = 1_000_000
CLOSED_RETRY_AFTER_US: Final = 1_000_000
"""What a request is told that is refused because the store is away: nobody knows better."""

FAILURES: Final = 3
"""Calls in a row that may fail before the store is left alone."""
PROBE_AFTER_US: Final = US // 4
LONGEST_PROBE_US: Final = US
"""How often a store that failed is tried: at first, and when it has been away for long."""
START_S: Final = 1.0
"""How long a store may take to be there before its absence is worth a line in the log."""

_NOTHING: Final = Ask((Limit(1, US, 1, scope="probe"),), ("probe",), 0, 0)
_PASSED: Final = Verdict(True, 0, 0, ())
_CLOSED: Final = Verdict(False, 0, CLOSED_RETRY_AFTER_US, ())


class Decider:
    """Asks a store, in batches, and never fails.

    Args:
        store: where counts live.
        deadline_us: how long one call may take before its policies' `on_store_error` speaks.
        share: how many gateways share the limits while this one is alone; None takes the
            number that the store last saw.
        max_waiting: how many requests may wait for their turn in all.
        metrics: counters of the store's calls.
        terms: those of the policies that are not strict. Where the store is in this process
            they change nothing: nothing is faster or more exact than asking it.
    """

    def __init__(
        self,
        store: Store,
        *,
        deadline_us: int,
        share: int | None,
        max_waiting: int,
        metrics: StoreMetrics,
        clock: Clock = monotonic_us,
        terms: Iterable[Terms] = (),
    ) -> None:
        self._store = store
        self._immediate = store if isinstance(store, ImmediateStore) else None
        self._deadline = deadline_us / US
        self._share = share
        self._metrics = metrics
        self._clock = clock
        self._breaker = Breaker(FAILURES, PROBE_AFTER_US, LONGEST_PROBE_US)
        self._is_probing = False
        self._fallback = MemoryStore(clock=clock)
        self._pending: list[Pending] = []
        self._tasks = Tasks()
        self._watching = Tasks()
        self._loop = asyncio.get_running_loop()
        terms = tuple(terms)
        self._near: Near | None = None
        if terms and self._immediate is None:
            self._near = Near(terms, self._enqueue, self._send, self._give_back_later, clock)
        self.waiting = WaitingRoom(max_waiting)
        metrics.refresh = self._refresh_metrics

    @property
    def is_ready(self) -> bool:
        """Whether an ask would be answered by the store now, as far as is known."""
        return self._store.is_ready and self._breaker.state is BreakerState.CLOSED

    def _refresh_metrics(self) -> None:
        self._metrics.is_ready = self.is_ready
        self._metrics.breaker = self._breaker.state.value

    async def start(self) -> None:
        """Let the store connect in the background; say so if it does not."""
        await self._store.start()
        if self._immediate is None:
            self._watching.start(self._look_at_store())

    async def aclose(self) -> None:
        """Finish what is under way and let go of the store."""
        await self._watching.finish(0)
        if self._near is not None:
            self._near.close()
            await asyncio.sleep(0)  # What was asked in this turn is on its way then.
            # What is under way may still bring tokens, which are returned at once.
            await self._tasks.finish(1)
        await self._tasks.finish(1)
        await self._store.aclose()

    def decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        """Decide on one request: at once if the store is in this process.

        Args:
            ask: the question.
            rules: the rule behind each limit of the question.
        """
        if self._immediate is not None:
            return Outcome(self._immediate.decide_now(ask), rules, None, False, ask)
        if self._near is not None:
            return self._decide_near(self._near, ask, rules)
        if self._breaker.state is not BreakerState.CLOSED:
            self._metrics.errors["breaker_open"] += 1
            return self._decide_alone(ask, rules)
        pending = Pending(ask, rules)
        self._enqueue(pending)
        return pending

    def _decide_near(self, near: Near, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        answer = near.decide(ask, rules)
        if isinstance(answer, Pending):
            if self._breaker.state is BreakerState.CLOSED:
                self._enqueue(answer)
            else:
                self._metrics.errors["breaker_open"] += 1
                return answer.lost(self._decide_alone) or answer
        return answer

    def _enqueue(self, pending: Pending) -> None:
        """Let an ask travel with the others of this turn of the loop."""
        self._pending.append(pending)
        if len(self._pending) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        self._tasks.start(self._ask_store(batch))

    def _send(self, asks: Sequence[Pending]) -> None:
        """Let asks travel by themselves."""
        if self._breaker.state is BreakerState.CLOSED:
            self._tasks.start(self._ask_store(list(asks)))
        else:
            for pending in asks:
                pending.lost(self._decide_alone)

    async def _ask_store(self, batch: list[Pending]) -> None:
        metrics = self._metrics
        started_us = self._clock()
        try:
            verdicts = await self._within_deadline([pending.ask for pending in batch])
        except StoreError as error:
            self._failed(error)
            for pending in batch:
                if not pending.is_abandoned:
                    pending.lost(self._decide_alone)
            return
        now_us = self._clock()
        self._breaker.success(now_us)
        metrics.answered(len(batch), now_us - started_us)
        for pending, verdict in zip(batch, verdicts, strict=True):
            outcome = Outcome(verdict, pending.rules, None, False, pending.ask)
            if not pending.is_abandoned:
                pending.resolve(outcome)
            elif verdict.allowed:
                # The client left while the store was being asked.
                self.give_back(outcome)

    def _failed(self, error: StoreError) -> None:
        """A call failed; after some in a row the store is asked by a probe alone."""
        self._breaker.failure(self._clock())
        self._metrics.errors[error.reason] += 1
        if self._breaker.state is not BreakerState.CLOSED and not self._is_probing:
            self._is_probing = True
            log.warning(
                "the store does not decide (%s: %s); on_store_error does", error.reason, error
            )
            self._watching.start(self._probe())

    async def _probe(self) -> None:
        """Ask the store for nothing until it answers, so that no request has to find out."""
        lost_us = self._clock()
        while True:
            await asyncio.sleep(PROBE_AFTER_US / US)
            if not self._breaker.allow(self._clock()):
                continue
            try:
                await self._within_deadline([_NOTHING])
            except StoreError as error:
                self._failed(error)
            else:
                break
        now_us = self._clock()
        self._breaker.success(now_us)
        self._is_probing = False
        log.warning("the store decides again, after %.1f s", (now_us - lost_us) / US)

    async def _look_at_store(self) -> None:
        """See whether the store can be used at all, before the first request needs it."""
        await asyncio.sleep(START_S)
        while self._breaker.state is BreakerState.CLOSED:
            try:
                await self._within_deadline([_NOTHING])
            except StoreError as error:
                self._failed(error)
            else:
                return

    async def _within_deadline(self, asks: list[Ask]) -> Sequence[Verdict]:
        """Ask the store; a late answer counts as none, unless this loop itself was late."""
        with _Deadline(self._loop, self._deadline):
            try:
                verdicts = await self._store.decide(asks)
            except StoreError:
                raise
            except Exception as error:
                # Against the contract; but the requests that wait must not wait for ever.
                log.exception("The store failed in a way that it must not")
                raise StoreError("an error of another kind") from error
        if len(verdicts) != len(asks):
            raise StoreReplyError("not one verdict for each ask")
        return verdicts

    def _decide_alone(self, ask: Ask, rules: Sequence[Rule]) -> Outcome:
        """Do what each policy says of a store that does not answer."""
        limits: list[Limit] = []
        keys: list[str] = []
        kept: list[Rule] = []
        parts = self._share or self._store.gateways
        for limit, key, rule in zip(ask.limits, ask.keys, rules, strict=True):
            if rule.policy.on_store_error == "closed":
                return Outcome(_CLOSED, (), rule.policy, True, ask)
            if rule.policy.on_store_error == "local":
                share = _share(limit, parts)
                limits.append(share)
                keys.append(key)
                kept.append(rule if share is limit else rule._replace(limit=share))
        if not limits:
            return Outcome(_PASSED, (), None, True, ask)
        local_ask = Ask(tuple(limits), tuple(keys), ask.cost, ask.max_wait_us)
        verdict = self._fallback.decide_now(local_ask)
        return Outcome(verdict, kept, None, True, local_ask)

    def may_wait(self, outcome: Outcome) -> bool:
        """Whether there is room for one more that waits, of its policy and in all."""
        slowest = slowest_rule(outcome)
        return self.waiting.has_room(outcome.ask, outcome.verdict, slowest.policy.queue_max)

    async def wait_turn(self, outcome: Outcome) -> None:
        """Return when the request's turn has come; if cancelled, the turn is given back."""
        await self.waiting.wait(
            outcome.ask,
            outcome.verdict,
            lambda ask, verdict: self.give_back(outcome._replace(ask=ask, verdict=verdict)),
        )

    def give_back(self, outcome: Outcome) -> None:
        """Undo an allowed outcome: the request will not be made after all."""
        if outcome.near and self._near is not None:
            outcome, taken = split(outcome)
            self._near.put_back(taken, outcome.ask.cost)
            if not outcome.rules:
                return
        if outcome.alone:
            self._fallback.give_back_now(outcome.ask, outcome.verdict)
        elif self._immediate is not None:
            self._immediate.give_back_now(outcome.ask, outcome.verdict)
        else:
            self._give_back_later(outcome.ask, outcome.verdict)

    def _give_back_later(self, ask: Ask, verdict: Verdict) -> None:
        self._tasks.start(self._give_back(ask, verdict))

    async def _give_back(self, ask: Ask, verdict: Verdict) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                await self._store.give_back(ask, verdict)
        except (StoreError, TimeoutError):
            # The turn stays taken: too little may pass then, never too much.
            self._metrics.errors["give_back"] += 1


class _Deadline:
    """Ends what its task waits for with `StoreTimeout`.

    `asyncio.timeout` would do the same, but cannot tell a slow store from a stall of this
    process: then the answer may be lying in the socket all the while, so there is one more
    span of time to look for it.
    """

    __slots__ = ("_due", "_is_extended", "_is_over", "_loop", "_seconds", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._is_extended = False
        self._is_over = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._due = self._loop.time() + self._seconds
        self._timer = self._loop.call_later(self._seconds, self._end)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise StoreTimeout("no answer within the deadline") from None

    def _end(self) -> None:
        if not self._is_extended and self._loop.time() - self._due > self._seconds / 4:
            self._is_extended = True
            self._timer = self._loop.call_later(self._seconds, self._end)
        elif self._task is not None:
            self._is_over = True
            self._task.cancel()


@lru_cache(maxsize=4096)
def _share(limit: Limit, parts: int) -> Limit:
    return limit.share(parts)
