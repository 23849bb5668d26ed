"""Policies compiled once: what a request runs is plain objects and prepared bytes.

`compile_plan` turns the policies of one route into a `Plan`. At run time
`Plan.ask(request)` gives the question for the store, and the `Rule` of each limit says what
is to happen with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from gateway.config.models import GatewayConfig, PolicyConfig
from gateway.limits import ALGORITHMS
from gateway.limits.key_words import as_written
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.terms import Terms
from gateway.metrics import GatewayMetrics, PolicyMetrics
from gateway.routing.keys import REJECT, SKIP, Absence, compile_key
from gateway.stores.base import Ask

UNBOUNDED_WAIT_US: Final = 2**62
"""An ask that leaves the bound on waiting to each limit."""


KeyOf = Callable[[Any], str | Absence]
"""From a request, or whatever a front end has in its place, to the identity that is counted."""

CompileKey = Callable[[Sequence[str], str], KeyOf]
"""From the words after `per` and a policy's `if_missing` to what finds the key."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """What happens to the requests that a policy's limits refuse, delay or cannot decide.

    Attributes:
        name: as configured; it appears in headers, metrics, logs and store keys.
        queue_max: how many requests may wait for one key; 0 means no queue.
        status: of a refusal, 429 or 503.
        body: `problem`, `text`, `none`, or the text to send.
        on_store_error: `local`, `open` or `closed`.
        draft_headers: whether answers carry `RateLimit` and `RateLimit-Policy`.
        legacy_headers: whether answers carry `X-RateLimit-*`.
        metrics: its counters.
        terms: how exactly its limits are kept among gateways; None for strict.
    """

    name: str
    queue_max: int
    status: int
    body: str
    on_store_error: str
    draft_headers: bool
    legacy_headers: bool
    metrics: PolicyMetrics
    terms: Terms | None = None


class Rule(NamedTuple):
    """One limit of one policy, ready to run.

    Attributes:
        policy: what it belongs to.
        limit: the numbers.
        key: from a request to the identity that is counted.
        title: the name of this limit in the `RateLimit` fields.
        word: what it counts by, as somebody would write it, such as `header:x-api-key`.
    """

    policy: Policy
    limit: Limit
    key: KeyOf
    title: str
    word: str


class Missing(NamedTuple):
    """A request that lacks what a policy with `if_missing: reject` counts by."""

    policy: Policy
    word: str


class Plan:
    """All the rules that apply to the requests of one route."""

    __slots__ = ("_key", "_limits", "_single", "holds", "policies", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.policies = tuple(dict.fromkeys(rule.policy for rule in self.rules))
        self._limits = tuple(rule.limit for rule in self.rules)
        # Whether a request keeps anything for as long as it lasts.
        self.holds = any(ALGORITHMS[limit.algorithm].renew is not None for limit in self._limits)
        self._single = len(self.rules) == 1
        self._key = self.rules[0].key if self.rules else None

    def __repr__(self) -> str:
        names = ", ".join(policy.name for policy in self.policies)
        return f"<Plan of {len(self.rules)} limits: {names}>"

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | Missing | None:
        """The question for the store, with the rules it is about.

        None if no rule counts this request; `Missing` if one must not let it pass uncounted.
        """
        if self._single:
            key = self._key(request)  # type: ignore[misc]
            if type(key) is str:
                return Ask(self._limits, (key,), 1, UNBOUNDED_WAIT_US), self.rules
        keys: list[str] = []
        rules: list[Rule] = []
        for rule in self.rules:
            key = rule.key(request)
            if key is REJECT:
                return Missing(rule.policy, rule.word)
            if key is not SKIP:
                keys.append(key)
                rules.append(rule)
        if not rules:
            return None
        if len(rules) == len(self.rules):
            return Ask(self._limits, tuple(keys), 1, UNBOUNDED_WAIT_US), self.rules
        limits = tuple(rule.limit for rule in rules)
        return Ask(limits, tuple(keys), 1, UNBOUNDED_WAIT_US), tuple(rules)


def compile_policy(name: str, config: PolicyConfig, metrics: PolicyMetrics) -> Policy:
    """The run-time form of a policy; its limits are compiled with the route, by `compile_plan`."""
    return Policy(
        name=name,
        queue_max=config.queue.max if config.queue else 0,
        status=config.on_limit.status,
        body=config.on_limit.body,
        on_store_error=config.on_store_error,
        draft_headers=config.headers in ("draft", "both"),
        legacy_headers=config.headers in ("legacy", "both"),
        metrics=metrics,
        terms=config.terms,
    )


def compile_policies(config: GatewayConfig, metrics: GatewayMetrics) -> dict[str, Policy]:
    """The run-time form of every policy of a configuration, by name."""
    return {
        name: compile_policy(name, policy, metrics.policy(name))
        for name, policy in config.policies.items()
    }


def key_of_route(route: str) -> CompileKey:
    """What finds the keys of HTTP requests; the key word `route` stands for the name given."""

    def compile_one(per: Sequence[str], if_missing: str) -> KeyOf:
        return compile_key(per, if_missing=if_missing, route=route)

    return compile_one


def compile_plan(
    key_of: CompileKey,
    names: Sequence[str],
    policies: dict[str, PolicyConfig],
    compiled: dict[str, Policy],
) -> Plan:
    """Compile the policies of one route.

    Args:
        key_of: makes what finds the keys of its requests, such as `key_of_route` gives.
        names: the policies that apply, in order.
        policies: every policy's configuration.
        compiled: every policy's run-time form, shared between routes.
    """
    rules: list[Rule] = []
    for name in names:
        config = policies[name]
        policy = compiled[name]
        seen: dict[str, int] = {}
        for position, line in enumerate(config.limits, start=1):
            per = "+".join(line.per)
            seen[per] = seen.get(per, 0) + 1
            # The numbers are no part of the scope, so that changing them keeps the counts.
            scope = f"{name}/{per}" if seen[per] == 1 else f"{name}/{per}#{seen[per]}"
            limit = replace(line.limit, scope=scope)
            if config.queue and limit.algorithm in ("token_bucket", "paced_history"):
                # The last of `max` waiting requests waits for `max` intervals: bounding the
                # wait bounds the queue, in the store and so over all gateways.
                longest_us = config.queue.max * limit.interval_ns // NS_PER_US
                limit = replace(limit, max_wait_us=min(limit.max_wait_us, longest_us))
            key = key_of(line.per, config.if_missing)
            title = name if len(config.limits) == 1 else f"{name}-{position}"
            rules.append(Rule(policy, limit, key, title, as_written(line.per)))
    return Plan(rules)
