"""Who is served, and who is not limited, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.config.explaining.limits import explain_limit
from gateway.config.explaining.notation import field
from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig, GeoipConfig
from gateway.config.models.lists import ListConfig, Member
from gateway.config.models.policies import PolicyConfig
from gateway.config.models.routes import RouteConfig
from gateway.config.models.tiers import BY_ADDRESS, DENY, OWN
from gateway.config.values.words import join, key_word, number
from gateway.limits.key_words import PLACE_KEYS


def explain_access(config: GatewayConfig) -> Iterator[str]:
    """Say who is not served at all, and what becomes of preflight requests."""
    if config.deny:
        yield f"Clients in {_members(config.deny)} get 403 on all routes."
    if config.preflight is not None:
        yield (
            f"Preflight requests of browsers (CORS) are limited by policy {config.preflight}, "
            "whatever their route."
        )


def explain_geoip(geoip: GeoipConfig | None) -> Iterator[str]:
    """Say where the country and the autonomous system of a client are looked up."""
    for word, file in geoip.files.items() if geoip is not None else ():
        what = _PLACES[word]
        yield f"{what} are looked up in {file}, which is read again when it changes."


_PLACES: Final = {
    "country": "Countries of clients",
    "asn": "Autonomous systems of clients",
}


def explain_lists(config: GatewayConfig) -> Iterator[str]:
    """Say what each list holds."""
    for name, one in config.lists.items():
        yield f"List {name}: {_list(one)}."


def explain_route_access(route: RouteConfig) -> Iterator[str]:
    """Say who may use a route."""
    if route.allow is not None:
        yield f"Only clients in {_members(route.allow)} are served; others get 403."
    if route.deny:
        yield f"Clients in {_members(route.deny)} get 403."


def explain_exceptions(policy: PolicyConfig) -> Iterator[str]:
    """Say which requests a policy counts, and which it does not."""
    if policy.only:
        yield f"It counts only {join([_condition(one) for one in policy.only], 'or')}."
    for exception in policy.exceptions:
        yield f"It does not count {_condition(exception)}."


def _clients(tiers: Mapping[str, str]) -> str:
    """Say how many have each tier: their names may be credentials."""
    counts = Counter(tiers.values())
    return join(
        [
            f"{number(count)} {'client has' if count == 1 else 'clients have'} tier {tier}"
            for tier, count in counts.items()
        ]
    )


def explain_tiers(policy: PolicyConfig, *, by_clock: bool) -> Iterator[str]:
    """Say which clients have other limits."""
    tier = policy.tier
    if tier is None:
        return
    what = key_word(tier.per)
    if tier.clients:
        yield f"By {what}, {_clients(tier.clients)}."
    if tier.file is not None:
        yield f"Clients have the tiers in {tier.file}, which is read again when it changes."
    elif tier.is_named:
        who = " of trusted proxies" if tier.per.startswith("header:") else ""
        whose = "their " if tier.per in PLACE_KEYS else ""
        yield f"Clients have the tier that {whose}{what}{who} names."
    for name, lines in policy.tiers.items():
        if not lines:
            yield f"Tier {name}: unlimited."
        for line in lines:
            yield f"Tier {name}: {line.text}: {explain_limit(line, by_clock=by_clock)}."
    yield _UNKNOWN.get(tier.unknown, f"Clients without a tier have tier {tier.unknown}.")


_UNKNOWN: Final = {
    OWN: "Clients without a tier have the limits above.",
    BY_ADDRESS: "Clients without a tier have the limits above, counted by address.",
    DENY: "Clients without a tier get 403.",
}


def _list(one: ListConfig) -> str:
    what = "network" if one.per == "ip" else "value"
    of_what = "" if one.per == "ip" else f" of {key_word(one.per)}"
    count = len(one.values)
    parts = [f"{number(count)} {what}{'s' if count > 1 else ''}{of_what}"] if count else []
    if one.file is not None:
        also = "those" if parts else f"{what}s{of_what}"
        parts.append(f"{also} in {one.file}, which is read again when it changes")
    return " and ".join(parts)


def _members(members: Sequence[Member]) -> str:
    return join([f"list {one}" if isinstance(one, str) else str(one) for one in members], "or")


def _condition(one: ConditionConfig) -> str:
    what = "preflight requests (CORS)" if one.preflight else "requests"
    if one.methods:
        what = f"{' and '.join(one.methods)} {what}"
    where = f"{one.host or ''}{one.path or ''}"
    parts = [what]
    if where:
        parts.append(f"for {where}")
    said = [f"{name}: {field(name, value)}" for name, value in one.headers.items()]
    return " ".join([*parts, *sender_words(one, said)])


def sender_words(one: ConditionConfig | RouteConfig, fields: Sequence[str]) -> Iterator[str]:
    """Say what a condition or a route requires of clients.

    Args:
        one: the condition.
        fields: what it requires of header fields, in words.
    """
    if one.client:
        yield f"from clients in {_members(one.client)}"
    said = list(fields)
    said += [f"cookie {name}={field('Cookie', value)}" for name, value in one.cookies.items()]
    said += [f"certificate {name} {value}" for name, value in one.client_cert.items()]
    if said:
        yield f"with {join(said)}"
