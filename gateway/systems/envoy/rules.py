"""The rules of Envoy's domains, compiled: from a descriptor to the limits that it is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.base.clock import US
from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits.notation import MAX_COUNT, MAX_PER_SECOND
from gateway.limits.rate import Limit
from gateway.routing.keys import named
from gateway.systems.asking import caller_keys
from gateway.systems.base import FrontendContext
from gateway.systems.envoy.config import ANY, EnvoyRlsConfig, EnvoyRule, show_match
from gateway.systems.envoy.config import policy_name as name_of_rule
from gateway.systems.envoy.messages import UNITS_S, Descriptor, DescriptorStatus, Override
from gateway.systems.envoy.tree import Entry, Tree

MAX_OVERRIDES: Final = 1024
"""Different limits that callers may bring along, of each listener: stores remember each."""

_UNIT_OF: Final = {seconds * US: unit for unit, seconds in UNITS_S.items()}
_UNIT_OF_CALENDAR: Final = {"day": 4, "week": 0, "month": 5}


class Held(NamedTuple):
    """What a descriptor is held to.

    Attributes:
        rules: one for each limit, in order; none if it is unlimited, or refused always.
        limits: the same limits, as asks have them.
        told: the same limits, as callers are told about them.
        policy: whose word a refusal is; None if it is unlimited.
        is_shadow: whether it is never refused.
        is_refused: whether it always is.
        is_quota: whether it is so only together with all other quotas of a request.
        is_debited: whether whatever it costs was used already.
        name: what other rules may replace it by.
        replaces: the names of those that do not count where this one does.
        shared: for each entry the pattern whose values have one count, or None; empty if each
            descriptor has a count of its own.
        metadata: what other filters are told where it is not over.
    """

    rules: tuple[Rule, ...]
    limits: tuple[Limit, ...]
    told: tuple[DescriptorStatus, ...]
    policy: CompiledPolicy | None
    is_shadow: bool = False
    is_refused: bool = False
    is_quota: bool = False
    is_debited: bool = False
    name: str = ""
    replaces: tuple[str, ...] = ()
    shared: tuple[str | None, ...] = ()
    metadata: Mapping[str, Any] = MappingProxyType({})

    def keys(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """For each limit, the identity that a descriptor is counted under."""
        if self.shared:
            entries = [
                entry if pattern is None else (entry[0], pattern)
                for entry, pattern in zip(entries, self.shared, strict=True)
            ]
        whole = named(entries)
        return tuple([rule.key(whole) for rule in self.rules])  # type: ignore[misc]


class TooManyOverridesError(Exception):
    """Callers have brought more different limits than are kept."""


class UnknownUnitError(Exception):
    """A limit that a caller brought along has no unit of time that is known."""


_key_of: Final = caller_keys(str, {})


class Domains:
    """Everything that descriptors may be held to.

    Args:
        config: the listener's own part.
        ground: where policies and counters are.
    """

    def __init__(self, config: EnvoyRlsConfig, ground: FrontendContext) -> None:
        self._config = config
        self._ground = ground
        # What callers are told is the listener's word here, not the policy's.
        self._policies = {
            name: self._as_here(ground.policies[name]) for name in config.policy_names
        }
        self._trees: dict[str, Tree[Held]] = {}
        for domain, rules in config.domains.items():
            tree = self._trees[domain] = Tree[Held]()
            for rule in rules:
                tree.add(rule.match, self._held(domain, rule))
        self._overrides: dict[tuple[str, Override], Held] = {}

    @property
    def all_are_quotas(self) -> bool:
        """Whether requests are refused only for all of their descriptors."""
        return self._config.quota

    @property
    def have_debits(self) -> bool:
        """Whether hits may be told after the fact."""
        return self._config.debits

    def find(self, domain: str, descriptor: Descriptor) -> Held | None:
        """What a descriptor is held to; None for nothing.

        Raises:
            UnknownUnitError: it brings a limit along that cannot be read.
            TooManyOverridesError: it brings one along too many.
        """
        tree = self._trees.get(domain)
        if tree is None:
            return None
        if descriptor.override is not None and self._config.overrides:
            return self._overriding(domain, descriptor.override)
        return tree.find(descriptor.entries)

    def _held(self, domain: str, rule: EnvoyRule) -> Held:
        shared = tuple(
            value if ANY in value and rule.is_shared(key) else None for key, value in rule.match
        )
        rules = tuple(
            one._replace(policy=self._policies[one.policy.name])
            for one in self._ground.plan_of(_key_of, rule.policies).rules
        )
        policy = rules[0].policy if rules else None
        if rule.refuse:
            policy = self._own_policy(name_of_rule(domain, show_match(rule.match)))
        return Held(
            rules,
            tuple(one.limit for one in rules),
            tuple(_told(one.limit, rule.name or "") for one in rules),
            policy,
            rule.shadow,
            rule.refuse,
            rule.quota or self._config.quota,
            rule.debits,
            rule.name or "",
            rule.replaces,
            shared if any(shared) else (),
            rule.metadata,
        )

    def _overriding(self, domain: str, override: Override) -> Held:
        known = self._overrides.get((domain, override))
        if known is not None:
            return known
        if override.unit not in UNITS_S:
            raise UnknownUnitError
        if len(self._overrides) >= MAX_OVERRIDES:
            raise TooManyOverridesError
        made = self._overrides[domain, override] = self._make_override(domain, override)
        return made

    def _make_override(self, domain: str, override: Override) -> Held:
        seconds = UNITS_S[override.unit]
        policy = self._own_policy(name_of_rule(domain, "override"))
        told = (DescriptorStatus(override.requests, override.unit),)
        if not override.requests:
            return Held((), (), told, policy, is_refused=True, is_quota=self._config.quota)
        count = min(override.requests, MAX_COUNT, MAX_PER_SECOND * seconds)
        # Numbers are no part of the scope: a caller that changes them goes on counting.
        scope = f"{policy.name}/{seconds}s"
        debt = count if self._config.debits else 0
        limit = Limit(count, seconds * US, count, scope=scope, debt=debt)
        rule = Rule(policy, limit, _key_of(("ip",), "shared"), policy.name, "ip")
        return Held((rule,), (limit,), told, policy, is_quota=self._config.quota)

    def _own_policy(self, name: str) -> CompiledPolicy:
        """A policy that no configuration holds, for what is refused always or brought along."""
        on_store_error = self._ground.config.defaults.on_store_error
        metrics = self._ground.metrics.policy(name)
        made = CompiledPolicy(name, 0, 429, "none", on_store_error, False, False, metrics)
        return self._as_here(made)

    def _as_here(self, policy: CompiledPolicy) -> CompiledPolicy:
        headers = self._config.headers
        return replace(
            policy,
            status=429,
            body=self._config.body,
            draft_headers=headers in ("draft", "both"),
            legacy_headers=headers in ("legacy", "both"),
        )


def _told(limit: Limit, name: str) -> DescriptorStatus:
    if limit.calendar is not None:
        return DescriptorStatus(limit.count, _UNIT_OF_CALENDAR[limit.calendar], name)
    return DescriptorStatus(limit.count, _UNIT_OF.get(limit.period_us, 0), name)
