"""Compiles conditions on requests: of exceptions and routes, and who may use a route."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.routes import RouteConfig
from gateway.routing.access import Access
from gateway.routing.conditions import (
    all_of,
    any_of,
    by_patterns,
    by_sender,
    is_preflight,
)
from gateway.routing.lists import Lists, compile_members
from gateway.routing.request_view import Condition
from gateway.routing.sender import ANYONE, Sender


def compile_exceptions(exceptions: Sequence[ConditionConfig], lists: Lists) -> Condition:
    """Return the condition that one of several exceptions applies.

    Args:
        exceptions: as configured; at least one.
        lists: the lists that they name.
    """
    # A table of routes looks at many patterns as fast as at one.
    plain = [one for one in exceptions if one.is_pattern]
    patterns = [one.pattern for one in plain if one.pattern is not None]
    others = [_compile(one, lists) for one in exceptions if not one.is_pattern]
    return any_of([*others, by_patterns(patterns)] if patterns else others)


def _compile(config: ConditionConfig, lists: Lists) -> Condition:
    found: list[Condition] = []
    if config.preflight:
        found.append(is_preflight)
    if config.pattern is not None:
        found.append(by_patterns([config.pattern]))
    if config.sender != ANYONE:
        found.append(by_sender(config.sender, lists))
    return all_of(found)


def compile_senders(routes: Sequence[RouteConfig], lists: Lists) -> dict[Sender, Condition]:
    """Return what routes require of clients, compiled."""
    senders = {route.pattern.sender for route in routes} - {ANYONE}
    return {sender: by_sender(sender, lists) for sender in senders}


def compile_access(config: GatewayConfig, route: RouteConfig, lists: Lists) -> Access | None:
    """Return who may use a route; None if everybody may."""
    denied = compile_members((*config.deny, *route.deny), lists)
    allowed = None if route.allow is None else compile_members(route.allow, lists)
    return Access(denied, allowed) if denied or allowed is not None else None
