"""What a configuration does, in sentences that require no knowledge of its keys.

`explain` returns the lines of `sluice check --explain`; `explain_limit` and `explain_policy` are
used where a limit or a policy is shown by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from gateway.config.explaining.access import (
    explain_access,
    explain_exceptions,
    explain_geoip,
    explain_lists,
    explain_route_access,
    explain_tiers,
    sender_words,
)
from gateway.config.explaining.changes import explain_changes, explain_own, explain_pages
from gateway.config.explaining.consistency import explain_consistency, explain_migration
from gateway.config.explaining.costs import explain_costs
from gateway.config.explaining.frontends import explain_frontends
from gateway.config.explaining.limits import explain_limit
from gateway.config.explaining.retry import explain_retry
from gateway.config.explaining.store import explain_store
from gateway.config.explaining.tls import explain_listener, explain_upstream_tls
from gateway.config.explaining.tokens import explain_tokens
from gateway.config.explaining.trials import explain_trial
from gateway.config.explaining.upstreams import (
    explain_choice,
    explain_parts,
    explain_timeouts,
    explain_websocket,
)
from gateway.config.models.gateway import (
    GatewayConfig,
    PolicyConfig,
    RouteConfig,
    ServerConfig,
    UpstreamConfig,
    policies_of_requests,
    used_policies,
)
from gateway.config.models.routes import retry_of
from gateway.config.values.store_url import capabilities_of
from gateway.config.values.units import format_duration, format_size
from gateway.config.values.words import join, key_word, number
from gateway.config.values.written import show_field
from gateway.systems.smockron.capabilities import of_masters_only
from gateway.systems.smockron.explaining import explain_reported


def explain(config: GatewayConfig) -> list[str]:
    """Sentences for the whole configuration; lines that belong to one before are indented."""
    can = capabilities_of(config.store.url)
    is_shared = can.is_shared or bool(config.store.migrate) or config.server.workers != 1
    described: dict[str, str] = {}
    used = used_policies(config)
    asked = used - set(policies_of_requests(config))
    reported = of_masters_only(config)
    who = "Nothing" if config.listeners else "No route"
    unused = f"{who} uses this policy: it has no effect."
    return [
        *_explain_server(config),
        *explain_store(config.store, config),
        *explain_migration(config),
        *explain_pages(config.error_pages),
        *explain_access(config),
        *explain_geoip(config.geoip),
        *explain_lists(config),
        "",
        *(line for route in config.routes for line in explain_route(route, config, described)),
        *explain_frontends(config.listeners),
        *(
            line
            for name, policy in config.policies.items()
            for line in (
                "",
                *(
                    explain_reported(name, policy)
                    if name in reported
                    else explain_policy(
                        name,
                        policy,
                        is_shared=is_shared,
                        by_clock=can.begins_by_clock,
                        is_asked=name in asked,
                    )
                ),
                *([] if name in used else [f"  {unused}"]),
                *(
                    explain_consistency(policy, config.store)
                    if is_shared and name not in reported
                    else ()
                ),
            )
        ),
    ]


def outline(config: GatewayConfig) -> list[str]:
    """Describe only the routes and their limits: one paragraph each."""
    lines = []
    for route in config.routes:
        lines.append(f"{route.name}: {_requests(route)}.")
        for name in route.policies:
            policy = config.policies[name]
            lines += [f"  {_capital(explain_limit(line))}." for line in policy.limits]
            lines.append(f"  {_excess(policy)}")
        if not route.policies:
            lines.append("  Not limited.")
    return lines


def explain_route(
    route: RouteConfig, config: GatewayConfig, described: dict[str, str]
) -> list[str]:
    """Describe which requests the route takes, and where they go.

    Args:
        route: the route.
        config: the configuration that it is part of.
        described: upstreams that have been described, and at which route; updated.
    """
    upstream = None if route.upstream is None else config.upstreams[route.upstream]
    does = explain_own(route)
    if route.upstream is not None and upstream is not None:
        does = f"go to {_upstream(route.upstream, upstream)}"
    lines = [f"Route {route.name}: {_requests(route)} {does}."]
    if route.policies:
        names = join(route.policies)
        word = "policy" if len(route.policies) == 1 else "policies"
        lines.append(f"  They are limited by {word} {names}.")
    else:
        lines.append("  They are not limited.")
    if route.cost > 1:
        lines.append(f"  Each of them counts as {number(route.cost)}.")
    lines += [f"  {line}" for line in explain_route_access(route)]
    first = described.setdefault(route.upstream or "", route.name)
    is_first = first == route.name
    if upstream is not None:
        if is_first:
            lines.append(f"  {explain_timeouts(upstream)}")
            lines += [f"  {line}" for line in explain_parts(upstream, config.server.workers)]
            lines += [f"  {line}" for line in explain_upstream_tls(upstream)]
        else:
            lines.append(f"  The upstream is described at route {first}.")
        lines += [f"  {line}" for line in explain_websocket(route, upstream)]
    lines += [f"  {line}" for line in explain_changes(route)]
    if upstream is not None:
        if is_first:
            lines += [f"  {line}" for line in explain_choice(upstream)]
        lines += [f"  {line}" for line in explain_retry(retry_of(route, upstream))]
    return lines


def explain_policy(
    name: str,
    policy: PolicyConfig,
    *,
    is_shared: bool,
    by_clock: bool = True,
    is_asked: bool = False,
) -> list[str]:
    """Describe what the policy admits, and what happens to the rest.

    Args:
        name: the policy's name.
        policy: the policy.
        is_shared: whether counts are outside the gateway, in a store that may fail.
        by_clock: whether the store's fixed windows begin with the clock, as in `explain_limit`.
        is_asked: whether only clients of listeners for other systems use it.
    """
    lines = [f"Policy {name}:"]
    lines += [
        f"  {line.text}: {explain_limit(line, by_clock=by_clock, is_asked=is_asked)}."
        for line in policy.limits
    ]
    if policy.throttlex is not None and policy.throttlex.policies == "table":
        lines.append(
            "  If the store's table throttlex_policy has a policy for a key, that one "
            "applies instead."
        )
    if len(policy.limits) > 1:
        lines.append(
            "  A request passes only if all of these limits allow it; otherwise none of "
            "them is spent."
        )
    lines += [f"  {line}" for line in explain_tiers(policy, by_clock=by_clock)]
    lines += [f"  {line}" for line in explain_exceptions(policy)]
    lines += [f"  {line}" for line in explain_costs(policy)]
    lines += [f"  {line}" for line in explain_trial(policy)]
    lines.append("  Requests over the limit are refused." if is_asked else f"  {_excess(policy)}")
    if policy.count_refused:
        lines.append(
            "  Refused requests count as well: a client that does not slow down stays refused."
        )
    missing = _missing(policy)
    if missing and not is_asked:
        lines.append(f"  {missing}")
    if policy.secret:
        lines.append("  Its keys are hashed with key_secret, and are nowhere shown as they are.")
    if is_shared and policy.consistency != "eventual":
        errors = _STORE_ERROR_ASKED if is_asked else _STORE_ERROR
        lines.append(f"  {errors[policy.on_store_error]}")
    if not is_asked:
        lines.append(f"  {_HEADERS[policy.headers]}")
    return lines


# The gateway as a whole.


def _explain_server(config: GatewayConfig) -> Iterator[str]:
    addresses = join([_listener(str(listener)) for listener in config.listen])
    if config.listen:
        yield f"The gateway listens on {addresses}."
    else:
        yield "The gateway serves no HTTP: it has no routes."
    for listener in config.listen:
        yield from explain_listener(listener, _listener(str(listener)))
    yield from _explain_workers(config.server.workers)
    if config.server.workers != 1 and config.server.watchdog is not None:
        watchdog = format_duration(config.server.watchdog)
        yield f"A process that does not respond for {watchdog} is killed and restarted."
    if config.server.watch is not None:
        interval = format_duration(config.server.watch)
        yield (
            f"The files of the configuration are looked at every {interval}, and reloaded when "
            "they have changed."
        )
    if config.admin is None:
        yield "There is no admin listener, so no health checks and no metrics."
    else:
        yield f"Health and metrics are on {_listener(str(config.admin.listen))}."
    if config.ready.needs_store:
        yield "It is not ready while a store is unavailable that any policy or listener needs."
    if config.listen:
        yield from _explain_clients(config)
    yield from explain_tokens(config.jwt)
    server = config.server
    delay = server.shutdown_delay
    taken = f"connections are still accepted for {format_duration(delay)}, then " if delay else ""
    timeout = format_duration(server.shutdown_timeout)
    yield f"On shutdown, {taken}requests in flight have {timeout} to end."
    if any(policy.queue for policy in config.policies.values()):
        yield f"At most {number(server.max_waiting)} requests wait for their turn at a time."
    form = "JSON" if config.log.format == "json" else "text"
    what = "Every request is logged" if config.log.access else "Requests are not logged; events are"
    if not config.listen:
        what = "Events are logged"
    yield f"{what} as {form} to {config.log.output}, events from level {config.log.level}."


def _explain_clients(config: GatewayConfig) -> Iterator[str]:
    """Describe how HTTP clients are identified, and what they may send."""
    if config.trusted_proxies:
        networks = join([str(network) for network in config.trusted_proxies])
        yield f"The client address in X-Forwarded-For is trusted if it comes from {networks}."
    else:
        yield (
            "Clients are identified by the address they connect from; X-Forwarded-For is "
            "not trusted."
        )
    if config.ipv6_prefix < 128:
        yield f"IPv6 clients with the same first {config.ipv6_prefix} bits count as one."
    server = config.server
    body = (
        f"bodies up to {format_size(server.max_body)}" if server.max_body else "bodies of any size"
    )
    yield (
        f"A request may have up to {server.max_headers} header fields of up to "
        f"{format_size(server.max_header_size)} each, sent within "
        f"{format_duration(server.header_timeout)}, and {body}."
    )
    if "max_head_size" in server.model_fields_set:
        yield (
            "The request line and all header fields together may have "
            f"{format_size(server.max_head_size)}."
        )
    if server.methods:
        yield f"Besides the methods of HTTP, clients may use {join(server.methods)}."
    yield (
        f"A client that sends nothing for {format_duration(server.body_timeout)} within a "
        f"body, or for {format_duration(server.keepalive_timeout)} between requests, is "
        "disconnected."
    )
    yield from _explain_connections(server)


def _explain_connections(server: ServerConfig) -> Iterator[str]:
    """Describe settings that differ from the defaults."""
    if "min_rate" in server.model_fields_set:
        if server.min_rate is None:
            yield "However slowly a client sends or reads, it stays connected."
        else:
            rate = format_size(server.min_rate)
            yield f"So is one that sends or reads less than {rate} per second on average."
    if server.max_connections != "auto":
        most = number(server.max_connections)
        yield (
            f"{most} client connections may be open at a time; idle ones are closed to make room."
        )
    if server.max_connections_per_ip is not None:
        most = number(server.max_connections_per_ip)
        yield f"One address may have {most} connections open; trusted proxies are exempt."


def _explain_workers(workers: Literal["auto"] | int) -> Iterator[str]:
    gateways = "each of them counts as a gateway below"
    if workers == "auto":
        yield (f"There is one worker process per usable CPU; {gateways}.")
    elif workers > 1:
        yield f"{workers} worker processes serve requests; {gateways}."


# Routes.


def _requests(route: RouteConfig) -> str:
    what = f"{join(route.methods, 'or')} requests" if route.methods else "requests"
    text = f"{what} for {_path(route.path)}"
    if route.host:
        below = route.host.removeprefix("*.")
        text += f" on {'any host below ' + below if below != route.host else route.host}"
    fields = [
        f"any {name}" if value == "*" else show_field(name, value, getattr(value, "written", value))
        for name, value in route.headers.items()
    ]
    return " ".join([text, *sender_words(route, fields)])


def _path(path: str) -> str:
    if path == "/**":
        return "any path"
    if path.endswith("/**"):
        return f"{path[:-3]} and everything below"
    return path


def _upstream(name: str, upstream: UpstreamConfig) -> str:
    heavy = any(target.weight != 1 for target in upstream.targets)
    targets = [
        f"{target.url} (weight {target.weight})" if heavy else target.url
        for target in upstream.targets
    ]
    return name if targets == [name] else f"{name} ({join(targets)})"


# Policies.


def _excess(policy: PolicyConfig) -> str:
    body = {
        "problem": "a JSON problem document",
        "text": "one line of text",
        "throttlex": "ThrottleX's JSON",
        "none": "no body",
    }.get(policy.on_limit.body, "a custom text")
    refused = f"refused with {policy.on_limit.status} and {body}"
    if policy.on_limit.jitter:
        refused += f", and asked to wait up to {policy.on_limit.jitter} longer than they must"
    if policy.queue is None:
        return f"Requests over the limit are {refused}."
    return (
        f"Requests up to {format_duration(policy.queue.max_wait)} over the limit wait for "
        f"their turn (at most {number(policy.queue.max)} per key); others are {refused}."
    )


def _missing(policy: PolicyConfig) -> str:
    words = [
        # Every path of a route has its parameters.
        word
        for line in policy.limits
        for word in line.per
        if ":" in word and not word.startswith("path:")
    ]
    if not words:
        return ""
    lacking = join([key_word(word) for word in dict.fromkeys(words)], "or")
    return f"A request without {lacking} is {_IF_MISSING[policy.if_missing]}."


_IF_MISSING: Final = {
    "ip": "counted by its client address instead",
    "reject": "answered with 400",
    "unauthorized": "answered with 401, which tells the client to authenticate itself",
    "skip": "not counted",
    "shared": "counted together with all others without it",
}

_STORE_ERROR: Final = {
    "local": "If the store is unavailable, the gateway decides alone, with its share of the limit.",
    "open": "If the store is unavailable, all requests are admitted.",
    "closed": "If the store is unavailable, requests are answered with 503.",
}
_STORE_ERROR_ASKED: Final = {
    **_STORE_ERROR,
    "closed": (
        "If the store is unavailable, clients get an error, or a refusal if the protocol "
        "has no errors."
    ),
}

_HEADERS: Final = {
    "draft": "Responses report what is left in RateLimit and RateLimit-Policy.",
    "legacy": "Responses report what is left in X-RateLimit-Limit, -Remaining and -Reset.",
    "both": "Responses report what is left in RateLimit, RateLimit-Policy and X-RateLimit-*.",
    "throttlex": "Responses report what is left in X-RateLimit-Limit, X-RateLimit-Remaining and "
    "Retry-After.",
    "none": "Responses do not report what is left.",
}


# Words.


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _listener(address: str) -> str:
    if address.startswith("unix:"):
        return f"the socket {address.removeprefix('unix:')}"
    host, _, port = address.rpartition(":")
    where = "all interfaces" if host in {"", "0.0.0.0", "[::]"} else host  # noqa: S104 - shown
    if port == "0":
        return f"{where}, on a port chosen by the system"
    return f"port {port} of {where}"
