"""What another configuration would change, in sentences, the most important first.

The models are compared, not the texts: a default that is written out is no difference. A limit that
is written in a route is told with the route. What differs in an option is for `options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gateway.config.explaining.explain import explain_route
from gateway.config.explaining.meaning import meant
from gateway.config.explaining.notation import option
from gateway.config.explaining.options import becomes, changed, changed_options
from gateway.config.explaining.same_routes import same_routes
from gateway.config.models.frontends import titles
from gateway.config.models.gateway import (
    GatewayConfig,
    PolicyConfig,
    RouteConfig,
    StoreConfig,
    UpstreamConfig,
)
from gateway.config.models.routes import retry_of
from gateway.config.values.address import is_target
from gateway.config.values.base import Model
from gateway.config.values.store_url import is_same_store, parse_store_url
from gateway.config.values.types import LimitLine
from gateway.config.values.words import join

MAX_NAMES: Final = 8
"""How many names a sentence has at most."""

_SECTIONS: Final = frozenset(
    {"routes", "policies", "upstreams", "listen", "listeners", "store", "domain", "server"}
)
"""Sections that have sentences of their own; others are compared option by option."""
_AT_RESTART: Final = frozenset({"workers"})
"""Options of the server that a reload cannot change."""


def differences(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """Return what differs, in sentences; empty if nothing would change.

    Passwords in URLs, passwords of keys and header fields with credentials are hidden. The values
    of references may be secrets, too: the caller hides those of both configurations.
    """
    others = (name for name in GatewayConfig.model_fields if name not in _SECTIONS)
    restarts = needs_restart(old, new)
    return [
        *_routes(old, new),
        *_policies(old, new),
        *_upstreams(old, new),
        *_listeners(old, new),
        *_store(old, new),
        *_options("server", old.server, new.server, _AT_RESTART),
        *(sentence for name in others for sentence in _section(name, old, new)),
        *(f"{one} A reload is refused: upgrade or restart the gateway." for one in restarts),
    ]


def needs_restart(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """Return what a running gateway cannot take over, in sentences."""
    before, after = old.server, new.server
    without = frozenset(type(before).model_fields) - _AT_RESTART
    return [f"{one}." for one in changed_options(before, after, "server", without)]


# Routes.


def _routes(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    before, after = _by_name(old), _by_name(new)
    same = same_routes(old.routes, new.routes)
    for name, route in before.items():
        if name not in same.values():
            # Another route may have its name now.
            what = f": {_explained(route, old)}" if name in after else "."
            yield f"Route {name} is removed{what}"
    for name, route in after.items():
        if name not in same:
            yield f"Route {name} is new: {_explained(route, new)} {_limited(route, new)}"
    yield from _renamed(same, old, new)
    found = {name: list(_route(before[was], after[name], old, new)) for name, was in same.items()}
    users = _users(new)
    yield from _changed("Route", "Routes", found, lambda name: _shared(users(name)))
    yield from _order(before, {name: after[name] for name, was in same.items() if name == was})


def _explained(route: RouteConfig, config: GatewayConfig) -> str:
    return explain_route(route, config, {})[0].removeprefix(f"Route {route.name}: ")


def _renamed(same: Mapping[str, str], old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    """Yield which routes have other names, and what that means for their own limits."""
    renamed = {was: name for name, was in same.items() if name != was}
    if not renamed:
        return
    before, after = _by_name(old), _by_name(new)
    limited = [
        name
        for was, name in renamed.items()
        if _own(before[was], old) is not None and _own(after[name], new) is not None
    ]
    are = "Routes {} are" if len(renamed) > 1 else "Route {} is"
    yield f"{are.format(_names(list(renamed)))} now called {_names(list(renamed.values()))}."
    if limited:
        limits = "Limits in routes count" if len(limited) > 1 else "The limit in a route counts"
        yield f"{limits} under the name of the route: see {_names(limited)}."


def _by_name(config: GatewayConfig) -> dict[str, RouteConfig]:
    return {route.name: route for route in config.routes}


def _limited(route: RouteConfig, config: GatewayConfig) -> str:
    """Return by what the requests of a route are limited, as a sentence."""
    if not route.policies:
        return "They are not limited."
    policies = [
        _lines(config.policies[name])
        if name == route.name
        else f"policy {name} ({_lines(config.policies[name])})"
        for name in route.policies
    ]
    return f"They are limited by {join(policies)}."


def _lines(policy: PolicyConfig) -> str:
    return join([_line(line) for line in policy.limits])


def _line(line: LimitLine) -> str:
    return option(PolicyConfig, "limits").show((line,))


def _route(
    before: RouteConfig, after: RouteConfig, old: GatewayConfig, new: GatewayConfig
) -> Iterator[str]:
    """Yield what differs in two routes of one name, and in their own limits."""
    yield from changed_options(before, after, "", frozenset({*_INHERITED, "name", "policies"}))
    for name, in_force in _INHERITED.items():
        if _says(before, name) or _says(after, name):
            values = in_force(before, old), in_force(after, new)
            yield from changed(RouteConfig, name, *values, name)
    yield from changed(RouteConfig, "policies", _others(before), _others(after), "policies")
    owns = [_own(route, config) for route, config in ((before, old), (after, new))]
    yield from _limits(*owns)


def _says(route: RouteConfig, name: str) -> bool:
    """Return whether a route has an option that others inherit."""
    return name in route.model_fields_set or getattr(route, name) is not None


def _retry(route: RouteConfig, config: GatewayConfig) -> object:
    return None if route.upstream is None else retry_of(route, config.upstreams[route.upstream])


def _pages(route: RouteConfig, config: GatewayConfig) -> object:
    if not _says(route, "error_pages"):
        return config.error_pages
    own = route.error_pages
    return None if own is None else {**(config.error_pages or {}), **own}


def _max_body(route: RouteConfig, config: GatewayConfig) -> object:
    return (config.server.max_body if route.max_body is None else route.max_body) or 0


_INHERITED: Final[Mapping[str, Callable[[RouteConfig, GatewayConfig], object]]] = {
    "retry": _retry,
    "error_pages": _pages,
    "max_body": _max_body,
}
"""Options that a route has from elsewhere if it does not have them itself, as they apply to it."""


def _others(route: RouteConfig) -> tuple[str, ...]:
    return tuple(name for name in route.policies if name != route.name)


def _own(route: RouteConfig, config: GatewayConfig) -> PolicyConfig | None:
    """Return the policy that is written in a route: it has the route's name."""
    return config.policies[route.name] if route.name in route.policies else None


