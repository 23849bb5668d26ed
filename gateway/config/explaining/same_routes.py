"""Which route of a configuration is which of another: by what it matches, and then by its name.

A route without a name of its own is called after its path and its position among those of the path,
so one that is added or removed before it changes its name. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.config.models.gateway import RouteConfig


def same_routes(old: Sequence[RouteConfig], new: Sequence[RouteConfig]) -> dict[str, str]:
    """Return the name of each route that there was before, and its name there."""
    found: dict[str, str] = {}
    for key in _KEYS:
        taken = set(found.values())
        left: dict[object, list[str]] = {}
        for route in old:
            if route.name not in taken:
                left.setdefault(key(route), []).append(route.name)
        for route in new:
            if route.name not in found and left.get(key(route)):
                found[route.name] = left[key(route)].pop(0)
    return {route.name: found[route.name] for route in new if route.name in found}


def _requests(route: RouteConfig) -> object:
    """Return what a route matches."""
    host = None if route.host is None else str(route.host).lower()
    values = (route.headers, route.cookies, route.client_cert)
    required = [frozenset(each.items()) for each in values]
    return host, route.path, frozenset(route.methods), frozenset(route.client), *required


_KEYS: Final[Sequence[Callable[[RouteConfig], object]]] = (
    lambda route: (route.name, _requests(route)),
    _requests,
    lambda route: route.name,
)
"""What two routes must have in common, the surest first."""
