"""Decides from the store's last answers, and reports to it afterwards.

State and its rules, without I/O: the caller sends the reports and probes that are due and passes on
the store's answers. This gateway limits each key by itself, in a replica of its own; beyond that a
key gets no more than the store reported as left, and nothing while the store counts it as
overdrawn. As long as the store has not answered, only the replica limits the key: the gateway fails
open.

Keys that pass are reported to the store. It is probed about a key that is not known here, and
about a key that is refused because of an earlier answer: nothing else would ever correct that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.base.clock import Clock, monotonic_us, wall_us
from gateway.limiter.admissions import Key, Unreported
from gateway.limiter.local.eventual_state import FULLY_KNOWN, RemoteView
from gateway.limiter.local.generations import Generations
from gateway.limiter.local.unreported import REPORTED_INTERVALS, longest_us
from gateway.limiter.reports import report
from gateway.limits.consistency_mode import Eventual
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore

MAX_KEYS: Final = 200_000
"""The most keys to remember; beyond that, the least recently used are forgotten."""
MAX_PROBES: Final = 256
"""The most keys to probe; the store's counts of others arrive with the answers to reports."""
KEPT_US: Final = 60_000_000
"""How long the store's answer about an unused key is kept."""
_NOTHING: Final = Unreported()


class UnreportedPasses(NamedTuple):
    """What was admitted of one key since the last report."""

    limit: Limit
    key: str
    asks: tuple[Ask, ...]


class Probe(NamedTuple):
    """A probe of one key: may a request of this cost pass? With cost 0, what is left.

    What passed here is reported after `interval_us`.
    """

    limit: Limit
    key: str
    cost: int
    interval_us: int


