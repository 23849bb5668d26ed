"""What requests cost under policies that say so, and what they have cost when they have ended.

A request is decided with an estimate of its cost. If the policy settles costs, the difference to
what it has really cost is counted afterwards, whatever the limit says (a debit), or given back as
far as that cannot admit too much. If the policy counts only some responses, the request is given
back if its response is another one; until then it counts, so that requests made at the same time
cannot slip past the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.limiter.decider import Decider
from gateway.limiter.outcome import Outcome
from gateway.limiter.parts import limits_at
from gateway.limiter.plan import CompiledPolicy, MissingKey, Plan, Rule
from gateway.limits.decision import DEBIT
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, only


class Costs(NamedTuple):
    """What the requests of one policy cost.

    Attributes:
        reserve: returns the cost of a request before it is forwarded; None for that of its route.
        settle: returns what a request has cost; None if that is not known. None if the estimate
            stands.
        counted: the statuses of responses whose requests count; None for all.
        fields: the fields of a body in JSON that `settle` reads.
    """

    reserve: Callable[[Any], int] | None = None
    settle: Callable[[Any], int | None] | None = None
    counted: frozenset[int] | None = None
    fields: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether something remains to be done when a request has ended."""
        return self.settle is not None or self.counted is not None


class CostedPlan(Plan):
    """A plan in which a request has a cost of its own under some limits.

    Args:
        plan: the plan otherwise.
        costs: by the name of policies; the others have the cost of the plan.

    Attributes:
        settles: whether something remains to be done when a request has ended.
        fields: the fields of responses in JSON that it depends on.
    """

    __slots__ = ("_costs", "_inner", "_rules_by_scope", "fields", "settles")

    def __init__(self, plan: Plan, costs: Mapping[str, Costs]) -> None:
        super().__init__(plan.rules, plan.cost)
        self.holds = plan.holds
        self._inner = plan
        self._costs = costs
        self.settles = any(one.is_settled for one in costs.values())
        self.fields = tuple(dict.fromkeys(name for one in costs.values() for name in one.fields))
        self._rules_by_scope = {rule.limit.scope: rule for rule in plan.all_rules}

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Return the rules that may apply to a request."""
        return self._inner.all_rules

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """Return the ask for the store, with the costs of its limits.

        Raises:
            BadRequestError: what it is to cost is ambiguous.
        """
        question = self._inner.ask(request)
        if question is None or isinstance(question, MissingKey):
            return question
        ask, rules = question
        found: dict[str, int] = {}
        costs: list[int] = []
        for rule in rules:
            name = rule.policy.name
            own = self._costs.get(name)
            if own is None or own.reserve is None:
                costs.append(ask.cost)
            elif rule.limit.algorithm == "concurrency":
                costs.append(1)
            else:
                if name not in found:
                    found[name] = own.reserve(request)
                costs.append(found[name])
        return ask.with_costs(costs), rules

    def settlement(self, decider: Decider, outcome: Outcome) -> Settlement | None:
        """Return what remains to be done when a request has ended; None for nothing."""
        if not self.settles or not outcome.verdict.allowed:
            return None
        places: dict[CompiledPolicy, list[int]] = {}
        for place, rule in enumerate(outcome.rules):
            own = self._costs.get(rule.policy.name)
            if own is not None and own.is_settled and rule.limit.algorithm != "concurrency":
                places.setdefault(rule.policy, []).append(place)
        if not places:
            return None
        parts = [
            _Part(self._costs[policy.name], policy, limits_at(outcome, at))
            for policy, at in places.items()
        ]
        return Settlement(decider, parts, self._whole)

    def _whole(self, limit: Limit) -> Limit:
        """Return a limit as the store counts it: this gateway alone counts a share of it."""
        return self._rules_by_scope[limit.scope].limit


class _Part(NamedTuple):
    """What one policy has spent on a request."""

    costs: Costs
    policy: CompiledPolicy
    outcome: Outcome


class Settlement:
    """What remains to be done about the costs of one request when it has ended.

    Args:
        decider: decided on it.
        parts: what was spent under each policy.
        whole: returns the limit that one was a share of.
    """

    __slots__ = ("_decider", "_parts", "_whole")

    def __init__(
        self, decider: Decider, parts: Sequence[_Part], whole: Callable[[Limit], Limit]
    ) -> None:
        self._decider = decider
        self._parts = parts
        self._whole = whole

    def settle(
        self,
        status: int,
        answer: Callable[[int], Any],
        is_cut: bool,  # noqa: FBT001 - called by position
    ) -> None:
        """Count what the request has cost.

        Args:
            status: of the response; 0 if there was none.
            answer: given the cost that was reserved, returns what `Costs.settle` reads.
            is_cut: whether the response has ended too early, and may have cost more than it says.
        """
        for costs, policy, outcome in self._parts:
            if costs.counted is not None:
                if status and status not in costs.counted:
                    policy.metrics.uncounted += 1
                    self._decider.give_back(outcome)
            elif costs.settle is not None:
                reserved = outcome.ask.cost
                spent = costs.settle(answer(reserved))
                if spent is None or (is_cut and spent < reserved):
                    policy.metrics.unsettled += 1
                elif spent > reserved:
                    policy.metrics.debited += spent - reserved
                    self._debit(outcome, spent - reserved)
                elif spent < reserved:
                    policy.metrics.returned += reserved - spent
                    part = outcome.ask._replace(cost=reserved - spent)
                    self._decider.give_back(outcome._replace(ask=part))

    def _debit(self, outcome: Outcome, cost: int) -> None:
        for limit, key, rule in zip(
            outcome.ask.limits, outcome.ask.keys, outcome.rules, strict=True
        ):
            whole = self._whole(limit)
            ask = Ask(only(whole), (key,), cost, DEBIT)
            self._decider.decide(ask, (rule._replace(limit=whole),))
