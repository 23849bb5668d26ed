"""Checks of what limits count by against the rest of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import (
    GatewayConfig,
    GeoipConfig,
    LimitLine,
    PolicyConfig,
    RouteConfig,
)
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.words import join
from gateway.limits.key_words import PLACE_KEYS
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
        yield from _without_places(name, policy, config.geoip)
    for name, one in config.lists.items():
        yield from _unknown_place(("lists", name, "per"), one.per, config.geoip)


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


def words_of(name: str, policy: PolicyConfig) -> Iterator[tuple[Path, str]]:
    """Return the parts of requests that a policy depends on, each with its place."""
    for place, line in lines_of(name, policy):
        for word in line.per:
            yield place, word
    if policy.tier is not None:
        yield ("policies", name, "tier"), policy.tier.per
    for word in policy.cost.words:
        yield ("policies", name, "cost"), word


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
    for place, word in words_of(name, policy):
        if word.startswith("jwt:"):
            message = f"tokens are not verified, so no request has {word}"
            hint = "add jwt: {keys: FILE or URL, algorithms: [RS256]} at the top"
            yield Finding(place, message, hint)


def _without_places(
    name: str, policy: PolicyConfig, geoip: GeoipConfig | None
) -> Iterator[Finding]:
    for place, word in words_of(name, policy):
        yield from _unknown_place(place, word, geoip)


def _unknown_place(place: Path, word: str, geoip: GeoipConfig | None) -> Iterator[Finding]:
    if word in PLACE_KEYS and (geoip is None or word not in geoip.files):
        message = f"there is no database to look up {word} in"
        hint = f"add geoip: {{{word}: FILE.mmdb}} at the top"
        if geoip is not None:
            hint = f"add {word}: FILE.mmdb to geoip"
        yield Finding(place, message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return keys that no request has, and what is configured for keys that no limit has."""
    if config.jwt is not None and not claims_of(config):
        message = "no limit counts by a claim, so no token is verified"
        yield Finding(("jwt", KEY), message, "for example limit: 10/s per jwt:sub")
    for word in config.geoip.files if config.geoip is not None else ():
        if word not in places_of(config):
            message = f"no limit or list uses {word}, so its database is not read"
            yield Finding(("geoip", word, KEY), message, f"for example limit: 10/s per {word}")
    for name, policy in config.policies.items():
        for place, line in lines_of(name, policy):
            if {"json", "form"} <= {word.partition(":")[0] for word in line.per}:
                message = f"no body is both JSON and a form, so no request has all of {line.text}"
                yield Finding(place, message, "use two limits, one for each")


def claims_of(config: GatewayConfig) -> tuple[str, ...]:
    """Return the names of the claims that limits count by, each once."""
    words = _words_of(config)
    return tuple(dict.fromkeys(w.removeprefix("jwt:") for w in words if w.startswith("jwt:")))


def places_of(config: GatewayConfig) -> tuple[str, ...]:
    """Return which of `PLACE_KEYS` limits, tiers and lists need a database for."""
    used = {*_words_of(config), *(one.per for one in config.lists.values())}
    return tuple(word for word in PLACE_KEYS if word in used)


def _words_of(config: GatewayConfig) -> list[str]:
    """Return the parts of requests that policies depend on."""
    return [word for name, policy in config.policies.items() for _, word in words_of(name, policy)]


def _unknown_parameters(route: RouteConfig, name: str, policy: PolicyConfig) -> Iterator[Finding]:
    known = parameters_of(route.path)
    for place, word in words_of(name, policy):
        kind, colon, parameter = word.partition(":")
        if kind != "path" or not colon or parameter in known:
            continue
        message = f"the pattern of route {route.name!r} has no parameter {{{parameter}}}"
        has = join([f"path:{one}" for one in known], "or")
        hint = f"it has {has}" if known else "for example /users/{id} for path:id"
        yield Finding(place, message, hint)
