"""Compiles conditions on requests: exceptions of policies, and who may use a route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.lists import Member
from gateway.config.models.routes import RouteConfig
from gateway.routing.access import Access
from gateway.routing.conditions import (
    Condition,
    all_of,
    any_of,
    by_certificate,
    by_cookie,
    by_patterns,
    in_any,
    is_preflight,
)
from gateway.routing.lists import AddressList, RequestList
from gateway.routing.networks import NetworkList, NetworkSet

Lists = Mapping[str, RequestList]
"""Lists by name."""


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
    if config.client:
        found.append(in_any(compile_members(config.client, lists)))
    if config.pattern is not None:
        found.append(by_patterns([config.pattern]))
    found += [by_cookie(name, value) for name, value in config.cookies.items()]
    if config.client_cert:
        found.append(by_certificate({str(name): one for name, one in config.client_cert.items()}))
    return all_of(found)


def compile_members(members: Sequence[Member], lists: Lists) -> list[RequestList]:
    """Return networks and names of lists as lists."""
    named = [lists[one] for one in members if isinstance(one, str)]
    networks = NetworkList(one for one in members if not isinstance(one, str))
    return [AddressList(NetworkSet(networks)), *named] if len(networks) else named


def compile_access(config: GatewayConfig, route: RouteConfig, lists: Lists) -> Access | None:
    """Return who may use a route; None if everybody may."""
    denied = compile_members((*config.deny, *route.deny), lists)
    allowed = None if route.allow is None else compile_members(route.allow, lists)
    return Access(denied, allowed) if denied or allowed is not None else None
