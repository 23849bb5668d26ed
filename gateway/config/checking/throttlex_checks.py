"""Checks of ThrottleX policies against the rest of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.store_url import parse_store_url


def tables_url(config: GatewayConfig) -> str:
    """Return the URL of the store that has ThrottleX's tables; empty if there is none."""
    migrate = config.store.migrate
    urls = [config.store.url, *([migrate.to] if migrate is not None else [])]
    return next((url for url in urls if parse_store_url(url).kind == "mysql"), "")


def conflicts(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies that need a table the store lacks, and policies that would share a count."""
    ours = {name: one.throttlex for name, one in config.policies.items() if one.throttlex}
    if not tables_url(config):
        for name, said in ours.items():
            if said.policies == "table":
                said_at = ("policies", name, "throttlex", "policies")
                message = (
                    "the table throttlex_policy is in a MySQL store, and this store is not one"
                )
                yield Finding(said_at, message, "for example store: mysql://db/throttlex")
    places: list[tuple[Path, str, Sequence[str]]] = [
        (("routes", index, "policies"), "route", route.policies)
        for index, route in enumerate(config.routes)
    ]
    places += [
        (("listeners", index), "listener", listener.policies)
        for index, listener in enumerate(config.listeners)
    ]
    for place, what, policies in places:
        named = [name for name in policies if name in ours]
        if len(named) > 1:
            message = f"{named[0]} and {named[1]} would both count under ThrottleX's key"
            hint = f"use one policy of throttlex per {what}; write the other as limits"
            yield Finding(place, message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies that share counts in ThrottleX's tables, or whose keys clients choose."""
    yield from _endless(config)
    yield from _together(config)


def _endless(config: GatewayConfig) -> Iterator[Finding]:
    """Return paths of routes with a pattern: clients can make up any number of them."""
    by_path = {
        name
        for name, policy in config.policies.items()
        if policy.throttlex and policy.throttlex.route == "path" and "route" in policy.throttlex.per
    }
    for index, route in enumerate(config.routes):
        name = next((name for name in route.policies if name in by_path), None)
        if name is not None and ("*" in route.path or "{" in route.path):
            message = (
                f"{name!r} counts each path of {route.path} separately, and clients can make up any"
            )
            hint = "add another limit, for example per ip; or a route for each path that matters"
            yield Finding(("routes", index, "policies"), message, hint)


def _together(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies that share counts in ThrottleX's tables, where only the key matters."""
    ours = [name for name, policy in config.policies.items() if policy.throttlex]
    if not tables_url(config):
        return
    for name in ours[1:]:
        message = f"a key that {ours[0]!r} counts too has one count for both in ThrottleX's tables"
        hint = "use one policy for both, or keys that cannot be equal"
        yield Finding(("policies", name, "throttlex", KEY), message, hint)
