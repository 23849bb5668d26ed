"""Decides in this gateway what its policies do not leave to the store, limit by limit.

A request may have limits of every consistency. What can be decided here is; if that refuses,
nobody else is asked. The rest travels to the store, and if the store refuses, what was taken
here is put back: all limits of a request are spent or none, as everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.clock import Clock
from gateway.consistency.hearsay import Hearsay, Report
from gateway.consistency.leases import LeaseBook
from gateway.consistency.outcome import DecideAlone, Outcome, Pending
from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.limits.terms import Eventual, Leased, Terms
from gateway.policy import Rule
from gateway.stores.base import Ask

US: Final = 1_000_000
REPORTS_A_CALL: Final = 256
"""Asks in one call of the store that no request waits for, so that requests are not held up."""

Send = Callable[[list[Pending]], None]
GiveBack = Callable[[Ask, Verdict], None]
Taken = tuple[Rule, str, Decision]
"""What was decided here: by which rule, for which key, how."""


class Near:
    """Between requests and the decider's store.

    Args:
        terms: all terms that any policy has.
        enqueue: lets an ask travel with the next batch.
        send: asks the store in a call of its own.
        give_back: returns something to the store.
        clock: this process's time.
    """

    def __init__(
        self,
        terms: Iterable[Terms],
        enqueue: Callable[[Pending], None],
        send: Send,
        give_back: GiveBack,
        clock: Clock,
    ) -> None:
        lifetimes = [each.lifetime_us for each in terms if isinstance(each, Leased)]
        self._leases = LeaseBook(clock, max(lifetimes, default=US))
        self._hearsay = Hearsay(clock)
        self._enqueue = enqueue
        self._send = send
        self._give_back = give_back
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._returning: asyncio.TimerHandle | None = None
        self._returning_us = 0
        self._reporting: dict[int, asyncio.TimerHandle] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Near {self._leases!r}, {self._hearsay!r}>"

    def decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        """Decide, or say what the store is to be asked."""
        if len(rules) == 1:
            # Most routes have one limit. What follows would do the same, at twice the cost.
            rule = rules[0]
            decision = self._decide_one(ask.limits[0], ask.keys[0], rule.policy.terms, ask)
            if decision is not None:
                verdict = Verdict(decision.allowed, 0, decision.retry_after_us, (decision,))
                return Outcome(verdict, rules, None, False, ask, 1)
            return Pending(ask, rules) if rule.policy.terms is None else _Mixed(self, ask, rules)
        taken: list[Taken] = []
        left: list[int] = []
        is_refused = False
        for index, rule in enumerate(rules):
            limit, key = ask.limits[index], ask.keys[index]
            decision = self._decide_one(limit, key, rule.policy.terms, ask)
            if decision is None:
                left.append(index)
                continue
            taken.append((rule, key, decision))
            is_refused = is_refused or not decision.allowed
        if is_refused:
            self.put_back(taken, ask.cost)
        if is_refused or not left:
            return _near_outcome(taken, ask)
        if not taken and not any(rule.policy.terms for rule in rules):
            return Pending(ask, rules)
        far = Ask(
            tuple(ask.limits[index] for index in left),
            tuple(ask.keys[index] for index in left),
            ask.cost,
            ask.max_wait_us,
        )
        return _Mixed(self, far, [rules[index] for index in left], taken)

    def _decide_one(self, limit: Limit, key: str, terms: Terms | None, ask: Ask) -> Decision | None:
        if isinstance(terms, Leased):
            decision = self._leases.spend(limit, key, terms, ask.cost, ask.max_wait_us)
            if decision is not None and decision.allowed:
                self._refill(limit, key, terms)
            return decision
        if isinstance(terms, Eventual):
            decision = self._hearsay.decide(limit, key, terms, ask.cost)
            self._report_later(terms.interval_us)
            return decision
        return None

    def put_back(self, taken: Iterable[Taken], cost: int) -> None:
        """Undo what was decided here: the request will not be made."""
        for rule, key, decision in taken:
            terms = rule.policy.terms
            if not decision.allowed or not cost:
                continue
            if isinstance(terms, Leased):
                excess = self._leases.unspend(decision.receipt, cost)
                if excess is not None:
                    self._give_back(*excess)
            elif isinstance(terms, Eventual):
                self._hearsay.undo(rule.limit, key, terms, cost, decision)

    # Leases.

    def heard(self, ask: Ask, rules: Sequence[Rule], verdict: Verdict, asked_us: int) -> None:
        """The store has decided on a request; take a lease of what it will need again."""
        for limit, key, rule, decision in zip(
            ask.limits, ask.keys, rules, verdict.decisions, strict=True
        ):
            terms = rule.policy.terms
            if isinstance(terms, Leased) and ask.cost:
                self._leases.heard(limit, key, terms, ask.cost, decision, asked_us)
                self._refill(limit, key, terms)

    def _refill(self, limit: Limit, key: str, terms: Leased) -> None:
        tokens = self._leases.wanted(limit, key) if not self._is_closed else 0
        if tokens:
            self._enqueue(_Refill(self, limit, key, terms, tokens))

    def refilled(self, refill: _Refill, decision: Decision | None) -> None:
        """The store has answered a refill; None if it has not."""
        (limit,), (key,), tokens, _ = refill.ask
        if decision is None or not decision.allowed:
            self._leases.denied(limit, key, decision)
            return
        self._leases.granted(limit, key, refill.terms, tokens, decision, refill.asked_us)
        if self._is_closed:
            self._return(self._leases.close())
        else:
            self._return_later()

    def _return_later(self) -> None:
        due_us = self._leases.next_expiry_us
        if due_us is None:
            return
        if self._returning is not None:
            if self._returning_us <= due_us:
                return
            self._returning.cancel()
        self._returning_us = due_us
        delay_s = max(due_us - self._clock(), 0) / US
        self._returning = self._loop.call_later(delay_s, self._return_expired)

    def _return_expired(self) -> None:
        self._returning = None
        self._return(self._leases.expired())
        self._return_later()

    def _return(self, returns: list[tuple[Ask, Verdict]]) -> None:
        for ask, verdict in returns:
            self._give_back(ask, verdict)

    # What is decided from hearsay.

    def _report_later(self, interval_us: int) -> None:
        if interval_us not in self._reporting and self._hearsay.is_due(interval_us):
            self._reporting[interval_us] = self._loop.call_later(
                interval_us / US, self._report, interval_us
            )

    def _report(self, interval_us: int) -> None:
        self._reporting.pop(interval_us, None)
        asks: list[Pending] = []
        for report in self._hearsay.reports(interval_us):
            for ask in report.asks:
                asks.append(_Told(self._hearsay, report, ask, self._clock()))
                if len(asks) >= REPORTS_A_CALL:
                    self._send(asks)
                    asks = []
        if asks:
            self._send(asks)

    @property
    def clock(self) -> Clock:
        """This process's time."""
        return self._clock

    def close(self) -> None:
        """Report what has not been reported, and return what has not been spent."""
        self._is_closed = True
        if self._returning is not None:
            self._returning.cancel()
        for interval_us, timer in list(self._reporting.items()):
            timer.cancel()
            self._report(interval_us)
        self._return(self._leases.close())


