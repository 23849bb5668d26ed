"""Turns a key that the caller names into a question to the store: pure, and compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.config.checking.messages import did_you_mean
from gateway.config.models.gateway import PolicyConfig
from gateway.config.models.policies import with_candidates
from gateway.limiter.plan import CompiledPolicy, KeyedRules, Plan, Rule, is_keyed
from gateway.limits import ALGORITHMS
from gateway.limits.key_overrides import KeyOverrides
from gateway.observe.metrics import GatewayMetrics
from gateway.routing.keys import identity
from gateway.routing.secret_key import KeyHash
from gateway.stores.base import Ask
from gateway.wiring.policies import UNREAD, RouteKeys, compile_plan, compile_policy, readers_of
from gateway.wiring.sources import Sources

EVERYBODY: Final = "all"
"""The identity of limits with `per all`, and the default key."""

Names = str | Sequence[str] | None
"""One policy, several that must all agree, or None for the only one there is."""


def check_cost(cost: int) -> None:
    """Raise `ValueError` for an impossible cost, and `TypeError` for one that is not a number."""
    if not isinstance(cost, int):
        raise TypeError(f"a cost must be a whole number, not {cost!r}")
    if cost < 0:
        raise ValueError(f"a request cannot cost {cost}")


class LimitQuestion:
    """Compiled policies, ready to decide on keys.

    Attributes:
        rules: one per limit, in order.
        has_queue: whether the store gives turns, because every policy has a queue.
        has_leases: whether a slot is held until it is given back.
    """

    __slots__ = ("_hashes", "_keyed", "_limits", "_shared", "has_leases", "has_queue", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.has_queue = all(rule.limit.max_wait_us for rule in self.rules)
        self.has_leases = any(_is_lease(rule) for rule in self.rules)
        self._limits = tuple(rule.limit for rule in self.rules)
        self._shared = tuple(rule.word == EVERYBODY for rule in self.rules)
        hashes = [rule.policy.key_hash for rule in self.rules]
        self._hashes = hashes if any(hashes) else None
        self._keyed = KeyedRules() if is_keyed(self.rules) else None

    def ask(self, key: str, cost: int, max_wait_us: int) -> tuple[Ask, tuple[Rule, ...]]:
        """Return the question about one request, with its rules.

        A limit with `per all` counts all requests together; any other counts `key`, whatever the
        limit is per.
        """
        if type(cost) is not int or cost < 0:
            check_cost(cost)
        own = identity(key)
        shared = self._shared
        if self._hashes is not None:
            keys: tuple[str, ...] = tuple(
                [
                    EVERYBODY if each else own if key_hash is None else key_hash(own)
                    for each, key_hash in zip(shared, self._hashes, strict=True)
                ]
            )
        elif len(shared) == 1:
            keys = (EVERYBODY if shared[0] else own,)
        else:
            keys = tuple([EVERYBODY if each else own for each in shared])
        ask = Ask(self._limits, keys, cost, max_wait_us)
        if self._keyed is not None:
            return self._keyed.resolve(ask, self.rules)
        return ask, self.rules


def _is_lease(rule: Rule) -> bool:
    return ALGORITHMS[rule.limit.algorithm].renew is not None


class Questions:
    """The policies of a limiter, compiled once and shared."""

    def __init__(
        self,
        policies: Mapping[str, PolicyConfig],
        metrics: GatewayMetrics,
        overrides: KeyOverrides | None = None,
        sources: Sources | None = None,
        key_hash: KeyHash | None = None,
    ) -> None:
        self._sources = sources if sources is not None else Sources()
        self._named = dict(policies)
        self._configs = with_candidates(policies)
        self._policies: dict[str, CompiledPolicy] = {
            name: compile_policy(name, config, metrics.policy(name), overrides, key_hash)
            for name, config in self._configs.items()
        }
        self._known: dict[Names, LimitQuestion] = {}

    @property
    def names(self) -> list[Names]:
        """Yield every policy by itself, and under None if there is only one."""
        return [*self._named, *([None] if len(self._named) == 1 else [])]

    def question(self, names: Names) -> LimitQuestion:
        """Return the compiled form of these policies.

        Raises:
            ValueError: there is no such policy, or there are several and none was named.
        """
        try:
            known = self._known.get(names)
        except TypeError:  # a list
            return self.question(tuple(names or ()))
        if known is None:
            known = self._known[names] = LimitQuestion(self.plan("", names).rules)
        return known

    def plan(self, route: str, names: Names, pattern: str | None = None) -> Plan:
        """Return the policies for requests that carry their keys.

        Args:
            route: the name of their route.
            names: the policies.
            pattern: the path of the route.

        Raises:
            ValueError: there is no such policy; or it counts by a parameter that the path lacks.
        """
        readers = UNREAD if pattern is None else readers_of(pattern)
        key_of = RouteKeys(route, self._sources, readers)
        return compile_plan(key_of, self._check(names), self._configs, self._policies)

    def _check(self, names: Names) -> tuple[str, ...]:
        known = list(self._named)
        if names is None:
            if len(known) > 1:
                raise ValueError(f"name the policy, one of {', '.join(known)}")
            return (known[0],)
        chosen = (names,) if isinstance(names, str) else tuple(names)
        if not chosen:
            raise ValueError("no policy is named")
        for position, name in enumerate(chosen):
            if name not in self._named:
                hint = did_you_mean(name, known, f"known policies: {', '.join(known)}")
                raise ValueError(f"there is no policy {name!r}: {hint}")
            if name in chosen[:position]:
                raise ValueError(f"the policy {name!r} is named twice")
        return chosen
