"""Checks of what limits count by against the rest of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import GatewayConfig, LimitLine, PolicyConfig, RouteConfig
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.words import join
from gateway.routing.path_parameter import parameters_of


def conflicts(config: GatewayConfig) -> Iterator[Finding]:
    """Return limits of routes that count by something the requests of the route cannot have."""
    for route in config.routes:
        for name in (*route.policies, *([config.preflight] if config.preflight else [])):
            policy = config.policies.get(name)
            if policy is not None:
                yield from _unknown_parameters(route, name, policy)
    for name, policy in config.policies.items():
        if policy.secret:
            yield from _without_secret(name, policy, config)
        if config.jwt is None:
            yield from _without_tokens(name, policy)


def lines_of(name: str, policy: PolicyConfig) -> Iterator[tuple[Path, LimitLine]]:
    """Return the limits of a policy, its tiers and its candidate, each with its place."""
    for index, line in enumerate(policy.limits):
        yield ("policies", name, "limits", index), line
    for tier, lines in policy.tiers.items():
        for index, line in enumerate(lines):
            yield ("policies", name, "tiers", tier, index), line
    if policy.candidate is not None:
        for index, line in enumerate(policy.candidate.limits):
            yield ("policies", name, "candidate", "limits", index), line


def _without_secret(name: str, policy: PolicyConfig, config: GatewayConfig) -> Iterator[Finding]:
    place: Path = ("policies", name, "secret")
    if config.key_secret is None:
        message = "the keys of this policy are secret, and there is no key_secret to hash them with"
        hint = "add key_secret: ${SLUICE_KEY_SECRET} at the top, the same on all gateways"
        yield Finding(place, message, hint)
    if policy.throttlex is not None and policy.throttlex.policies == "table":
        message = "the table throttlex_policy has keys as they are, and this policy hashes them"
        yield Finding(place, message, "use policies: own, or remove secret")


def _without_tokens(name: str, policy: PolicyConfig) -> Iterator[Finding]:
    if policy.tier is not None and policy.tier.per.startswith("jwt:"):
        message = f"tokens are not verified, so no request has {policy.tier.per}"
        hint = "add jwt: {keys: FILE or URL, algorithms: [RS256]} at the top"
        yield Finding(("policies", name, "tier"), message, hint)
    for place, line in lines_of(name, policy):
        for word in line.per:
            if word.startswith("jwt:"):
                message = f"tokens are not verified, so no request has {word}"
                hint = "add jwt: {keys: FILE or URL, algorithms: [RS256]} at the top"
                yield Finding(place, message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return keys that no request has, and what is configured for keys that no limit has."""
    if config.jwt is not None and not claims_of(config):
        message = "no limit counts by a claim, so no token is verified"
        yield Finding(("jwt", KEY), message, "for example limit: 10/s per jwt:sub")
    for name, policy in config.policies.items():
        for place, line in lines_of(name, policy):
            if {"json", "form"} <= {word.partition(":")[0] for word in line.per}:
                message = f"no body is both JSON and a form, so no request has all of {line.text}"
                yield Finding(place, message, "use two limits, one for each")


def claims_of(config: GatewayConfig) -> tuple[str, ...]:
    """Return the names of the claims that limits count by, each once."""
    words = [
        word
        for name, policy in config.policies.items()
        for _, line in lines_of(name, policy)
        for word in line.per
    ]
    words += [policy.tier.per for policy in config.policies.values() if policy.tier is not None]
    return tuple(dict.fromkeys(w.removeprefix("jwt:") for w in words if w.startswith("jwt:")))


def _unknown_parameters(route: RouteConfig, name: str, policy: PolicyConfig) -> Iterator[Finding]:
    known = parameters_of(route.path)
    for place, line in lines_of(name, policy):
        for word in line.per:
            kind, colon, parameter = word.partition(":")
            if kind != "path" or not colon or parameter in known:
                continue
            message = f"the pattern of route {route.name!r} has no parameter {{{parameter}}}"
            has = join([f"path:{one}" for one in known], "or")
            hint = f"it has {has}" if known else "for example /users/{id} for path:id"
            yield Finding(place, message, hint)
