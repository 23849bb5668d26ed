"""Checks of lists, and of where they are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.config.checking.messages import did_you_mean
from gateway.config.models.costs import cost_words
from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.config.models.lists import Member, names_in
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.store_url import capabilities_of
from gateway.limits.key_words import as_written


def _places(config: GatewayConfig) -> Iterator[tuple[Path, Sequence[Member]]]:
    """Yield the places that may name lists."""
    yield ("deny",), config.deny
    for index, route in enumerate(config.routes):
        yield ("routes", index, "deny"), route.deny
        yield ("routes", index, "allow"), route.allow or ()
        yield ("routes", index, "client"), route.client
    for name, policy in config.policies.items():
        for key, conditions in (("except", policy.exceptions), ("only", policy.only)):
            for index, condition in enumerate(conditions):
                yield ("policies", name, key, index, "client"), condition.client


def unknown_lists(config: GatewayConfig) -> Iterator[Finding]:
    """Return names of lists that do not exist."""
    known = list(config.lists)
    for place, members in _places(config):
        for index, name in names_in(members):
            if name not in config.lists:
                others = f"known: {', '.join(known)}" if known else "add it under lists"
                hint = did_you_mean(name, known, others)
                yield Finding((*place, index), f"there is no list {name!r}", hint)


def conditions_on_listeners(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies of listeners with conditions, which are about requests of HTTP."""
    for listener in config.listeners:
        for name in listener.policies:
            policy = config.policies.get(name)
            if policy is None:
                continue
            for key, conditions in (("except", policy.exceptions), ("only", policy.only)):
                if conditions:
                    message = f"{key} is for policies of routes, and {listener.kind} uses this one"
                    hint = "use another policy for the listener"
                    yield Finding(("policies", name, key), message, hint)


def tiers_that_are_not_kept(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies whose tiers cannot be found, or cannot be kept by their store."""
    on_listeners = {name: one.kind for one in config.listeners for name in one.policies}
    for name, policy in config.policies.items():
        place: Path = ("policies", name, "tier")
        tier = policy.tier
        if tier is None:
            continue
        if name in on_listeners:
            message = f"tiers are for policies of routes, and {on_listeners[name]} uses this one"
            yield Finding(place, message, "use another policy for the listener")
        elif capabilities_of(config.store.url).is_gatekeeper:
            message = "masters of Smockron have the same limits for all clients"
            yield Finding(place, message, "remove the tiers, or use another store")
        elif tier.is_named and tier.per.startswith("header:") and not config.trusted_proxies:
            message = (
                f"only trusted proxies can name tiers in {as_written((tier.per,))}: there are none"
            )
            hint = "set trusted_proxies to the networks of your proxies, or use a file"
            yield Finding(place, message, hint)


def costs_on_listeners(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies of listeners with costs, which depend on requests of HTTP."""
    for listener in config.listeners:
        for name in listener.policies:
            policy = config.policies.get(name)
            for word in cost_words(policy) if policy is not None else ():
                message = f"{word} is for policies of routes, and {listener.kind} uses this one"
                hint = "use another policy for the listener"
                yield Finding(("policies", name, word, KEY), message, hint)


def costs_above_limits(config: GatewayConfig) -> Iterator[Finding]:
    """Return routes whose requests cost more than a limit can ever hold, or what nothing counts."""
    for index, route in enumerate(config.routes):
        place: Path = ("routes", index, "cost")
        if "cost" in route.model_fields_set and not route.policies:
            yield Finding(place, "no limit counts the requests of this route", "remove it")
        if route.cost > 1 and capabilities_of(config.store.url).is_gatekeeper:
            message = "masters of Smockron count each request as one"
            yield Finding(place, message, "remove it, or use another store")
        for name in route.policies:
            policy = config.policies.get(name)
            if policy is None:
                continue
            if not policy.cost.is_own:
                yield from _too_dear(place, route.cost, policy)
    for name, policy in config.policies.items():
        cost = policy.cost.reserve.constant
        if policy.cost.is_own and cost is not None:
            yield from _too_dear(("policies", name, "cost"), cost, policy)


def _too_dear(place: Path, cost: int, policy: PolicyConfig) -> Iterator[Finding]:
    lines = [line for lines in (policy.limits, *policy.tiers.values()) for line in lines]
    if policy.cost.is_own:
        lines = [line for line in lines if line.limit.algorithm != "concurrency"]
    least = min(lines, key=lambda line: line.limit.burst, default=None)
    if least is not None and cost > least.limit.burst:
        message = f"{least.text} never lets {cost} pass at once"
        hint = f"use at most {least.limit.burst}, or a larger burst"
        yield Finding(place, message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return lists that nothing refers to."""
    used = {name for _, members in _places(config) for _, name in names_in(members)}
    for name in config.lists:
        if name not in used:
            message = f"the list {name!r} is not used"
            yield Finding(
                ("lists", name, KEY), message, "name it in allow, deny, client, except or only"
            )
