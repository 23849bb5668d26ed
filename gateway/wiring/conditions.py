"""Compiles conditions on requests, of policies and routes, and who may use a route."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.models.routes import RouteConfig
from gateway.routing.access import Access
from gateway.routing.conditions import (
    all_of,
    any_of,
    by_patterns,
    by_sender,
    is_preflight,
    may_be_preflight,
)
from gateway.routing.lists import Lists, compile_members
from gateway.routing.request_view import Condition
from gateway.routing.sender import ANYONE, Sender


def compile_exempt(policy: PolicyConfig, lists: Lists) -> Condition | None:
    """Return which requests a policy does not count; None if it counts all.

    Args:
        policy: as configured.
        lists: the lists that it names.
    """
    is_other = compile_others(policy, lists)
    if not policy.exceptions:
        return is_other
    is_exception = _any(policy.exceptions, lists)
    return is_exception if is_other is None else any_of([is_other, is_exception])


def compile_others(policy: PolicyConfig, lists: Lists) -> Condition | None:
    """Return which requests are none of those that `only` names; None without it."""
    if not policy.only:
        return None
    # What may be one of them is counted.
    is_meant = _any(policy.only, lists, in_doubt=True)
    return lambda request: not is_meant(request)


def _any(configs: Sequence[ConditionConfig], lists: Lists, *, in_doubt: bool = False) -> Condition:
    """Return the condition that one of several holds; there is at least one."""
    # A table of routes looks at many patterns as fast as at one.
    plain = [one for one in configs if one.is_pattern]
    patterns = [one.pattern for one in plain if one.pattern is not None]
    found = [_all(one, lists, in_doubt=in_doubt) for one in configs if not one.is_pattern]
    if patterns:
        found.append(by_patterns(patterns, in_doubt=in_doubt))
    return any_of(found)


def _all(config: ConditionConfig, lists: Lists, *, in_doubt: bool) -> Condition:
    found: list[Condition] = []
    if config.preflight:
        found.append(may_be_preflight if in_doubt else is_preflight)
    if config.pattern is not None:
        found.append(by_patterns([config.pattern], in_doubt=in_doubt))
    if config.sender != ANYONE:
        found.append(by_sender(config.sender, lists, in_doubt=in_doubt))
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