class _Mixed(Pending):
    """The part of a request that the store decides, and what was decided here already."""

    __slots__ = ("_asked_us", "_near", "_taken")

    def __init__(
        self, near: Near, ask: Ask, rules: Sequence[Rule], taken: Sequence[Taken] = ()
    ) -> None:
        super().__init__(ask, rules)
        self._near = near
        self._taken = taken
        self._asked_us = near.clock()

    def abandon(self) -> None:
        """Wait no more; the store's part is given back when it is known."""
        if not self.is_abandoned and self._outcome is None:
            self._near.put_back(self._taken, self.ask.cost)
        super().abandon()

    def resolve(self, outcome: Outcome) -> None:
        """The store's part is known: join the parts."""
        if not outcome.alone:
            self._near.heard(self.ask, self.rules, outcome.verdict, self._asked_us)
        if outcome.verdict.allowed:
            outcome = _join(outcome, self._taken)
        else:
            self._near.put_back(self._taken, self.ask.cost)
        super().resolve(outcome)


class _Refill(Pending):
    """Tokens for a lease, which no request waits for."""

    __slots__ = ("_near", "asked_us", "terms")

    def __init__(self, near: Near, limit: Limit, key: str, terms: Leased, tokens: int) -> None:
        super().__init__(Ask((limit,), (key,), tokens, 0), ())
        self._near = near
        self.terms = terms
        self.asked_us = near.clock()

    def resolve(self, outcome: Outcome) -> None:
        """The store gave the tokens, or did not."""
        self._near.refilled(self, outcome.verdict.decisions[0])

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Nobody knows. Tokens that were given all the same are lost: too few, never more."""
        self._near.refilled(self, None)
        return None


class _Told(Pending):
    """A piece of a report, which no request waits for."""

    __slots__ = ("_asked_us", "_hearsay", "_report")

    def __init__(self, hearsay: Hearsay, report: Report, ask: Ask, asked_us: int) -> None:
        super().__init__(ask, ())
        self._hearsay = hearsay
        self._report = report
        self._asked_us = asked_us

    def resolve(self, outcome: Outcome) -> None:
        """The store has counted it, and says what is left."""
        (decision,) = outcome.verdict.decisions
        self._hearsay.heard(self._report.limit, self._report.key, decision, self._asked_us)

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Not counted, or nobody knows: fail-permissive."""
        return None


