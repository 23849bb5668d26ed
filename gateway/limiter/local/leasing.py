"""Leases between requests and a store: taken beside the requests, returned when they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.base.clock import US, Clock
from gateway.limiter.local.leases import LeaseBook, StoreAnswer
from gateway.limiter.outcome import DecideAlone, Outcome, Pending
from gateway.limiter.plan import Rule
from gateway.limits.consistency_mode import Leased
from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, only

GiveBack = Callable[[Ask, Verdict], None]
Name = tuple[str, str]
"""The scope of a limit, and the identity that is counted."""


class Leasing:
    """Keeps the leases of one gateway filled.

    Args:
        longest_us: the longest lifetime of any lease.
        enqueue: adds an ask to the next batch.
        give_back: returns something to the store.
        clock: this process's time.
    """

    def __init__(
        self,
        longest_us: int,
        enqueue: Callable[[Pending], object],
        give_back: GiveBack,
        clock: Clock,
    ) -> None:
        self._book = LeaseBook(clock, longest_us)
        self._enqueue = enqueue
        self._give_back = give_back
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._returning: asyncio.TimerHandle | None = None
        self._returning_us = 0
        self._waiting: dict[Name, list[Callable[[], None]]] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return repr(self._book)

    def keep_for(self, longest_us: int) -> None:
        """Keep leases that live as long as this, too."""
        self._book.keep_for(longest_us)

    def spend(self, limit: Limit, key: str, terms: Leased, ask: Ask) -> Decision | None:
        """Decide on one request, or return None if the store must decide."""
        decision = self._book.spend(limit, key, terms, ask.cost, ask.max_wait_us)
        if decision is None:
            due_us = self._book.next_expiry_us
            if due_us is not None and due_us <= self._clock():
                # Expired tokens must be back in the store before it decides.
                self._return(self._book.expired())
        elif decision.allowed and self._book.is_low:
            self._refill(limit, key, terms)
        return decision

    def unspend(self, serial: int, cost: int) -> None:
        """Undo an admission of `spend`: into the lease, or back to the store."""
        self._return(self._book.unspend(serial, cost))
        if self._is_closed:
            self._return(self._book.close())

    def answered(
        self, ask: Ask, rules: Sequence[Rule], verdict: Verdict, asked_us: int
    ) -> tuple[Decision, ...]:
        """Process the store's decision on a request; take a lease if the key needs one.

        Returns:
            Its decisions, with what is held here counted as remaining.
        """
        decisions: list[Decision] = []
        for limit, key, rule, decision in zip(
            ask.limits, ask.keys, rules, verdict.decisions, strict=True
        ):
            said = decision
            terms = rule.policy.terms
            if isinstance(terms, Leased):
                said = self._book.answered(limit, key, terms, ask, StoreAnswer(decision, asked_us))
                if ask.cost and decision.allowed:
                    self._refill(limit, key, terms)
            decisions.append(said)
        return tuple(decisions)

    def recheck(
        self, ask: Ask, rules: Sequence[Rule], verdict: Verdict, then: Callable[[], None]
    ) -> bool | None:
        """Check whether a request that the store refused may pass by what is held here.

        A refill of this gateway may have taken what the request would have had, or be about to.

        Args:
            ask: the store's part of the request.
            rules: the rules of that part.
            verdict: the refusal.
            then: called when the tokens in flight have arrived, or failed to: check again then.

        Returns:
            True if enough is held now; False if `then` is called later; None if it is over.
        """
        lacking: list[tuple[Limit, str, Leased, int]] = []
        for limit, key, rule, decision in zip(
            ask.limits, ask.keys, rules, verdict.decisions, strict=True
        ):
            if decision.allowed:
                continue
            terms = rule.policy.terms
            if not isinstance(terms, Leased) or ask.cost > limit.burst:
                return None
            if self._book.is_asked(limit, key):
                self._waiting.setdefault((limit.scope, key), []).append(then)
                return False
            tokens = self._book.lacking(limit, key, ask.cost)
            if tokens is None:
                return None
            lacking.append((limit, key, terms, tokens))
        for limit, key, terms, tokens in lacking:
            if tokens and not self._is_closed:
                self._waiting.setdefault((limit.scope, key), []).append(then)
                self._book.fill(limit, key, tokens)
                self._enqueue(_Refill(self, limit, key, terms, tokens, self._clock()))
                return False
        return True

    def _refill(self, limit: Limit, key: str, terms: Leased) -> None:
        tokens = self._book.wanted(limit, key) if not self._is_closed else 0
        if tokens:
            self._enqueue(_Refill(self, limit, key, terms, tokens, self._clock()))

    def refilled(self, refill: _Refill, decision: Decision | None) -> None:
        """Process the store's answer to a refill; None if it has not answered."""
        (limit,), (key,), tokens, _ = refill.ask
        if decision is not None and decision.allowed:
            self._book.granted(limit, key, refill.terms, tokens, decision, refill.asked_us)
        else:
            self._book.denied(limit, key, decision)
        for then in self._waiting.pop((limit.scope, key), ()):
            then()
        if self._is_closed:
            self._return(self._book.close())
        else:
            self._return(self._book.surplus(limit, key))
            self._return_later()

    def _return_later(self) -> None:
        due_us = self._book.next_expiry_us
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
        self._return(self._book.expired())
        self._return_later()

    def _return(self, returns: list[tuple[Ask, Verdict]]) -> None:
        for ask, verdict in returns:
            self._give_back(ask, verdict)

    def close(self) -> None:
        """Return what has not been spent, and take no more."""
        self._is_closed = True
        if self._returning is not None:
            self._returning.cancel()
        self._return(self._book.close())


class _Refill(Pending):
    """Tokens for a lease. No request waits for them, except one that they may save from refusal."""

    __slots__ = ("_leasing", "asked_us", "terms")

    def __init__(
        self, leasing: Leasing, limit: Limit, key: str, terms: Leased, tokens: int, asked_us: int
    ) -> None:
        super().__init__(Ask(only(limit), (key,), tokens, 0), ())
        self._leasing = leasing
        self.terms = terms
        self.asked_us = asked_us

    def resolve(self, outcome: Outcome) -> None:
        """Add the tokens if the store granted them."""
        self._leasing.refilled(self, outcome.verdict.decisions[0])

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Treat it as denied. Tokens granted all the same are lost: too few, never more."""
        self._leasing.refilled(self, None)
        return None
