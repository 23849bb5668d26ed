"""A store's answer about one key, and what follows from it a little later.

The answer fully describes a token bucket and a fixed window: when the bucket is full again, when
the window ends. For sliding windows and a paced history it only gives the sum, so what becomes free
again is estimated from the rate until the store names a time. An answer expires when the limit is
completely unused again.
"""

from __future__ import annotations

from typing import Final

from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import NS_PER_US, Limit

FULLY_KNOWN: Final = ("token_bucket", "fixed_window")
"""Algorithms for which a probe that takes nothing returns when more may pass."""


class RemoteView:
    """The store's answer about one key, and what was admitted since.

    Attributes:
        remaining: how many could pass, from `at_us` on.
        at_us: since when `remaining` holds.
        until_us: nothing that costs `blocked_cost` or more passes before.
        blocked_cost: see `until_us`.
        resets_us: when all of it expires.
        seen_us: when the answer arrived.
        spent: what was admitted here and was not counted in it.
        passed_us: when something was last admitted here, or later.
    """

    __slots__ = (
        *("_is_looked", "at_us", "blocked_cost", "seen_us", "remaining", "resets_us"),
        *("passed_us", "spent", "until_us"),
    )

    def __init__(self, remaining: int, resets_us: int, now_us: int) -> None:
        self.remaining = remaining
        self.resets_us = resets_us
        self.at_us = self.seen_us = self.passed_us = now_us
        self.until_us = 0
        self.blocked_cost = 1
        self.spent = 0
        self._is_looked = False

    @classmethod
    def of_report(
        cls, limit: Limit, cost: int, late_us: int, decision: Decision, now_us: int
    ) -> RemoteView:
        """Return the view after the answer to a report, which may have overdrawn.

        Args:
            limit: the limit.
            cost: the reported cost.
            late_us: how much later it was reported than admitted, at most.
            decision: the answer.
            now_us: the present.
        """
        view = cls(decision.remaining, now_us + decision.reset_us, now_us)
        wait_us = decision.wait_us
        if not decision.allowed:
            # Overdrawn by more than a period; it counts against a key for no longer than that.
            never = decision.retry_after_us == NEVER
            wait_us = limit.period_us if never else min(limit.period_us, decision.retry_after_us)
        elif wait_us and limit.algorithm == "fixed_window":
            # It was counted in the next window; the rest of that window is available.
            view.remaining = limit.count - cost
        view._block(limit, wait_us, late_us, now_us)
        return view

    @classmethod
    def of_probe(
        cls, limit: Limit, cost: int, late_us: int, decision: Decision, now_us: int
    ) -> RemoteView:
        """Return the view after the answer to a probe; an admitted cost is given back."""
        left = decision.remaining + cost if decision.allowed else decision.remaining
        view = cls(left, now_us + decision.reset_us, now_us)
        view._is_looked = True
        if not decision.allowed and decision.retry_after_us != NEVER:
            view.blocked_cost = cost
            view._block(limit, decision.retry_after_us, late_us, now_us)
            view.remaining = cost  # An estimate for that moment.
        return view

    def _block(self, limit: Limit, wait_us: int, late_us: int, now_us: int) -> None:
        if not wait_us:
            return
        if limit.algorithm not in FULLY_KNOWN:
            # What passed here counts there from when it was reported. The delay does not count
            # against the key, or it would slow down a client that keeps to the limit.
            wait_us -= late_us
            if limit.algorithm == "paced_history":
                # There each is counted one step after the report instead of after the one before.
                wait_us -= late_us + limit.period_us // limit.count
        self.until_us = self.at_us = now_us + wait_us

    def is_stale(self, limit: Limit, now_us: int, interval_us: int) -> bool:
        """Return whether a refusal by this view is old enough to ask the store again."""
        # A report returns what is left, but not always when there is more.
        is_known = self._is_looked or limit.algorithm in FULLY_KNOWN
        return not is_known or now_us - self.seen_us >= interval_us

    def is_settled(self, limit: Limit, cost: int, now_us: int, report_us: int) -> bool:
        """Return whether it names the time for a request, and others have admitted nothing since.

        The gateways share the requests of a key: if none has passed here for as long as reports
        take, none has passed elsewhere, or it has been reported.

        Args:
            limit: the limit.
            cost: the cost of the request.
            now_us: the present.
            report_us: how long it takes until admissions have been reported.
        """
        if self.passed_us + report_us > self.seen_us or now_us - self.seen_us > report_us:
            return False
        # A sum says how much is left, but not when there is more for this cost.
        is_named = limit.algorithm in FULLY_KNOWN or (
            self.until_us > now_us and self._is_looked and self.blocked_cost == cost
        )
        return is_named or self._is_sure_to_pass(cost, now_us)

    def _is_sure_to_pass(self, cost: int, now_us: int) -> bool:
        """Return whether there was room for a request, without the estimate of freed tokens."""
        has_room = now_us >= self.at_us and cost + self.spent <= self.remaining
        return has_room or now_us >= self.resets_us

    def wait_us(self, limit: Limit, cost: int, now_us: int) -> int:
        """Return how long a request must wait before it may pass; 0 if it may pass now."""
        if now_us >= self.resets_us:
            return 0
        blocked_us = self.until_us - now_us if cost >= self.blocked_cost else 0
        if limit.algorithm == "token_bucket":
            full_ns = (self.resets_us - now_us) * NS_PER_US
            full_ns += (self.spent + cost) * limit.interval_ns
            return max(-((limit.tolerance_ns - full_ns) // NS_PER_US), blocked_us, 0)
        lacking = cost + self.spent - self.remaining
        if lacking <= 0:
            return max(blocked_us, 0)
        due_us = self.resets_us
        if limit.algorithm != "fixed_window":
            due_us = min(due_us, self.at_us - (-lacking * limit.period_us // limit.count))
        return max(due_us - now_us, blocked_us, 0)

    def left(self, limit: Limit, now_us: int) -> int:
        """Return how many requests of cost 1 could pass now."""
        if now_us >= self.resets_us:
            return limit.burst
        if now_us < self.until_us and self.blocked_cost <= 1:
            return 0
        if limit.algorithm == "token_bucket":
            full_ns = (self.resets_us - now_us) * NS_PER_US + self.spent * limit.interval_ns
            return max((limit.tolerance_ns - full_ns) // limit.interval_ns, 0)
        return max(self._back(limit, now_us) - self.spent, 0)

    def _back(self, limit: Limit, now_us: int) -> int:
        """Return how many had not been counted or are back, minus what was admitted since."""
        if limit.algorithm == "fixed_window" or now_us <= self.at_us:
            return self.remaining
        refilled = limit.count * (now_us - self.at_us) // limit.period_us
        return min(limit.burst, self.remaining + refilled)
