"""What Envoy asks, put to the limiter: all descriptors agree, or nothing is spent.

Quotas are the exception: one of them is enough, and those that are over spend nothing.
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
    """A request on which everything was decided.

    Attributes:
        plan: what was to be done.
        outcomes: what came of each of its groups, in order.
        refunds: how much each of the groups has got back.
        is_refused: whether one that is no shadow and no quota was over its limit, or all quotas.
        is_over: whether any was that is no quota, or all of them.
    """

    __slots__ = ("is_over", "is_refused", "outcomes", "plan", "refunds")

    def __init__(self, plan: CallPlan, outcomes: Sequence[Outcome]) -> None:
        self.plan = plan
        self.outcomes = outcomes
        self.refunds: dict[int, int] = {}
        self.is_refused = plan.is_refused
        self.is_over = False


def as_answer(outcome: Outcome) -> Outcome:
    """What callers are told of a debit or a look: a refusal, as long as something is owed."""
    ask, verdict = outcome.ask, outcome.verdict
    if ask.max_wait_us != DEBIT or not verdict.wait_us:
        return outcome
    decisions = [
        one._replace(allowed=not one.wait_us, wait_us=0, retry_after_us=one.wait_us)
        for one in verdict.decisions
    ]
    return outcome._replace(verdict=combine(decisions))


def is_passing(outcome: Outcome) -> bool:
    """Whether the limits of a group let the request through."""
    return outcome.verdict.allowed and outcome.closed_by is None


class EnvoyQuestions:
    """Puts questions to the limiter.

    Args:
        decider: asks the store.
    """

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    async def ask(self, plan: CallPlan) -> Decided:
        """Decide on a request.

        Whoever asks may leave meanwhile: what was asked is spent all the same, since Envoy lets
        a request pass if it hears nothing in time.
        """
        decide, groups = self._decider.decide, plan.groups
        if len(groups) == 1:
            # Most requests are one question, and memory answers at once.
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
        """Give back what this process did not ask for; returns whether it could.

        It can where a look has a receipt: where numbers are kept, and not single requests.
        """
        has_receipts = all(one.receipt for one in outcome.verdict.decisions)
        if not is_passing(outcome) or not has_receipts or outcome.near:
            return False
        refund = outcome.ask._replace(cost=group.refund)
        self._decider.give_back(outcome._replace(ask=refund))
        return True
