"""The children of metric families, and their values that are more than one number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from gateway.observe.metrics.counters import (
    GatewayMetrics,
    MemoryMetrics,
    PolicyMetrics,
    TargetMetrics,
)
from gateway.observe.metrics.families import Labels

STATUSES: Final = range(100, 600)
"""Statuses with a series of their own; all others count as `other`."""

BREAKER_STATES: Final = ("closed", "half_open", "open")

T = TypeVar("T")


class KeysInMemory(NamedTuple):
    """The keys of a policy in memory, and its decisions if it decides in this process."""

    counted: MemoryMetrics
    policy: PolicyMetrics | None


def named(
    children: Callable[[GatewayMetrics], Mapping[str, T]],
) -> Callable[[GatewayMetrics], Iterator[tuple[Labels, T]]]:
    """Children identified by their name."""
    return lambda metrics: (((name,), child) for name, child in list(children(metrics).items()))


def targets(metrics: GatewayMetrics) -> Iterator[tuple[Labels, TargetMetrics]]:
    """Yield every target of every upstream."""
    for upstream_name, upstream in list(metrics.upstreams.items()):
        for target_name, target in list(upstream.targets.items()):
            yield (upstream_name, target_name), target


def keys_in_memory(metrics: GatewayMetrics) -> Iterator[tuple[Labels, KeysInMemory]]:
    """Yield every policy whose keys are in memory."""
    for name, memory in list(metrics.memory.items()):
        yield (name,), KeysInMemory(memory, metrics.policies.get(name))


def by_label(statuses: Mapping[int, int]) -> list[tuple[str, int]]:
    """Yield counts of responses by the label of their status."""
    counts: dict[str, int] = {}
    for status, count in statuses.items():
        label = str(status) if status in STATUSES else "other"
        counts[label] = counts.get(label, 0) + count
    return sorted(counts.items())


def states(breaker: str) -> Iterator[tuple[str, int]]:
    """Yield each state of a circuit breaker: 1 for the current one."""
    return ((state, int(breaker == state)) for state in BREAKER_STATES)


def decisions(policy: PolicyMetrics) -> tuple[tuple[str, int], ...]:
    """Yield the decisions; for a policy that was never used, only what dashboards need."""
    most = ("pass", policy.passed), ("refuse", policy.refused)
    if not has_decided(policy):
        return most
    return (
        *most,
        ("delay", policy.delayed),
        ("skip", policy.skipped),
        ("store_error_pass", policy.store_error_passed),
        ("store_error_refuse", policy.store_error_refused),
    )


def has_decided(policy: PolicyMetrics) -> bool:
    """Return whether a policy has been used for a request yet."""
    counts = (
        *(policy.passed, policy.refused, policy.delayed, policy.skipped),
        *(policy.store_error_passed, policy.store_error_refused, policy.waiting),
    )
    return any(counts)


def has_keys(memory: KeysInMemory) -> bool:
    """Return whether a policy has kept keys in memory yet."""
    # Once shown, a series stays, although keys come and go.
    return bool(memory.counted.keys) or memory.policy is None or has_decided(memory.policy)