def _near_outcome(taken: Sequence[Taken], ask: Ask) -> Outcome:
    """The outcome of what was decided here alone."""
    rules = tuple(rule for rule, _, _ in taken)
    decisions = tuple(decision for _, _, decision in taken)
    limits, keys = tuple(rule.limit for rule in rules), tuple(key for _, key, _ in taken)
    near = Ask(limits, keys, ask.cost, ask.max_wait_us)
    return Outcome(combine(decisions), rules, None, False, near, len(taken))


def _join(far: Outcome, taken: Sequence[Taken]) -> Outcome:
    """The store's part first, then what was decided here."""
    if not taken:
        return far
    near = _near_outcome(taken, far.ask)
    count = len(far.rules)  # A policy that is open has no decision while the store is away.
    return Outcome(
        far.verdict._replace(decisions=(*far.verdict.decisions, *near.verdict.decisions)),
        (*far.rules, *near.rules),
        far.closed_by,
        far.alone,
        Ask(
            far.ask.limits[:count] + near.ask.limits,
            far.ask.keys[:count] + near.ask.keys,
            far.ask.cost,
            far.ask.max_wait_us,
        ),
        len(taken),
    )


def split(outcome: Outcome) -> tuple[Outcome, list[Taken]]:
    """What `_join` joined: the store's part, and what was decided in this gateway."""
    if not outcome.near:
        return outcome, []
    at = len(outcome.rules) - outcome.near
    rules, keys, decisions = (
        outcome.rules[at:],
        outcome.ask.keys[at:],
        outcome.verdict.decisions[at:],
    )
    taken = list(zip(rules, keys, decisions, strict=True))
    ask = outcome.ask
    far = outcome._replace(
        verdict=outcome.verdict._replace(decisions=outcome.verdict.decisions[:at]),
        rules=outcome.rules[:at],
        ask=Ask(ask.limits[:at], ask.keys[:at], ask.cost, ask.max_wait_us),
        near=0,
    )
    return far, taken
