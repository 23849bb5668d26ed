"""Checks across fields: unknown names, routes that never match, loops.

Findings make a configuration invalid; advice does not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from gateway.config.checking.key_checks import lines_of
from gateway.config.checking.messages import did_you_mean
from gateway.config.models.frontends import KINDS
from gateway.config.models.gateway import (
    AdminConfig,
    GatewayConfig,
    LimitLine,
    PolicyConfig,
    RouteConfig,
    UpstreamConfig,
    policies_of_requests,
    used_policies,
)
from gateway.config.models.shorthand import at
from gateway.config.values.address import Address, UnixAddress, collide, is_target, listens_on
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.store_url import capabilities_of
from gateway.config.values.units import format_duration
from gateway.config.values.words import join, number
from gateway.limits.key_words import CALLER_KEYS, as_written
from gateway.limits.notation import UNITS
from gateway.limits.rate import NS_PER_US
from gateway.routing.forwarding import is_origin_field
from gateway.routing.pattern import Pattern
from gateway.routing.table import shadowed

LARGE_LOG: Final = 10_000


def references(data: object, limited: Iterable[Path]) -> Iterator[Finding]:
    """Return names of policies and upstreams that do not exist, in plain expanded data.

    Args:
        data: the whole configuration.
        limited: the places in listeners that name policies.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("routes"), list):
        return
    upstreams, policies = data.get("upstreams"), data.get("policies")
    if isinstance(policies, Mapping):
        for place in limited:
            yield from _unknown_policies(place, at(data, place), policies)
    for index, route in enumerate(data["routes"]):
        if not isinstance(route, Mapping):
            continue
        path: Path = ("routes", index)
        name = route.get("upstream")
        if isinstance(upstreams, Mapping) and isinstance(name, str) and name not in upstreams:
            yield Finding(
                (*path, "upstream"), f"there is no upstream {name!r}", _hint(name, upstreams)
            )
        if isinstance(policies, Mapping):
            yield from _unknown_policies(path, route, policies)


def _unknown_policies(path: Path, body: object, policies: Mapping[str, Any]) -> Iterator[Finding]:
    """Return the policies that a route, or a part of a listener, names but that do not exist."""
    if not isinstance(body, Mapping):
        return
    names = body.get("policies", [])
    names = [names] if isinstance(names, str) else names
    for index, one in enumerate(names if isinstance(names, list) else []):
        place = (*path, "policies", index)
        if not isinstance(one, str):
            continue
        if one not in policies:
            yield Finding(place, f"there is no policy {one!r}", _policy_hint(one, policies))
        elif one in names[:index]:
            yield Finding(place, f"the policy {one!r} is named twice", "name each policy once")


def unfit_for_callers(config: GatewayConfig) -> Iterator[Finding]:
    """Return limits of listeners that count by something their clients do not send."""
    of_routes = set(policies_of_requests(config))
    for listener in config.listeners:
        for name in listener.policies:
            policy = config.policies.get(name)
            # The identity that a gatekeeper of Smockron sends may be an address, and then per ip
            # applies.
            is_own = name not in of_routes and listener.kind != "smockron"
            for index, line in enumerate(policy.limits if policy is not None else ()):
                place: Path = ("policies", name, "limits", index)
                kind, words = listener.kind, KINDS[listener.kind].words
                if line.limit.algorithm == "concurrency":
                    message = f"clients of {kind} do not report when requests end: {line.text}"
                    yield Finding(place, message, "use a rate, for example 10/s")
                elif not {*line.per} <= {"all", *words} and (
                    line.per != ("ip",) or (is_own and " per " in line.text)
                ):
                    message = f"clients of {kind} do not send {as_written(line.per)}: {line.text}"
                    known = join([f"per {word}" for word in (*words, "all")], "or")
                    yield Finding(place, message, f"use {known}; or remove per")


