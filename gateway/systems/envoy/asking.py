"""Put Envoy's requests to the limiter: all descriptors must pass, or nothing is spent.

Quotas are the exception: one of them is enough, and those over their limit spend nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from gateway.limiter.decider import Decider, Outcome, Pending
from gateway.limits.decision import DEBIT, combine
from gateway.systems.asking import passes
from gateway.systems.envoy.plan import CallPlan, Group


class Decided:
    """A request that was decided completely.

    Attributes:
        plan: the steps of the request.
        outcomes: the results of its groups, in order.
        refunds: how much was given back to each of the groups.
        is_refused: whether a limit that is neither shadow nor quota was exceeded, or all quotas.
        is_over: whether any limit that is not a quota was exceeded, or all of them.
    """

    __slots__ = ("is_over", "is_refused", "outcomes", "plan", "refunds")

    def __init__(self, plan: CallPlan, outcomes: Sequence[Outcome]) -> None:
        self.plan = plan
        self.outcomes = outcomes
        self.refunds: dict[int, int] = {}
        self.is_refused = plan.is_refused
        self.is_over = False


def as_answer(outcome: Outcome) -> Outcome:
    """Return the outcome of a debit or query for the caller: a refusal while a debt is left."""
    ask, verdict = outcome.ask, outcome.verdict
    if ask.max_wait_us != DEBIT or not verdict.wait_us:
        return outcome
    decisions = [
        one._replace(allowed=not one.wait_us, wait_us=0, retry_after_us=one.wait_us)
        for one in verdict.decisions
    ]
    return outcome._replace(verdict=combine(decisions))


def is_passing(outcome: Outcome) -> bool:
    """Return whether the limits of a group let the request through."""
    return outcome.verdict.allowed and outcome.closed_by is None


class EnvoyQuestions:
    """Asks the limiter.

    Args:
        decider: asks the store.
    """

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    async def ask(self, plan: CallPlan) -> Decided:
        """Decide on a request.

        The caller may leave meanwhile: the cost is spent all the same, since Envoy lets a request
        pass if it gets no answer in time.
        """
        decide, groups = self._decider.decide, plan.groups
        if len(groups) == 1:
            # Most requests have one group, and a memory store answers immediately.
            answer = decide(groups[0].ask, groups[0].rules)
            if isinstance(answer, Outcome):
                return self._conclude(plan, (answer,))
            return await self._wait(plan, (answer,))
        answers = [decide(group.ask, group.rules) for group in groups]
        outcomes = [answer for answer in answers if isinstance(answer, Outcome)]
        if len(outcomes) < len(answers):
            return await self._wait(plan, answers)
        return self._conclude(plan, outcomes)

    async def _wait(self, plan: CallPlan, answers: Sequence[Outcome | Pending]) -> Decided:
        done: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
        known: dict[int, Outcome] = {}

        def answered(place: int, outcome: Outcome) -> None:
            known[place] = outcome
            if len(known) == len(answers):
                decided = self._conclude(plan, [known[place] for place in range(len(answers))])
                if not done.done():
                    done.set_result(decided)

        for place, answer in enumerate(answers):
            if isinstance(answer, Pending):
                answer.then(partial(answered, place))
            else:
                answered(place, answer)
        return await done

    def _conclude(self, plan: CallPlan, found: Sequence[Outcome]) -> Decided:
        """Undo what was spent for a request that is refused after all, and count."""
        outcomes = [as_answer(outcome) for outcome in found]
        decided = Decided(plan, outcomes)
        for policy in plan.never:
            policy.metrics.refused += 1
            decided.is_over = True
        empty = plan.empty
        for group, outcome in zip(plan.groups, outcomes, strict=True):
            if is_passing(outcome):
                continue
            if group.is_quota:
                empty += 1
            else:
                decided.is_over = True
                if not group.is_shadow:
                    decided.is_refused = True
        if 0 < plan.quotas == empty:
            decided.is_over = decided.is_refused = True
        for place, (group, outcome) in enumerate(zip(plan.groups, outcomes, strict=True)):
            is_kept = group.is_shadow or group.is_debit or not is_passing(outcome)
            if not decided.is_refused or is_kept:
                passes(outcome)
                if group.refund and self._refund(group, outcome):
                    decided.refunds[place] = group.refund
            elif group.ask.cost:
                self._decider.give_back(outcome)
        return decided

    def _refund(self, group: Group, outcome: Outcome) -> bool:
        """Give back hits that this process did not take; return whether that was possible.

        It is possible if a query has a receipt: the store keeps numbers, not single requests.
        """
        has_receipts = all(one.receipt for one in outcome.verdict.decisions)
        if not is_passing(outcome) or not has_receipts or outcome.near:
            return False
        refund = outcome.ask._replace(cost=group.refund)
        self._decider.give_back(outcome._replace(ask=refund))
        return True
