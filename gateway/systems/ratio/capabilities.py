"""Policies that a ratio server supports: one sliding window, which counts refused requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.capabilities import CapabilityChecks
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import Finding, Path
from gateway.config.values.store_url import parse_store_url
from gateway.stores.urls import StoreUrl

_ALGORITHM: Final = "sliding_window_log"
_MIGRATE_TO: Final = ("store", "migrate", "to")


def _unsupported(_: StoreUrl, policy: PolicyConfig) -> Iterator[Finding]:
    """Yield what a ratio server does not support in a policy; paths begin below the policy."""
    if len(policy.limits) > 1:
        message = (
            "a ratio server checks one limit at a time, so it cannot enforce several as a whole"
        )
        yield Finding(("limits",), message, "use one limit, or another kind of store")
    for index, line in enumerate(policy.limits):
        limit = line.limit
        if limit.algorithm != _ALGORITHM or not limit.count_refused:
            kind = limit.algorithm
            if kind == _ALGORITHM:
                kind += " without count_refused"
            message = (
                f"a ratio server has a sliding window that counts refused requests, not {kind}"
            )
            hint = (
                f"set algorithm: {_ALGORITHM} and count_refused: true, or use another kind of store"
            )
            if limit.algorithm == "concurrency":
                hint = "use another kind of store"
            yield Finding(("limits", index), message, hint)


def _unfit(config: GatewayConfig) -> Iterator[Finding]:
    yield from _not_together(config)
    yield from _not_shared(config)


def _not_together(config: GatewayConfig) -> Iterator[Finding]:
    """Yield combinations of limits that a ratio server cannot spend or undo as a whole."""
    if parse_store_url(config.store.url).kind == "ratio":
        for index, route in enumerate(config.routes):
            yield from _not_one(route.policies, ("routes", index))
        yield from _callers_not_together(config.listeners)
    migrate = config.store.migrate
    if migrate is not None:
        for url, path in ((config.store.url, ("store", "url")), (migrate.to, _MIGRATE_TO)):
            if parse_store_url(url).kind == "ratio":
                message = "counts can only move between stores that can undo a decision"
                hint = "a ratio server cannot: change the store without migrate"
                yield Finding(path, message, hint)


def _not_shared(config: GatewayConfig) -> Iterator[Finding]:
    """Yield why the counts of a policy cannot be shared with a ratio server in its Redis."""
    name = parse_store_url(config.store.url).options.get("ratio", "")
    if not name:
        return
    policy = config.policies.get(name)
    if policy is None:
        message = f"there is no policy {name!r} whose counts a ratio server could share"
        yield Finding(("store", "url"), message, f"such as {next(iter(config.policies), 'ratio')}")
        return
    (line, *more) = policy.limits
    is_whole = line.per == ("ip",) and line.limit.algorithm == _ALGORITHM and not more
    if not is_whole or policy.queue is not None or policy.consistency != "strict":
        message = "ratio counts each owner with each resource, in one strict sliding window"
        hint = f"one limit without per, algorithm: {_ALGORITHM}, and no queue"
        yield Finding(("policies", name), message, hint)
    callers = {one for each in config.listeners if each.ratio is not None for one in each.policies}
    if name not in callers or any(name in route.policies for route in config.routes):
        message = "a policy shared with ratio may be used only by listeners with ratio's protocol"
        yield Finding(("policies", name), message, "use another policy for the others")


def _callers_not_together(listeners: tuple[FrontendConfig, ...]) -> Iterator[Finding]:
    for index, listener in enumerate(listeners):
        if listener.ratio is not None:
            place: Path = ("listeners", index, "ratio")
            yield from _not_one(listener.ratio.policies, place)
            for number, rule in enumerate(listener.ratio.rules):
                yield from _not_one(rule.policies, (*place, "rules", number))


def _not_one(policies: tuple[str, ...], place: Path) -> Iterator[Finding]:
    if len(policies) > 1:
        message = "a ratio server checks one limit at a time, so it cannot enforce "
        message += f"{', '.join(policies)} as a whole"
        yield Finding((*place, "policies"), message, "use one policy, or another kind of store")


CHECKS: Final = CapabilityChecks(_unfit, _unsupported)