def _shared(users: str) -> str:
    """Return which others use the limit of a route, as a sentence."""
    return f" The limit also applies to {users}." if users else ""


def _order(before: Mapping[str, RouteConfig], after: Mapping[str, RouteConfig]) -> Iterator[str]:
    """Yield which routes have changed places, of those that are tried in the order of the file."""
    places = {name: index for index, name in enumerate(before)}
    equals: dict[object, list[str]] = {}
    for name, route in after.items():
        if name in places:
            pattern = route.pattern
            segments = pattern.shape.segments, pattern.shape.is_prefix
            equals.setdefault((pattern.site, segments, pattern.specificity), []).append(name)
    for names in equals.values():
        if names != sorted(names, key=places.__getitem__):
            yield f"Routes {_names(names)} are now tried in this order."


# Policies.


def _policies(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    before, after, users = old.policies, new.policies, _users(new)
    written = [(_owned(each), each.policies) for each in (old, new)]
    owned = {
        name
        for name in written[0][0] | written[1][0]
        if all(name in own or name not in policies for own, policies in written)
    }
    names = [name for name in {**before, **after} if name not in owned]
    yield from (f"Policy {name} is removed." for name in names if name not in after)
    for name in names:
        if name in after and name not in before:
            yield f"Policy {name} is new: {_lines(after[name])}.{_applies(users(name))}"
    found = {
        name: list(_limits(before[name], after[name]))
        for name in names
        if name in before and name in after
    }
    yield from _changed("Policy", "Policies", found, lambda name: _applies(users(name)))


def _owned(config: GatewayConfig) -> set[str]:
    return {route.name for route in config.routes if route.name in route.policies}


def _users(config: GatewayConfig) -> Callable[[str], str]:
    """Return a function from the name of a policy to the routes and listeners that use it.

    The route that a limit is written in is not among them.
    """
    routes: dict[str, list[str]] = {}
    for route in config.routes:
        for name in _others(route):
            routes.setdefault(name, []).append(route.name)
    asking: dict[str, list[str]] = {}
    for title, listener in zip(titles(config.listeners), config.listeners, strict=True):
        for name in listener.policies:
            asking.setdefault(name, []).append(title)

    def users(name: str) -> str:
        of_both = ("route", routes.get(name, [])), ("listener", asking.get(name, []))
        return join([text for what, names in of_both for text in _several(what, names)])

    return users


def _several(what: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"{what}{'s' if len(names) > 1 else ''} {_names(names)}"


def _applies(users: str) -> str:
    return f" It applies to {users}." if users else " Nothing uses it."


def _limits(before: PolicyConfig | None, after: PolicyConfig | None) -> Iterator[str]:
    """Yield what differs in the limits of one name, whether in a route or in a policy."""
    if before == after:
        return
    if before is None or after is None:
        if before is not None:
            yield f"limit {_lines(before)} is removed"
        if after is not None:
            yield f"limit {_lines(after)} is added"
        return
    yield from _lines_changed(before, after)
    yield from changed_options(before, after, "", frozenset({"limits"}))


def _lines_changed(before: PolicyConfig, after: PolicyConfig) -> Iterator[str]:
    if before.throttlex is not None and after.throttlex is not None:
        return  # Its numbers are compared by their names.
    old, new = before.limits, after.limits
    known, wanted = [meant(line) for line in old], [meant(line) for line in new]
    gone = [line for line in old if meant(line) not in wanted]
    more = [line for line in new if meant(line) not in known]
    if not gone and not more and known != wanted:
        shown = option(PolicyConfig, "limits").show
        yield becomes("limits", shown(old), shown(new))
    for one, other in _pairs(gone, more):
        gone.remove(one)
        more.remove(other)
        yield f"limit {_line(one)} becomes {_line(other)}"
    yield from (f"limit {_line(one)} is removed" for one in gone)
    yield from (f"limit {_line(one)} is added" for one in more)
    counted = {(line.limit.algorithm, line.per) for line in old}
    kept = [line for line in new if line not in more]
    anew = [_line(line) for line in kept if (line.limit.algorithm, line.per) not in counted]
    if anew:
        whose = "its counts" if len(anew) == len(new) else f"counts of {join(anew)}"
        yield f"{whose} begin anew"


def _pairs(gone: list[LimitLine], more: list[LimitLine]) -> list[tuple[LimitLine, LimitLine]]:
    """Return which limit has become which: those of one key, and then the last of both."""
    rest, found = list(more), []
    for one in gone:
        other = next((each for each in rest if each.per == one.per), None)
        if other is not None:
            rest.remove(other)
            found.append((one, other))
    paired = [one for one, _ in found]
    left = [one for one in gone if one not in paired]
    return [*found, (left[0], rest[0])] if len(left) == len(rest) == 1 else found


# Upstreams and listeners.


def _upstreams(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    before, after = old.upstreams, new.upstreams
    for name, upstream in before.items():
        if name not in after and not _is_plain(name, upstream):
            yield f"Upstream {name} is removed."
    for name, upstream in after.items():
        if name not in before and not _is_plain(name, upstream):
            targets = option(UpstreamConfig, "targets").show(upstream.targets)
            yield f"Upstream {name} is new: {targets}."
    found = {
        name: list(changed_options(before[name], upstream))
        for name, upstream in after.items()
        if name in before
    }
    yield from _changed("Upstream", "Upstreams", found)


def _is_plain(name: str, upstream: UpstreamConfig) -> bool:
    """Return whether an upstream is only a URL in a route, whose sentence has it."""
    usual = {"targets", "timeouts"}
    return is_target(name) and all(
        one in usual or getattr(upstream, one) == info.default
        for one, info in UpstreamConfig.model_fields.items()
    )


def _listeners(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    before, after = _listening(old), _listening(new)
    yield from (f"Listener {name} is removed." for name in before if name not in after)
    for name, (model, _) in after.items():
        if name not in before:
            tls = getattr(model, "tls", None)
            yield f"Listener {name} is new{'' if tls is None else ', with TLS'}."
    found = {
        name: [
            *changed_options(before[name][0], model),
            *([becomes("its name", before[name][1], title)] if before[name][1] != title else ()),
        ]
        for name, (model, title) in after.items()
        if name in before
    }
    yield from _changed("Listener", "Listeners", found)


def _listening(config: GatewayConfig) -> dict[str, tuple[Model, str]]:
    """Return the listeners of every kind, each with its name in metrics, by what a user knows."""
    named = zip(titles(config.listeners), config.listeners, strict=True)
    return {
        **{str(listener.address): (listener, "") for listener in config.listen},
        **{f"{one.kind} at {one.address}": (one, title) for title, one in named},
    }


# The gateway as a whole.


def _store(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    yield from _options("store", old.store, new.store, frozenset({"deadline"}))
    has_workers = 1 not in (old.server.workers, new.server.workers)
    before, after = (_deadline_us(each.store, has_workers=has_workers) for each in (old, new))
    for one in changed(StoreConfig, "deadline", before, after, "store.deadline"):
        yield f"{one}."
    yield from _section("domain", old, new)
    if old.domain != new.domain:
        yield "Counts begin anew: each domain has its own."
    elif not _keeps_counts(old.store, new.store):
        yield "Counts begin anew, unless they are in the new store already."


def _deadline_us(store: StoreConfig, *, has_workers: bool) -> int:
    """Return the deadline in force: workers wait longer for the limiter of their own gateway."""
    is_own = has_workers and store.url.startswith("memory:")
    return store.deadline_of_workers if is_own else store.deadline


def _keeps_counts(old: StoreConfig, new: StoreConfig) -> bool:
    known = [old.url] if old.migrate is None else [old.url, old.migrate.to]
    return any(is_same_store(parse_store_url(url), parse_store_url(new.url)) for url in known)


def _section(name: str, old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    found = changed(GatewayConfig, name, getattr(old, name), getattr(new, name), name)
    return (f"{one}." for one in found)


def _options(
    path: str, old: Model, new: Model, without: frozenset[str] = frozenset()
) -> Iterator[str]:
    return (f"{one}." for one in changed_options(old, new, path, without))


# Sentences.


def _changed(
    what: str,
    several: str,
    found: Mapping[str, list[str]],
    end: Callable[[str], str] = lambda _name: "",
) -> Iterator[str]:
    """Yield a sentence for each change, together for entries that change alike.

    Args:
        what: the kind of entries.
        several: the same for several of them.
        found: what differs in each, by name.
        end: returns the sentence that follows for one of them.
    """
    alike: dict[str, list[str]] = {}
    for name, changes in found.items():
        if changes:
            alike.setdefault("; ".join(changes), []).append(name)
    for text, names in alike.items():
        if len(names) > 1:
            yield f"{several} {_names(names)}: {text}."
        else:
            yield f"{what} {names[0]}: {text}.{end(names[0])}"


def _names(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMES
    return join(names if rest <= 1 else [*names[:MAX_NAMES], f"{rest} more"])
