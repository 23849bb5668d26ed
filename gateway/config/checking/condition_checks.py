"""Conditions that are valid but never hold, and clients that are both let in and denied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from gateway.config.checking.key_checks import words_of
from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.config.values.findings import Finding, Path
from gateway.config.values.words import join
from gateway.limits.key_words import CLIENT_CERTIFICATE
from gateway.routing.pattern import Pattern, may_meet
from gateway.routing.sender import covers_members

MAX_ROUTES: Final = 8
"""How many routes a hint names."""


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return conditions that never hold."""
    yield from _allowed_and_denied(config)
    if not any(one.tls is not None and one.tls.client_certificates for one in config.listen):
        for place in _places_of_certificates(config):
            message = "no listener asks clients for certificates, so no client has one"
            yield Finding(
                place, message, "set client_certificates and client_ca in tls of a listener"
            )
    # Applications that share the file may use policies for other requests.
    for name, policy in config.policies.items() if config.needs_work else ():
        patterns = [
            route.pattern
            for route in config.routes
            if name in route.policies or name == config.preflight
        ]
        if patterns:
            yield from _outside(name, policy, patterns)


def conditions_of(name: str, policy: PolicyConfig) -> Iterator[tuple[Path, ConditionConfig]]:
    """Return the conditions of a policy, each with its place."""
    for key, conditions in (("only", policy.only), ("except", policy.exceptions)):
        for index, condition in enumerate(conditions):
            yield ("policies", name, key, index), condition


def _outside(name: str, policy: PolicyConfig, patterns: Sequence[Pattern]) -> Iterator[Finding]:
    """Return conditions that no request of some routes can meet."""
    for place, condition in conditions_of(name, policy):
        methods = ("OPTIONS",) if condition.preflight else condition.methods
        wanted = Pattern(condition.host, condition.path or "/**", methods)
        if any(may_meet(wanted, one) for one in patterns):
            continue
        if any(may_meet(replace(wanted, methods=()), one) for one in patterns):
            message = f"no route of this policy takes {join(methods, 'or')}"
            taken = dict.fromkeys(method for one in patterns for method in one.methods)
            hint = f"remove it; the routes take {join(list(taken))}"
        else:
            where = f"{condition.host or ''}{condition.path or '/**'}"
            message = f"no route of this policy is for {where}"
            routes = dict.fromkeys(f"{one.host or ''}{one.path}" for one in patterns)
            hint = f"remove it; the routes are for {join(list(routes)[:MAX_ROUTES])}"
        yield Finding(place, message, hint)


def _allowed_and_denied(config: GatewayConfig) -> Iterator[Finding]:
    for index, route in enumerate(config.routes):
        denied = (*config.deny, *route.deny)
        for key, members in (("client", route.client), ("allow", route.allow or ())):
            for position, member in enumerate(members):
                if covers_members(denied, [member]):
                    message = f"{member} is denied as well, so these clients get 403"
                    place = ("routes", index, key, position)
                    yield Finding(place, message, "remove it here, or from deny")


def _places_of_certificates(config: GatewayConfig) -> Iterator[Path]:
    """Return the places where something depends on the certificates of clients."""
    for name, one in config.lists.items():
        if _is_of_certificate(one.per):
            yield "lists", name, "per"
    for index, route in enumerate(config.routes):
        if route.client_cert:
            yield "routes", index, "client_cert"
    for name, policy in config.policies.items():
        yield from dict.fromkeys(
            place for place, word in words_of(name, policy) if _is_of_certificate(word)
        )
        for place, condition in conditions_of(name, policy):
            if condition.client_cert:
                yield (*place, "client_cert")
        if policy.tier is not None and _is_of_certificate(policy.tier.per):
            yield "policies", name, "tier"


def _is_of_certificate(word: str) -> bool:
    return word.startswith(f"{CLIENT_CERTIFICATE}:")
