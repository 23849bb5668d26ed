"""Compiles the policies of a configuration into the plans of routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.config.models.consistency import parts
from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.config.models.policies import candidate_name, with_candidates
from gateway.config.models.tiers import BY_ADDRESS, OWN
from gateway.config.values.types import LimitLine
from gateway.limiter.plan import (
    CompiledPolicy,
    CompileKey,
    KeyedPlan,
    KeyOf,
    Plan,
    PlanOf,
    Rule,
    bounded,
    is_keyed,
)
from gateway.limiter.tiers import TieredPlan, TierRules
from gateway.limits.consistency_mode import Eventual
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.key_words import PLACE_KEYS, as_written
from gateway.limits.rate import Limit
from gateway.limits.throttlex import scope_of
from gateway.observe.metrics import GatewayMetrics, PolicyMetrics
from gateway.routing.body_values import BODY_KEYS
from gateway.routing.conditions import unless
from gateway.routing.keys import NO_READERS, Readers, compile_key, reader_of
from gateway.routing.path_parameter import compile_path_parameter
from gateway.routing.request_view import Condition
from gateway.routing.secret_key import KeyHash, hashed
from gateway.routing.throttlex_key import compile_throttlex_key
from gateway.routing.tiers import FindTier, tier_by_client, tier_by_name
from gateway.routing.values import Read
from gateway.wiring.conditions import compile_exempt
from gateway.wiring.sources import Sources

if TYPE_CHECKING:
    from gateway.wiring.tokens import Tokens


def compile_policy(
    name: str,
    config: PolicyConfig,
    metrics: PolicyMetrics,
    overrides: KeyOverrides | None = None,
    key_hash: KeyHash | None = None,
) -> CompiledPolicy:
    """Return the run-time form of a policy; `compile_plan` compiles its limits with the route.

    Args:
        name: as configured.
        config: the policy.
        metrics: its counters.
        overrides: the table of policies, for policies that use it.
        key_hash: replaces the keys of policies whose keys are secret.
    """
    is_keyed = config.throttlex is not None and config.throttlex.policies == "table"
    return CompiledPolicy(
        name=name,
        queue_max=config.queue.max if config.queue else 0,
        status=config.on_limit.status,
        body=config.on_limit.body,
        on_store_error=config.on_store_error,
        draft_headers=config.headers in ("draft", "both"),
        legacy_headers=config.headers in ("legacy", "both"),
        metrics=metrics,
        terms=config.terms,
        max_wait_us=config.queue.max_wait if config.queue else 0,
        throttlex_headers=config.headers == "throttlex",
        overrides=overrides if is_keyed else None,
        enforced_parts=config.enforced_parts,
        has_tiers=bool(config.tiers),
        jitter=parts(config.on_limit.jitter) if config.on_limit.jitter else 0,
        key_hash=key_hash if config.secret else None,
    )


def key_hash_of(config: GatewayConfig) -> KeyHash | None:
    """Return what replaces secret keys; None if there is no secret."""
    return None if config.key_secret is None else KeyHash(config.key_secret)


def compile_policies(
    config: GatewayConfig, metrics: GatewayMetrics, overrides: KeyOverrides | None = None
) -> dict[str, CompiledPolicy]:
    """Return the run-time form of every policy by name; `overrides` as above."""
    key_hash = key_hash_of(config)
    return {
        name: compile_policy(name, policy, metrics.policy(name), overrides, key_hash)
        for name, policy in with_candidates(config.policies).items()
    }


class RouteKeys:
    """Makes the functions that compute the keys of HTTP requests: a `CompileKey`.

    Args:
        route: the name of their route, the value of the key `route`.
        sources: the lists that conditions may name, the tables of tiers, and databases.
        readers: of keys such as `path:id`; see `readers_of`.

    Attributes:
        readers: as given.
    """

    __slots__ = ("_route", "_sources", "readers")

    def __init__(self, route: str, sources: Sources, readers: Readers = NO_READERS) -> None:
        self._route = route
        self._sources = sources
        self.readers = {**sources.readers, **readers}

    def __call__(self, per: Sequence[str], if_missing: str) -> KeyOf:
        """Return the function that computes a key in Sluice's notation."""
        return compile_key(per, if_missing=if_missing, route=self._route, readers=self.readers)

    def exempt(self, config: PolicyConfig) -> Condition | None:
        """Return which requests a policy does not count; None if it counts all."""
        return compile_exempt(config, self._sources.contents)

    def find_tier(self, name: str, config: PolicyConfig) -> FindTier:
        """Return what finds the tier of a request under a policy that has tiers."""
        assert config.tier is not None
        per, unknown = config.tier.per, config.tier.unknown
        table = self._sources.tables.get(name)
        read = reader_of(per, self.readers)
        if config.tier.is_named:
            find = tier_by_name(per, config.tiers, read)
        else:
            in_table = None if table is None else table.content
            find = tier_by_client(per, config.tier.clients, in_table, read)
        return find if unknown == OWN else lambda request: find(request) or unknown

    def of_throttlex(self, labels: Sequence[str], per: Sequence[str], if_missing: str) -> KeyOf:
        """Return the function that computes a key in ThrottleX's notation."""
        return compile_throttlex_key(
            labels, per, if_missing=if_missing, route=self._route, readers=self.readers
        )


def readers_of(pattern: str, tokens: Tokens | None = None) -> Readers:
    """Return the readers of keys that depend on a route, or on how tokens are verified.

    Args:
        pattern: the path of the route.
        tokens: reads claims of tokens; None if none are verified.
    """
    readers: dict[str, Callable[[str], Read]] = {"path": partial(compile_path_parameter, pattern)}
    if tokens is not None:
        readers["jwt"] = tokens.reader
    return readers