class EventualState:
    """The state of one gateway for limits with `consistency: eventual`.

    Args:
        clock: this process's time.
        calendar_clock: the time of day, for calendar windows.
        gateways: returns how many gateways decide on the same keys, including this one.
    """

    def __init__(
        self,
        clock: Clock = monotonic_us,
        calendar_clock: Clock = wall_us,
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self._clock = clock
        self._calendar_clock = calendar_clock
        self._gateways = gateways
        advice = "it has the admissions of this gateway under consistency: eventual"
        self._replica = MemoryStore(MAX_KEYS, clock, calendar_clock, advice)
        self._views: Generations[Key, RemoteView] = Generations(MAX_KEYS, KEPT_US)
        self._unreported: dict[int, Unreported] = {}
        self._leaving: dict[int, Unreported] = {}
        self._probes: dict[Key, Probe] = {}
        self._in_probe: set[Key] = set()

    def __repr__(self) -> str:
        return f"<EventualState of {len(self._views)} keys>"

    def decide(self, limit: Limit, key: str, terms: Eventual, cost: int) -> Decision:
        """Decide on one request immediately."""
        now_us = self._clock()
        name = (limit.scope, key)
        view = self._views.get(name, now_us)
        if view is None:
            self._add_probe(name, limit, 0, terms)
        elif 0 < cost <= limit.burst:
            wait_us = view.wait_us(limit, cost, now_us)
            if wait_us > 0:
                self._probe_if_stale(view, limit, key, terms, cost)
                refusal = self._refuse(limit, key, cost, wait_us, view.resets_us - now_us)
                return self._with_unreported(refusal, view, limit, terms, cost)
        decision = self._replica.decide_limit(limit, key, cost, 0)
        if decision.allowed and cost:
            noted = self._unreported.get(terms.interval_us)
            if noted is None:
                noted = self._unreported[terms.interval_us] = Unreported()
            noted.note(limit, limit, key, cost)
            if view is not None:
                view.spent += cost
                view.passed_us = now_us
        elif not decision.allowed and decision.retry_after_us != NEVER and self._gateways() > 1:
            if view is not None:
                self._probe_if_stale(view, limit, key, terms, cost)
            decision = self._with_unreported(decision, view, limit, terms, cost)
        if view is not None:
            left = view.left(limit, now_us)
            if left < decision.remaining:
                decision = decision._replace(remaining=left)
        return decision

    def _probe_if_stale(
        self, view: RemoteView, limit: Limit, key: str, terms: Eventual, cost: int
    ) -> None:
        """Probe a refused key if the store's answer about it is old."""
        if view.is_stale(limit, self._clock(), terms.interval_us):
            probe_cost = 0 if limit.algorithm in FULLY_KNOWN else cost
            self._add_probe((limit.scope, key), limit, probe_cost, terms)

    def _with_unreported(
        self, refusal: Decision, view: RemoteView | None, limit: Limit, terms: Eventual, cost: int
    ) -> Decision:
        """Return a refusal that allows for unreported admissions of other gateways."""
        report_us = REPORTED_INTERVALS * terms.interval_us
        if view is not None and view.is_settled(limit, cost, self._clock(), report_us):
            return refusal
        gateways = self._gateways()
        if gateways <= 1:
            return refusal
        longest = longest_us(limit, cost, report_us, self._calendar_clock(), gateways)
        retry_after_us = max(refusal.retry_after_us, longest)
        reset_us = max(refusal.reset_us, retry_after_us)
        return refusal._replace(retry_after_us=retry_after_us, reset_us=reset_us)

    def _refuse(self, limit: Limit, key: str, cost: int, wait_us: int, reset_us: int) -> Decision:
        """Return a refusal by the store's answer, or by the own count if that takes longer."""
        own = self._replica.decide_limit(limit, key, 0, 0)
        if own.remaining < cost:
            own = self._replica.decide_limit(limit, key, cost, 0)
        retry_after_us = max(wait_us, own.retry_after_us)
        reset_us = max(retry_after_us, reset_us, own.reset_us)
        return Decision(False, 0, retry_after_us, limit.burst, 0, reset_us, 0)

    def undo(self, limit: Limit, key: str, terms: Eventual, cost: int, decision: Decision) -> None:
        """Take back an admission; one that was reported already stays reported."""
        verdict = Verdict(True, 0, 0, (decision,))
        self._replica.give_back_now(Ask((limit,), (key,), cost, 0), verdict)
        name = (limit.scope, key)
        view = self._views.get(name, self._clock())
        for waiting in (self._unreported, self._leaving):
            undone = waiting.get(terms.interval_us, _NOTHING).undo(name, cost)
            cost -= undone
            if view is not None:
                view.spent = max(view.spent - undone, 0)

    # Reports to the store.

    def is_due(self, interval_us: int) -> bool:
        """Return whether there is anything to report."""
        return bool(self._unreported.get(interval_us))

    def gather(self, interval_us: int) -> None:
        """End an interval: what was admitted in it is now to be reported."""
        leaving = self._leaving.setdefault(interval_us, Unreported())
        leaving.take_over(self._unreported.pop(interval_us, _NOTHING))

    def reports(self, interval_us: int, at_most: int) -> list[UnreportedPasses]:
        """Remove and return some gathered admissions; none if all have been reported.

        Args:
            interval_us: the interval of the terms.
            at_most: the most asks to return, unless the first report alone has more.
        """
        found: list[UnreportedPasses] = []
        asks = 0
        for noted in self._leaving.get(interval_us, _NOTHING).take():
            if noted.cost:
                pieces = report(noted.limit, noted.key, noted.cost)
                found.append(UnreportedPasses(noted.limit, noted.key, pieces))
                asks += len(pieces)
            if asks >= at_most:
                break
        return found

    def reported(self, limit: Limit, ask: Ask, gathered_us: int, decision: Decision) -> None:
        """Process the store's answer to a piece of a report.

        Args:
            limit: the limit.
            ask: the piece.
            gathered_us: the start of the interval in which the reported requests were admitted.
            decision: the store's answer.
        """
        now_us = self._clock()
        view = RemoteView.of_report(limit, ask.cost, now_us - gathered_us, decision, now_us)
        self._keep(limit, ask.keys[0], view)

    # Probes.

    def _add_probe(self, name: Key, limit: Limit, cost: int, terms: Eventual) -> None:
        if name not in self._in_probe and len(self._probes) < MAX_PROBES:
            self._probes[name] = Probe(limit, name[1], cost, terms.interval_us)

    @property
    def has_probes(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self._probes)

    def take_probes(self, at_most: int) -> list[Probe]:
        """Remove and return some of the probes; each is to be reported as answered or failed."""
        names = list(self._probes)[:at_most]
        self._in_probe.update(names)
        return [self._probes.pop(name) for name in names]

    def probe_answered(self, probe: Probe, decision: Decision) -> None:
        """Process the answer to a probe; the caller gives back what it took of the key."""
        limit, key, cost, interval_us = probe
        self._in_probe.discard((limit.scope, key))
        self._keep(
            limit, key, RemoteView.of_probe(limit, cost, interval_us, decision, self._clock())
        )

    def probe_failed(self, probe: Probe) -> None:
        """Note that the store has not answered a probe."""
        self._in_probe.discard((probe.limit.scope, probe.key))

    def _keep(self, limit: Limit, key: str, view: RemoteView) -> None:
        name = (limit.scope, key)
        waiting = (*self._unreported.values(), *self._leaving.values())
        view.spent = sum(noted.cost_of(name) for noted in waiting)
        before = self._views.get(name, view.seen_us)
        if before is not None:
            view.passed_us = before.passed_us
        self._views.put(name, view, view.seen_us)
