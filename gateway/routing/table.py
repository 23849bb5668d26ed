"""Which route a request takes: host, path, method and further conditions, the most specific first.

The order: an exact host comes before `*.example.com` (the longer one first), and that before no
host; an exact path before one with parameters, that before the longest prefix; a route that names
methods before one that does not; more further conditions before fewer; and routes that are still
equal are tried in the order of the file. A route whose conditions are not met is skipped, and the
next one is tried. A route for `GET` also matches `HEAD`, unless another route with the same
host and path names `HEAD`: upstreams run the same code for both, so one must not bypass the limits
of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from gateway.base.errors import BadRequestError
from gateway.routing.fields import Fields
from gateway.routing.host import normal_host
from gateway.routing.path import canonical_path, readings
from gateway.routing.path_index import PathIndex
from gateway.routing.pattern import Pattern, shadowed
from gateway.routing.request_view import Condition, RequestView
from gateway.routing.sender import ANYONE, Sender
from gateway.routing.wildcard import compile_value

__all__ = ["Pattern", "RouteTable", "normal_host", "shadowed"]

T = TypeVar("T")

NO_SENDERS: Final[Mapping[Sender, Condition]] = MappingProxyType({})


class _Requirement(Generic[T]):
    """What a route requires besides host and path; without methods, any method matches."""

    __slots__ = ("condition", "headers", "methods", "target")

    def __init__(
        self, pattern: Pattern, target: T, condition: Condition | None, *, is_head_named: bool
    ) -> None:
        self.methods = frozenset(pattern.methods)
        if "GET" in self.methods and not is_head_named:
            self.methods |= {"HEAD"}
        self.headers = tuple(
            (name.lower(), compile_value(value)) for name, value in pattern.headers
        )
        self.condition = condition
        self.target = target

    def is_met(self, headers: Fields, request: RequestView | None) -> bool:
        """Return whether all but the method is as required; arguments as in `RouteTable.match`."""
        condition = self.condition
        # First, since header fields of requests for other routes may have any values.
        if condition is not None and (request is None or not condition(request)):
            return False
        return not self.headers or _fit(self.headers, headers)


class RouteTable(Generic[T]):
    """All routes, compiled. Immutable.

    Args:
        entries: patterns and their targets, in the order of the file.
        senders: the conditions of senders, compiled. A pattern with others matches no request.

    Attributes:
        has_conditions: whether any route has further conditions; if not, host, method and path
            alone decide.
    """

    __slots__ = ("_anywhere", "_hosts", "_wildcards", "has_conditions")

    def __init__(
        self,
        entries: Sequence[tuple[Pattern, T]],
        senders: Mapping[Sender, Condition] = NO_SENDERS,
    ) -> None:
        self.has_conditions = any(one.headers or one.sender != ANYONE for one, _ in entries)
        heads = {(each.site, each.shape) for each, _ in entries if "HEAD" in each.methods}
        sites: dict[str, list[tuple[Pattern, _Requirement[T]]]] = {}
        for pattern, target in sorted(entries, key=lambda entry: entry[0].specificity):
            is_head_named = (pattern.site, pattern.shape) in heads
            sender = pattern.sender
            condition = senders.get(sender, _never) if sender != ANYONE else None
            rule = _Requirement(pattern, target, condition, is_head_named=is_head_named)
            sites.setdefault(pattern.site, []).append((pattern, rule))
        indexes = {
            site: PathIndex([(pattern.shape, rule) for pattern, rule in group])
            for site, group in sites.items()
        }
        # Each host knows all its fallbacks: itself, wildcards, routes for any host.
        chains = {
            site: tuple(indexes[name] for name in _widening(site) if name in indexes)
            for site in indexes
        }
        self._anywhere = chains.pop("", ())
        self._wildcards = {site: to for site, to in chains.items() if site.startswith(".")}
        self._hosts = {site: to for site, to in chains.items() if not site.startswith(".")}

    def find(
        self,
        host: str,
        raw_path: str,
        method: str,
        headers: Fields,
        request: RequestView | None = None,
    ) -> T | None:
        """Return the route of a request, given its path as it was sent.

        Other arguments as in `match`.

        Raises:
            BadRequestError: the path must not be forwarded, or upstreams could read it in ways that
                belong to different routes (see `gateway.routing.path`), or a header that routes
                depend on has several values.
        """
        seen = readings(raw_path)
        target = self.match(host, seen[0], method, headers, request)
        if len(seen) > 1:
            # None is a route too: one without a target, or, in a middleware, one without limits.
            for path in seen:
                if self.match(host, path, method, headers, request) is not target:
                    raise BadRequestError(
                        "The path can be read as that of different routes", kind="path"
                    )
        return target

    def match(
        self,
        host: str,
        path: str,
        method: str,
        headers: Fields,
        request: RequestView | None = None,
    ) -> T | None:
        """Return the target of the most specific matching pattern, or None.

        Args:
            host: in normal form.
            path: in canonical form.
            method: as sent.
            headers: the header fields.
            request: the whole request, for conditions on its sender; without it, none is met.
        """
        for index in self._chain(host):
            for rule in index.candidates(path):
                if (not rule.methods or method in rule.methods) and (
                    # Nearly all have no conditions, and a call costs as much as the rest.
                    (not rule.headers and rule.condition is None) or rule.is_met(headers, request)
                ):
                    return rule.target
        return None

    def methods(
        self, host: str, path: str, headers: Fields, request: RequestView | None = None
    ) -> frozenset[str]:
        """Return the methods with which `match` would have found a route, for `Allow`.

        Empty if there is none; meaningful only if `match` or `find` returned None. Arguments as in
        `match`; the path may also be as it was sent.
        """
        path = canonical_path(path)
        return frozenset().union(
            *(
                rule.methods
                for index in self._chain(host)
                for rule in index.candidates(path)
                if rule.is_met(headers, request)
            )
        )

    def _chain(self, host: str) -> tuple[PathIndex[_Requirement[T]], ...]:
        """Return the indexes to search, in order."""
        chain = self._hosts.get(host)
        if chain is not None:
            return chain
        if self._wildcards:
            for site in _widening(host):
                chain = self._wildcards.get(site)
                if chain is not None:
                    return chain
        return self._anywhere


def _widening(site: str) -> Iterator[str]:
    """Yield the sites that cover `a.b.c`, narrowest first: itself, `.b.c`, `.c` and any host."""
    yield site
    dot = site.find(".", 1)
    while dot >= 0:
        yield site[dot:]
        dot = site.find(".", dot + 1)
    if site:
        yield ""


def _never(_request: RequestView) -> bool:
    return False


def _fit(conditions: tuple[tuple[str, Callable[[str], bool]], ...], headers: Fields) -> bool:
    for name, is_meant in conditions:
        lines = headers.getall(name, ())
        if not any(map(is_meant, lines)):
            return False
        if not all(map(is_meant, lines)):
            # One upstream uses the first value and another the last: the request could belong to
            # either route.
            raise BadRequestError(
                f"The request has several values of a header that its route depends on: {name}",
                kind="key",
            )
    return True
