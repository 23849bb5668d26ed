"""Decides in this gateway what its policies do not leave to the store, limit by limit.

A request may have limits of every consistency. What can be decided here is; if that refuses, the
store is not asked. The rest goes to the store, and if the store refuses, what was taken here is put
back: all limits of a request are spent or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.base.clock import US, Clock, wall_us
from gateway.limiter.local.leasing import GiveBack, Leasing
from gateway.limiter.local.reporting import Reporting, Send
from gateway.limiter.outcome import Outcome, Pending
from gateway.limiter.parts import LocalPart, join, local_outcome
from gateway.limiter.plan import Rule
from gateway.limits.consistency_mode import Eventual, Leased, Terms
from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask

MAX_RECHECKS: Final = 4
"""How often a request that the store refuses is retried with tokens that arrived for its leases."""


class LocalDecider:
    """Decides between requests and the decider's store.

    Args:
        terms: all terms that any policy has.
        enqueue: adds an ask to the next batch.
        send: asks the store in a call of its own.
        give_back: returns something to the store.
        clock: this process's time.
        calendar_clock: the time of day, for calendar windows.
        gateways: returns how many decide on the same keys, this one included.
    """

    def __init__(
        self,
        terms: Iterable[Terms],
        enqueue: Callable[[Pending], object],
        send: Send,
        give_back: GiveBack,
        clock: Clock,
        calendar_clock: Clock = wall_us,
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self.leasing = Leasing(_longest_us(terms), enqueue, give_back, clock)
        self._reporting = Reporting(send, give_back, clock, calendar_clock, gateways)
        self.enqueue = enqueue
        self.clock = clock

    def __repr__(self) -> str:
        return f"<Near {self.leasing!r}, {self._reporting!r}>"

    def reconfigure(self, terms: Iterable[Terms]) -> None:
        """Decide on policies with these terms from now on."""
        self.leasing.keep_for(_longest_us(terms))

    def decide(self, ask: Ask, rules: Sequence[Rule], rechecks: int = 0) -> Outcome | Pending:
        """Return the outcome, or what the store is to be asked.

        Args:
            ask: what to decide.
            rules: the rule behind each limit of the ask.
            rechecks: how often the store has refused it before.
        """
        if len(rules) == 1:
            # Most routes have one limit. The code below would do the same, at twice the cost.
            rule = rules[0]
            decision = self._decide_one(ask.limits[0], ask.keys[0], rule.policy.terms, ask)
            if decision is not None:
                verdict = Verdict(decision.allowed, 0, decision.retry_after_us, (decision,))
                return Outcome(verdict, rules, None, False, ask, (0,))
            if rule.policy.terms is None:
                return Pending(ask, rules)
            return _PartlyDecided(self, ask, rules, ask, rules, (), rechecks)
        taken: list[LocalPart] = []
        left: list[int] = []
        is_refused = False
        for index, rule in enumerate(rules):
            limit, key = ask.limits[index], ask.keys[index]
            decision = self._decide_one(limit, key, rule.policy.terms, ask)
            if decision is None:
                left.append(index)
                continue
            taken.append(LocalPart(rule, key, decision))
            is_refused = is_refused or not decision.allowed
        if is_refused:
            self.put_back(taken, ask.cost)
        if is_refused or not left:
            return local_outcome(ask, rules, taken)
        if not taken and not any(rule.policy.terms for rule in rules):
            return Pending(ask, rules)
        far = Ask(
            tuple(ask.limits[index] for index in left),
            tuple(ask.keys[index] for index in left),
            ask.cost,
            ask.max_wait_us,
        )
        return _PartlyDecided(
            self, ask, rules, far, [rules[index] for index in left], taken, rechecks
        )

    def _decide_one(self, limit: Limit, key: str, terms: Terms | None, ask: Ask) -> Decision | None:
        if isinstance(terms, Leased):
            return self.leasing.spend(limit, key, terms, ask)
        if isinstance(terms, Eventual):
            return self._reporting.decide(limit, key, terms, ask.cost)
        return None

    def put_back(self, taken: Iterable[LocalPart], cost: int) -> None:
        """Undo what was decided here, since the request is not made."""
        for rule, key, decision in taken:
            terms = rule.policy.terms
            if not decision.allowed or not cost:
                continue
            if isinstance(terms, Leased):
                self.leasing.unspend(decision.receipt, cost)
            elif isinstance(terms, Eventual):
                self._reporting.undo(rule.limit, key, terms, cost, decision)

    def close(self) -> None:
        """Report what has not been reported, and return what has not been spent."""
        self._reporting.close()
        self.leasing.close()


def _longest_us(terms: Iterable[Terms]) -> int:
    """Return the longest lifetime of any lease."""
    return max((each.lifetime_us for each in terms if isinstance(each, Leased)), default=US)


class _PartlyDecided(Pending):
    """The part of a request that the store decides, and what was decided here already.

    Args:
        near: the decider.
        whole_ask: the whole ask.
        whole_rules: the rule behind each of its limits.
        ask: the store's part.
        rules: the rules of that part.
        taken: what was decided here.
        rechecks: how often the store has refused the request before.
    """

    __slots__ = (
        "_again",
        "_asked_us",
        "_local_decider",
        "_rechecks",
        "_taken",
        "_whole_ask",
        "_whole_rules",
    )

    def __init__(
        self,
        near: LocalDecider,
        whole_ask: Ask,
        whole_rules: Sequence[Rule],
        ask: Ask,
        rules: Sequence[Rule],
        taken: Sequence[LocalPart],
        rechecks: int,
    ) -> None:
        super().__init__(ask, rules)
        self._local_decider = near
        self._whole_ask = whole_ask
        self._whole_rules = whole_rules
        self._taken: Sequence[LocalPart] | None = taken
        self._rechecks = rechecks
        self._again: Pending | None = None
        self._asked_us = near.clock()

    def abandon(self) -> None:
        """Stop waiting; the store's part is given back when it is known."""
        if not self.is_abandoned and self._outcome is None:
            self._put_back()
            if self._again is not None:
                self._again.abandon()
        super().abandon()

    def _put_back(self) -> Sequence[LocalPart]:
        """Undo what was decided here, once."""
        taken, self._taken = self._taken or (), None
        self._local_decider.put_back(taken, self.ask.cost)
        return taken

    def resolve(self, outcome: Outcome) -> None:
        """Join the store's part with what was decided here."""
        if not outcome.alone:
            verdict, leasing = outcome.verdict, self._local_decider.leasing
            decisions = leasing.answered(self.ask, self.rules, verdict, self._asked_us)
            outcome = outcome._replace(verdict=verdict._replace(decisions=decisions))
        if outcome.verdict.allowed:
            super().resolve(join(outcome, self._whole_rules, self._taken or ()))
            return
        refused = join(outcome, self._whole_rules, self._put_back())
        if outcome.alone:
            super().resolve(refused)
        else:
            self._recheck(outcome.verdict, refused)

    def _recheck(self, verdict: Verdict, refused: Outcome) -> None:
        """Check whether the request may pass after all, by what is held here; else refuse it."""
        if self.is_abandoned:
            return
        self._rechecks += 1
        is_there = None
        if self._rechecks < MAX_RECHECKS:
            is_there = self._local_decider.leasing.recheck(
                self.ask, self.rules, verdict, lambda: self._recheck(verdict, refused)
            )
        if is_there is None:
            super().resolve(refused)
        elif is_there:
            again = self._local_decider.decide(self._whole_ask, self._whole_rules, self._rechecks)
            if isinstance(again, Outcome):
                super().resolve(again)
            else:
                self._again = again
                again.then(super().resolve)
                self._local_decider.enqueue(again)