def unfit_for_requests(config: GatewayConfig) -> Iterator[Finding]:
    """Return limits of routes that count by something only other protocols have."""
    for name in policies_of_requests(config):
        policy = config.policies.get(name)
        if policy is None:
            continue
        for path, line in lines_of(name, policy):
            for word in line.per:
                if word in CALLER_KEYS:
                    message = f"HTTP requests have no {word}: {line.text}"
                    yield Finding(path, message, "for example per ip, or per header:X-API-Key")


def tried_on_listeners(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies of listeners that are to be tried out, or whose keys are secret.

    Their clients get every decision, and some of them look keys up in the store.
    """
    for listener in config.listeners:
        for name in listener.policies:
            policy = config.policies.get(name)
            if policy is None:
                continue
            keys = {
                "mode": policy.mode != "enforce",
                "candidate": policy.candidate is not None,
                "secret": policy.secret,
            }
            for key in (key for key, is_set in keys.items() if is_set):
                message = f"{key} is for policies of routes, and {listener.kind} uses this one"
                hint = "use another policy for the listener"
                yield Finding(("policies", name, key), message, hint)


def unknown_movers(config: GatewayConfig) -> Iterator[Finding]:
    """Return policies that are to be migrated but do not exist."""
    migrate = config.store.migrate
    for index, name in enumerate(migrate.policies if migrate else ()):
        if name not in config.policies:
            place = ("store", "migrate", "policies", index)
            hint = _policy_hint(name, config.policies)
            yield Finding(place, f"there is no policy {name!r}", hint)


def _hint(name: str, named: Mapping[str, Any]) -> str:
    known = [known for known in named if not is_target(known)]
    names = ", ".join(known[:8])
    host, _, port = name.rpartition(":")
    if host and port.isdigit():
        return f"did you mean http://{name}?"
    otherwise = f"known upstreams: {names}; or write its URL" if names else "write its URL"
    return did_you_mean(name, known, f"{otherwise}, for example http://127.0.0.1:9000")


def _policy_hint(name: str, named: Mapping[str, Any]) -> str:
    if "/" in name:
        return f"to write a limit on the route itself, use limit: {name}"
    names = ", ".join(list(named)[:8])
    otherwise = (
        f"known policies: {names}" if names else f"for example policies: {{{name}: 10/s burst 20}}"
    )
    return did_you_mean(name, list(named), otherwise)


def unreachable(routes: Sequence[tuple[int, RouteConfig]]) -> Iterator[Finding]:
    """Return routes whose requests are all taken by an earlier or more specific one."""
    entries: list[tuple[Pattern, None]] = []
    places: list[int] = []
    for place, (index, route) in enumerate(routes):
        try:
            pattern = route.pattern
        except ValueError as error:
            yield Finding(("routes", index, KEY), f"this matches no request: {error}")
        else:
            entries.append((pattern, None))
            places.append(place)
    for hidden, taker in shadowed(entries):
        index, name = routes[places[hidden]][0], routes[places[taker]][1].name
        message = f"this route can never match: {name!r} takes all its requests"
        hint = "remove one, or distinguish them by method, header or host"
        yield Finding(("routes", index, KEY), message, hint)


def address_conflicts(config: GatewayConfig) -> Iterator[Finding]:
    """Return listeners that collide, and upstreams that are the gateway itself."""
    listeners: list[tuple[Path, Address]] = []
    sockets: set[str] = set()
    for place, address in _addresses(config):
        if isinstance(address, Address):
            listeners.append((place, address))
        elif address.path in sockets:
            yield Finding(place, f"{address} is already in use", "use another path")
        else:
            sockets.add(address.path)
    for (where, first), (path, second) in combinations(listeners, 2):
        if collide(first, second):
            also = "" if first == second else f" on {first}"
            message = (
                f"{second} is already in use: {where[0]}[{where[1]}] listens{also or ' there'}"
            )
            yield Finding(path, message, "use another port")
    if config.admin is not None:
        yield from _admin_collisions(config.admin, listeners, config.model_fields_set)
    for name, upstream in config.upstreams.items():
        for index, target in enumerate(upstream.targets):
            path = ("upstreams", name, "targets", index)
            if target.socket in sockets or any(
                listens_on(address, target.host, target.port) for _, address in listeners
            ):
                message = f"{target.url} is this gateway itself: requests would loop"
                yield Finding(path, message, "use the address of the application")
            elif config.admin and listens_on(config.admin.listen, target.host, target.port):
                message = f"{target.url} is this gateway's admin listener"
                yield Finding(
                    path, message, "use the address of an application; this one is not for clients"
                )


def _addresses(config: GatewayConfig) -> Iterator[tuple[Path, Address | UnixAddress]]:
    """Return all addresses that are listened on, and where they are configured."""
    for index, listener in enumerate(config.listen):
        yield ("listen", index, "address"), listener.address
    for index, frontend in enumerate(config.listeners):
        place = ("listeners", index, "bind" if frontend.bind else frontend.kind)
        for address in frontend.addresses:
            yield place, address


def _admin_collisions(
    admin: AdminConfig, listeners: Sequence[tuple[Path, Address]], said: Container[str]
) -> Iterator[Finding]:
    for path, address in listeners:
        if not collide(address, admin.listen):
            continue
        if "admin" in said:
            message = f"{admin.listen} is where the gateway listens for requests"
            yield Finding(("admin", "listen"), message, "use another port")
        else:
            message = f"{address} is the default address of the admin listener"
            yield Finding(path, message, "use another port, or move it: admin: 127.0.0.1:9902")


def unknown_senders(config: GatewayConfig) -> Iterator[Finding]:
    """Return listeners that expect PROXY headers although no proxy is trusted."""
    for index, listener in enumerate(config.listen):
        is_tcp = isinstance(listener.address, Address)
        if listener.proxy_protocol is True and is_tcp and not config.trusted_proxies:
            message = "no peer is trusted to send PROXY headers"
            hint = (
                "set trusted_proxies to the networks of your proxies; or use proxy_protocol: "
                "10.0.0.0/8"
            )
            yield Finding(("listen", index, "proxy_protocol"), message, hint)


def warnings(config: GatewayConfig) -> Iterator[Finding]:
    """Return what is allowed but probably not intended."""
    used = {route.upstream for route in config.routes}
    for name in config.upstreams:
        if name not in used:
            yield Finding(("upstreams", name, KEY), f"no route uses the upstream {name!r}")
        yield from _upstream_warnings(name, config.upstreams[name])
    held = used_policies(config)
    for name, policy in config.policies.items():
        if name not in held and (config.routes or config.listeners):
            who = "no route uses" if not config.listeners else "nothing uses"
            yield Finding(("policies", name, KEY), f"{who} the policy {name!r}")
        yield from _proxy_warnings(name, policy, config)
        for finding in _policy_warnings(policy):
            yield finding._replace(path=("policies", name, *finding.path))
    migrate = config.store.migrate
    if migrate is not None and not capabilities_of(migrate.to).is_shared:
        message = "counts would move into the memory of each gateway, and a restart loses them"
        yield Finding(("store", "migrate", "to"), message, "use a store that gateways share")
    for name, upstream in config.upstreams.items():
        yield from _tls_warnings(name, upstream)
    server = config.server
    if server.workers == 1 and server.watchdog and "watchdog" in server.model_fields_set:
        message = "watchdog has no effect with one worker: no other process can restart it"
        yield Finding(("server", "watchdog"), message, "set server.workers to 2 or more")
    for index, network in enumerate(config.trusted_proxies):
        if network.prefixlen == 0:
            message = "every peer is trusted: clients can choose the address they are counted by"
            yield Finding(
                ("trusted_proxies", index), message, "use the networks of your own proxies"
            )


def _proxy_warnings(name: str, policy: PolicyConfig, config: GatewayConfig) -> Iterator[Finding]:
    if config.trusted_proxies:
        return
    for index, line in enumerate(policy.limits):
        for word in line.per:
            kind, _, header = word.partition(":")
            if kind == "header" and is_origin_field(header.lower()):
                message = f"{header} is accepted from trusted proxies only, and there are none"
                hint = "set trusted_proxies to the networks of your proxies"
                yield Finding(("policies", name, "limits", index), message, hint)


def _tls_warnings(name: str, upstream: UpstreamConfig) -> Iterator[Finding]:
    if upstream.tls is None:
        return
    path: Path = ("upstreams", name, "tls")
    if all(target.scheme == "http" for target in upstream.targets):
        message = "tls has no effect: no target of this upstream is https://"
        yield Finding((*path, KEY), message, "use https://HOST:PORT in targets")
    elif not upstream.tls.verify:
        message = "without verification, any server at the target's address is accepted"
        hint = "set ca to the file of the authority that signed its certificate"
        yield Finding((*path, "verify"), message, hint)


def _upstream_warnings(name: str, upstream: UpstreamConfig) -> Iterator[Finding]:
    if len(upstream.targets) > 1:
        return
    if upstream.health is not None and upstream.if_none_healthy == "all":
        message = "with a single target, health checks only count and change nothing"
        hint = "if_none_healthy: reject answers 503 while it is unhealthy"
        yield Finding(("upstreams", name, "health", KEY), message, hint)
    if upstream.slow_start:
        message = "a single target receives all requests from the start"
        yield Finding(("upstreams", name, "slow_start", KEY), message, "remove it")


def _policy_warnings(policy: PolicyConfig) -> Iterator[Finding]:
    for index, line in enumerate(policy.limits):
        limit, path = line.limit, ("limits", index)
        keeps = {"sliding_window_log": limit.count, "paced_history": limit.burst}
        kept = keeps.get(limit.algorithm, 0)
        if kept > LARGE_LOG:
            message = f"{limit.algorithm} keeps up to {kept} times per key"
            yield Finding(path, message, "token_bucket keeps one number per key")
        interval_us = -(-limit.interval_ns // NS_PER_US)
        is_bucket = limit.algorithm == "token_bucket"
        if is_bucket and policy.queue and policy.queue.max_wait < interval_us:
            message = (
                "no request can get a turn within "
                f"{format_duration(policy.queue.max_wait)}: {line.text} has one every "
                f"{format_duration(interval_us)}"
            )
            yield Finding(
                ("queue", "max_wait"), message, "allow a longer wait, or remove the queue"
            )
        if is_bucket and "algorithm" not in policy.model_fields_set:
            yield from _meant_quotas(line, path)
        tighter = _tighter(line, policy.limits) if is_bucket else None
        if tighter is not None:
            message = f"this limit has no effect: {tighter.text} is tighter in every way"
            yield Finding(path, message, "remove it, or lower it")


def _meant_quotas(line: LimitLine, path: Path) -> Iterator[Finding]:
    """Return a token bucket of a day, a week or a month that surely means a calendar window."""
    limit = line.limit
    calendar = _CALENDARS.get(limit.period_us)
    if calendar is None or limit.count == 1 or "burst" in line.text:
        return
    rate, per, key = line.text.partition(" per ")
    most = number(limit.burst + limit.count)
    message = (
        f"{rate} is a token bucket, which nothing resets: up to {most} requests pass in one "
        f"{calendar}"
    )
    quota = f"{limit.count}/{calendar} in UTC{per}{key}"
    hint = f"for a quota per calendar {calendar}, write {quota}; or keep it and write its burst"
    yield Finding(path, message, hint)


_CALENDARS: Final = {
    UNITS["d"]: "day",
    7 * UNITS["d"]: "week",
    **dict.fromkeys((28 * UNITS["d"], 30 * UNITS["d"], 31 * UNITS["d"]), "month"),
}
"""What periods of this many microseconds surely mean."""


def _tighter(line: LimitLine, lines: Sequence[LimitLine]) -> LimitLine | None:
    """Return another limit of the same key with a slower rate and a smaller burst, if any."""
    mine = line.limit
    for other in lines:
        its = other.limit
        if other is line or other.per != line.per or its.algorithm != mine.algorithm:
            continue
        if its.count * mine.period_us <= mine.count * its.period_us and its.burst <= mine.burst:
            return other
    return None
