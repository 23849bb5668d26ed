"""The kinds of things that are counted, and what is shown of one where it is more than a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from gateway.observe.metrics.counters import (
    FrontendMetrics,
    GatewayMetrics,
    LogMetrics,
    MemoryMetrics,
    PolicyMetrics,
    RouteMetrics,
    StoreMetrics,
    TargetMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.families import BREAKER_STATES, ChildKind, Labels

STATUSES: Final = range(100, 600)
"""Statuses with a series of their own; all others count as `other`."""

T = TypeVar("T")


def _named(
    children: Callable[[GatewayMetrics], Mapping[str, T]],
) -> Callable[[GatewayMetrics], Iterator[tuple[Labels, T]]]:
    """Children identified by their name."""
    return lambda metrics: (((name,), child) for name, child in list(children(metrics).items()))


def _targets(metrics: GatewayMetrics) -> Iterator[tuple[Labels, TargetMetrics]]:
    for upstream_name, upstream in list(metrics.upstreams.items()):
        for target_name, target in list(upstream.targets.items()):
            yield (upstream_name, target_name), target


GATEWAY: Final = ChildKind[GatewayMetrics](
    "gateway", (), lambda metrics: (((), metrics),), lambda metrics: metrics
)
LOG: Final = ChildKind[LogMetrics](
    "log", (), lambda metrics: (((), metrics.log),), lambda metrics: metrics.log
)
ROUTES: Final = ChildKind[RouteMetrics](
    "route",
    ("route",),
    _named(lambda metrics: metrics.routes),
    GatewayMetrics.route,
)
POLICIES: Final = ChildKind[PolicyMetrics](
    "policy", ("policy",), _named(lambda metrics: metrics.policies), GatewayMetrics.policy
)
UPSTREAMS: Final = ChildKind[UpstreamMetrics](
    "upstream",
    ("upstream",),
    _named(lambda metrics: metrics.upstreams),
    GatewayMetrics.upstream,
    refresh=lambda of: of.refresh(),
)
TARGETS: Final = ChildKind[TargetMetrics](
    "target",
    ("upstream", "target"),
    _targets,
    lambda metrics, upstream, target: metrics.upstream(upstream).target(target),
)
STORES: Final = ChildKind[StoreMetrics](
    "store",
    ("store",),
    _named(lambda metrics: metrics.stores),
    GatewayMetrics.store,
    refresh=lambda of: of.refresh(),
)
MEMORY: Final = ChildKind[MemoryMetrics](
    "memory", ("policy",), _named(lambda metrics: metrics.memory), GatewayMetrics.keys_of
)
LISTENERS: Final = ChildKind[FrontendMetrics](
    "listener",
    ("listener",),
    _named(lambda metrics: metrics.frontends),
    GatewayMetrics.frontend,
    refresh=lambda of: of.refreshed(),
)


def by_label(statuses: Mapping[int, int]) -> list[tuple[str, int]]:
    """Yield counts of responses by the label of their status."""
    counts: dict[str, int] = {}
    for status, count in statuses.items():
        label = str(status) if status in STATUSES else "other"
        counts[label] = counts.get(label, 0) + count
    return sorted(counts.items())


def reloads(results: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield both results, also before the first reload: alerts need them."""
    return ((result, results.get(result, 0)) for result in ("applied", "failed"))


def states(breaker: str) -> Iterator[tuple[str, int]]:
    """Yield each state of a circuit breaker: 1 for the current one."""
    return ((state, int(breaker == state)) for state in BREAKER_STATES)


def decisions(policy: PolicyMetrics) -> tuple[tuple[str, int], ...]:
    """Yield the decisions; for a policy that was never used, only what dashboards need."""
    most = ("pass", policy.passed), ("refuse", policy.refused)
    if not has_decided(policy):
        return most
    shadow = (
        ("shadow_pass", policy.shadow_passed),
        ("shadow_delay", policy.shadow_delayed),
        ("shadow_refuse", policy.shadow_refused),
    )
    return (
        *most,
        ("delay", policy.delayed),
        ("skip", policy.skipped),
        ("store_error_pass", policy.store_error_passed),
        ("store_error_refuse", policy.store_error_refused),
        *(shadow if any(count for _, count in shadow) else ()),
    )


def has_decided(policy: PolicyMetrics) -> bool:
    """Return whether a policy has been used for a request yet."""
    counts = (
        *(policy.passed, policy.refused, policy.delayed, policy.skipped),
        *(policy.store_error_passed, policy.store_error_refused, policy.waiting),
        *(policy.shadow_passed, policy.shadow_delayed, policy.shadow_refused),
    )
    return any(counts)


def has_settled(policy: PolicyMetrics) -> bool:
    """Return whether anything was counted or given back after a request had ended."""
    return any((policy.debited, policy.returned, policy.unsettled, policy.uncounted))


def has_keys(memory: MemoryMetrics, metrics: GatewayMetrics, labels: Labels) -> bool:
    """Return whether a policy has kept keys in memory yet."""
    policy = metrics.policies.get(labels[0])
    # Once shown, a series stays, although keys come and go.
    return bool(memory.keys) or policy is None or has_decided(policy)
