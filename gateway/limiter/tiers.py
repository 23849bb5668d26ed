"""Plans in which a request's limits depend on its tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.limiter.plan import KeyedPlan, MissingKey, Plan, Rule, is_keyed
from gateway.routing.access import forbidden
from gateway.stores.base import Ask

DENIED: Final = "deny"
"""The tier of requests that are refused, whatever was spent."""
MAX_KNOWN: Final = 4_096


class TierRules(NamedTuple):
    """The rules of one policy with tiers.

    Attributes:
        find: returns the tier of a request; `DENIED` to refuse it.
        by_tier: the rules of each tier; none for one that is not limited.
        own: the rules of the policy itself.
    """

    find: Callable[[Any], str]
    by_tier: Mapping[str, tuple[Rule, ...]]
    own: tuple[Rule, ...]


class TieredPlan(Plan):
    """A plan with policies that have tiers.

    Args:
        parts: the rules of each policy, in order.
        cost: what each request costs.
    """

    __slots__ = ("_all_rules", "_parts", "_plans", "_tiered")

    def __init__(self, parts: Sequence[TierRules | tuple[Rule, ...]], cost: int = 1) -> None:
        self._parts = tuple(parts)
        own = [part.own if isinstance(part, TierRules) else part for part in parts]
        super().__init__([rule for rules in own for rule in rules], cost)
        self._tiered = [part for part in parts if isinstance(part, TierRules)]
        others = [
            rule for part in self._tiered for rules in part.by_tier.values() for rule in rules
        ]
        self._all_rules = (*self.rules, *others)
        self.holds = self.holds or Plan(others).holds
        self._plans: dict[tuple[str, ...], Plan] = {}

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Return the rules that may apply to a request."""
        return self._all_rules

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """Return the ask for the store, with the rules of the request's tiers.

        Raises:
            BadRequestError: its tier may not pass, or is ambiguous.
        """
        tiers = tuple([part.find(request) for part in self._tiered])
        plan = self._plans.get(tiers)
        if plan is None:
            if DENIED in tiers:
                raise forbidden()
            plan = self._plans[tiers] = self._plan_of(tiers)
        return plan.ask(request)

    def _plan_of(self, tiers: tuple[str, ...]) -> Plan:
        names = iter(tiers)
        rules: list[Rule] = []
        for part in self._parts:
            if isinstance(part, TierRules):
                rules += part.by_tier.get(next(names), part.own)
            else:
                rules += part
        if len(self._plans) >= MAX_KNOWN:
            self._plans.clear()
        return (KeyedPlan if is_keyed(rules) else Plan)(rules, self.cost)