UNREAD: Final[Readers] = dict.fromkeys(
    ("path", "jwt", *BODY_KEYS, *PLACE_KEYS), lambda _name: lambda _request: None
)
"""The readers of keys that callers name themselves."""


def compile_plan(
    key_of: CompileKey,
    names: Sequence[str],
    policies: Mapping[str, PolicyConfig],
    compiled: Mapping[str, CompiledPolicy],
    cost: int = 1,
) -> Plan:
    """Compile the policies of one route.

    Args:
        key_of: makes the functions that compute the keys of its requests, such as `RouteKeys`.
        names: the policies that apply, in order. Their candidates are tried out beside them.
        policies: every policy's configuration, and that of every candidate.
        compiled: every policy's run-time form, shared between routes.
        cost: what each of its requests costs.
    """
    parts: list[TierRules | tuple[Rule, ...]] = []
    candidates = [candidate_name(name) for name in names]
    for name in (*names, *(one for one in candidates if one in policies)):
        config, policy = policies[name], compiled[name]
        own = _rules(key_of, config, policy, config.limits, name)
        if config.tier is None or not isinstance(key_of, RouteKeys):
            parts.append(own)
            continue
        by_tier = {
            tier: _rules(key_of, config, policy, lines, f"{name}~{tier}")
            for tier, lines in config.tiers.items()
        }
        if config.tier.unknown == BY_ADDRESS:
            by_tier[BY_ADDRESS] = _rules(key_of, config, policy, _by_address(config), name)
        parts.append(TierRules(key_of.find_tier(name, config), by_tier, own))
    if sum(policies[name].throttlex is not None for name in names) > 1:
        raise ValueError("two policies of throttlex would count a request under one key")
    rules: list[Rule] = []
    for part in parts:
        if isinstance(part, TierRules):
            return TieredPlan(parts, cost)
        rules += part
    return (KeyedPlan if is_keyed(rules) else Plan)(rules, cost)


def _rules(
    key_of: CompileKey,
    config: PolicyConfig,
    policy: CompiledPolicy,
    lines: Sequence[LimitLine],
    scope: str,
) -> tuple[Rule, ...]:
    """Return the rules of some limits of a policy.

    Args:
        key_of: as in `compile_plan`.
        config: the policy.
        policy: its run-time form.
        lines: the limits: its own, or those of a tier.
        scope: the name that their counts are kept under.
    """
    # Without turns from a store, the wait does not show how many requests wait.
    queue_max = 0 if isinstance(policy.terms, Eventual) else policy.queue_max
    if config.cost.is_own:
        # As many turns as the requests take; each gateway counts those whose costs differ.
        queue_max *= config.cost.reserve.constant or 0
    is_exempt = key_of.exempt(config) if isinstance(key_of, RouteKeys) else None
    rules: list[Rule] = []
    titles = titles_of(policy.name, lines)
    limits = _scoped(scope, lines, is_throttlex=config.throttlex is not None)
    for title, line, known in zip(titles, lines, limits, strict=True):
        limit = bounded(known, known.max_wait_us, queue_max)
        if config.throttlex is not None and isinstance(key_of, RouteKeys):
            key = key_of.of_throttlex(config.throttlex.per, line.per, config.if_missing)
        else:
            key = key_of(line.per, config.if_missing)
        if policy.key_hash is not None and line.per != ("all",):
            key = hashed(key, policy.key_hash)
        if is_exempt is not None:
            key = unless(is_exempt, key)
        rules.append(Rule(policy, limit, key, title, as_written(line.per)))
    return tuple(rules)


def _by_address(config: PolicyConfig) -> tuple[LimitLine, ...]:
    return tuple(replace(line, per=("ip",)) for line in config.limits)


def titles_of(name: str, lines: Sequence[LimitLine]) -> list[str]:
    """Return the titles of a policy's limits, as in `Rule`."""
    count = len(lines)
    return [name] if count == 1 else [f"{name}-{position}" for position in range(1, count + 1)]


def limits_of(name: str, config: PolicyConfig) -> list[Limit]:
    """The limits of a policy and its tiers, each with the scope that it is known by in a store.

    The numbers are no part of that, so that changing them keeps the counts.
    """
    is_throttlex = config.throttlex is not None
    limits = _scoped(name, config.limits, is_throttlex=is_throttlex)
    if config.tier is not None and config.tier.unknown == BY_ADDRESS:
        limits += _scoped(name, _by_address(config), is_throttlex=is_throttlex)
    for tier, lines in config.tiers.items():
        limits += _scoped(f"{name}~{tier}", lines, is_throttlex=is_throttlex)
    return limits


def _scoped(name: str, lines: Sequence[LimitLine], *, is_throttlex: bool) -> list[Limit]:
    limits: list[Limit] = []
    seen: dict[str, int] = {}
    for line in lines:
        per = "+".join(line.per)
        seen[per] = seen.get(per, 0) + 1
        scope = f"{name}/{per}" if seen[per] == 1 else f"{name}/{per}#{seen[per]}"
        limits.append(replace(line.limit, scope=scope_of(name) if is_throttlex else scope))
    return limits


def plans_of(
    policies: Mapping[str, PolicyConfig], compiled: Mapping[str, CompiledPolicy]
) -> PlanOf:
    """Return a function that compiles policies for callers with other keys."""
    return partial(compile_plan, policies=policies, compiled=compiled)
