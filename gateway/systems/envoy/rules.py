"""The rules of Envoy's domains, compiled: from a descriptor to the limits that apply to it."""

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
"""Most different limits in descriptors, per listener: stores cache each."""

_UNIT_OF: Final = {seconds * US: unit for unit, seconds in UNITS_S.items()}
_UNIT_OF_CALENDAR: Final = {"day": 4, "week": 0, "month": 5}


class ApplicableLimits(NamedTuple):
    """The limits that apply to a descriptor.

    Attributes:
        rules: one for each limit, in order; none if it is unlimited, or always refused.
        limits: the same limits, as used in asks.
        reported: the same limits, as reported to callers.
        policy: the policy that a refusal names; None if it is unlimited.
        is_shadow: whether it is never refused.
        is_refused: whether it is always refused.
        is_quota: whether it is refused only together with all other quotas of a request.
        is_debited: whether every cost was already used.
        name: the name by which other rules may replace it.
        replaces: the names of the rules that do not count if this one does.
        shared: for each entry the pattern whose values share one count, or None; empty if each
            descriptor has its own count.
        metadata: what other filters get unless the limit is exceeded.
    """

    rules: tuple[Rule, ...]
    limits: tuple[Limit, ...]
    reported: tuple[DescriptorStatus, ...]
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
        """Return the identity that a descriptor is counted under, for each limit."""
        if self.shared:
            entries = [
                entry if pattern is None else (entry[0], pattern)
                for entry, pattern in zip(entries, self.shared, strict=True)
            ]
        whole = named(entries)
        return tuple([rule.key(whole) for rule in self.rules])  # type: ignore[misc]


class TooManyOverridesError(Exception):
    """Callers have sent more different limits than are kept."""


class UnknownUnitError(Exception):
    """A limit in a descriptor has an unknown unit of time."""


_key_of: Final = caller_keys(str, {})


class Domains:
    """The limits of all descriptors.

    Args:
        config: the listener's own part.
        context: has the policies and the counters.
    """

    def __init__(self, config: EnvoyRlsConfig, context: FrontendContext) -> None:
        self._config = config
        self._context = context
        # The listener, not the policy, determines the answer to callers.
        self._policies = {
            name: self._as_here(context.policies[name]) for name in config.policy_names
        }
        self._trees: dict[str, Tree[ApplicableLimits]] = {}
        for domain, rules in config.domains.items():
            tree = self._trees[domain] = Tree[ApplicableLimits]()
            for rule in rules:
                tree.add(rule.match, self._held(domain, rule))
        self._overrides: dict[tuple[str, Override], ApplicableLimits] = {}

    @property
    def all_are_quotas(self) -> bool:
        """Return whether requests are refused only for all of their descriptors."""
        return self._config.quota

    @property
    def have_debits(self) -> bool:
        """Return whether calls may report hits that were already used."""
        return self._config.debits

    def find(self, domain: str, descriptor: Descriptor) -> ApplicableLimits | None:
        """Return the limits of a descriptor; None for nothing.

        Raises:
            UnknownUnitError: the limit in it cannot be read.
            TooManyOverridesError: it has one limit too many.
        """
        tree = self._trees.get(domain)
        if tree is None:
            return None
        if descriptor.override is not None and self._config.overrides:
            return self._overriding(domain, descriptor.override)
        return tree.find(descriptor.entries)

    def _held(self, domain: str, rule: EnvoyRule) -> ApplicableLimits:
        shared = tuple(
            value if ANY in value and rule.is_shared(key) else None for key, value in rule.match
        )
        rules = tuple(
            one._replace(policy=self._policies[one.policy.name])
            for one in self._context.plan_of(_key_of, rule.policies).rules
        )
        policy = rules[0].policy if rules else None
        if rule.refuse:
            policy = self._own_policy(name_of_rule(domain, show_match(rule.match)))
        return ApplicableLimits(
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

    def _overriding(self, domain: str, override: Override) -> ApplicableLimits:
        known = self._overrides.get((domain, override))
        if known is not None:
            return known
        if override.unit not in UNITS_S:
            raise UnknownUnitError
        if len(self._overrides) >= MAX_OVERRIDES:
            raise TooManyOverridesError
        made = self._overrides[domain, override] = self._make_override(domain, override)
        return made

    def _make_override(self, domain: str, override: Override) -> ApplicableLimits:
        seconds = UNITS_S[override.unit]
        policy = self._own_policy(name_of_rule(domain, "override"))
        reported = (DescriptorStatus(override.requests, override.unit),)
        if not override.requests:
            return ApplicableLimits(
                (), (), reported, policy, is_refused=True, is_quota=self._config.quota
            )
        count = min(override.requests, MAX_COUNT, MAX_PER_SECOND * seconds)
        # Numbers are not part of the scope: a caller that changes them keeps its count.
        scope = f"{policy.name}/{seconds}s"
        debt = count if self._config.debits else 0
        limit = Limit(count, seconds * US, count, scope=scope, debt=debt)
        rule = Rule(policy, limit, _key_of(("ip",), "shared"), policy.name, "ip")
        return ApplicableLimits((rule,), (limit,), reported, policy, is_quota=self._config.quota)

    def _own_policy(self, name: str) -> CompiledPolicy:
        """Return a policy that is not configured, for refusals and for limits in descriptors."""
        on_store_error = self._context.config.defaults.on_store_error
        metrics = self._context.metrics.policy(name)
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
