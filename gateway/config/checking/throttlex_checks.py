"""What policies in ThrottleX's words need of the rest of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.store_url import parse_store_url


def tables_url(config: GatewayConfig) -> str:
    """The URL of the store that has ThrottleX's tables; empty if none has."""
    migrate = config.store.migrate
    urls = [config.store.url, *([migrate.to] if migrate is not None else [])]
    return next((url for url in urls if parse_store_url(url).kind == "mysql"), "")


def conflicts(config: GatewayConfig) -> Iterator[Finding]:
    """Policies of a table that is nowhere, and two counts where ThrottleX has one."""
    ours = {name: one.throttlex for name, one in config.policies.items() if one.throttlex}
    if not tables_url(config):
        for name, said in ours.items():
            if said.policies == "table":
                said_at = ("policies", name, "throttlex", "policies")
                message = "the table throttlex_policy is in a MySQL store, and this store is none"
                yield Finding(said_at, message, "such as store: mysql://db/throttlex")
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
            hint = f"one policy of throttlex to a {what}; write the other as limits"
            yield Finding(place, message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """What counts together in ThrottleX's tables, and keys that clients make up as they like."""
    yield from _endless(config)
    yield from _together(config)


def _endless(config: GatewayConfig) -> Iterator[Finding]:
    """Paths of routes that have a pattern: there are as many as clients think of."""
    by_path = {
        name
        for name, policy in config.policies.items()
        if policy.throttlex and policy.throttlex.route == "path" and "route" in policy.throttlex.per
    }
    for index, route in enumerate(config.routes):
        name = next((name for name in route.policies if name in by_path), None)
        if name is not None and ("*" in route.path or "{" in route.path):
            message = (
                f"{name!r} counts each path of {route.path} apart, and clients may make up any"
            )
            hint = "a further limit, such as per ip; or a route for each path that counts"
            yield Finding(("routes", index, "policies"), message, hint)


def _together(config: GatewayConfig) -> Iterator[Finding]:
    """Policies whose counts fall together in ThrottleX's tables, where a key is all there is."""
    ours = [name for name, policy in config.policies.items() if policy.throttlex]
    if not tables_url(config):
        return
    for name in ours[1:]:
        message = f"a key that {ours[0]!r} counts too has one count for both in ThrottleX's tables"
        hint = "one policy for both, or keys that cannot be alike"
        yield Finding(("policies", name, "throttlex", KEY), message, hint)
