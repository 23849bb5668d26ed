"""What a scrape shows children of, and what it says of one where that is more than a number."""

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
"""Statuses with a series of their own; what else an upstream makes up is one: `other`."""

BREAKER_STATES: Final = ("closed", "half_open", "open")

T = TypeVar("T")


class KeysInMemory(NamedTuple):
    """The keys of a policy in memory, and its decisions if it decides here."""

    counted: MemoryMetrics
    policy: PolicyMetrics | None


def named(
    children: Callable[[GatewayMetrics], Mapping[str, T]],
) -> Callable[[GatewayMetrics], Iterator[tuple[Labels, T]]]:
    """Children that are told apart by their name."""
    return lambda metrics: (((name,), child) for name, child in list(children(metrics).items()))


def targets(metrics: GatewayMetrics) -> Iterator[tuple[Labels, TargetMetrics]]:
    """Every target of every upstream."""
    for upstream_name, upstream in list(metrics.upstreams.items()):
        for target_name, target in list(upstream.targets.items()):
            yield (upstream_name, target_name), target


def keys_in_memory(metrics: GatewayMetrics) -> Iterator[tuple[Labels, KeysInMemory]]:
    """Every policy whose keys are in memory."""
    for name, memory in list(metrics.memory.items()):
        yield (name,), KeysInMemory(memory, metrics.policies.get(name))


def by_label(statuses: Mapping[int, int]) -> list[tuple[str, int]]:
    """Counts of answers by the label of their status."""
    counts: dict[str, int] = {}
    for status, count in statuses.items():
        label = str(status) if status in STATUSES else "other"
        counts[label] = counts.get(label, 0) + count
    return sorted(counts.items())


def states(breaker: str) -> Iterator[tuple[str, int]]:
    """Each state of a circuit breaker: 1 for the one it is in."""
    return ((state, int(breaker == state)) for state in BREAKER_STATES)


def decisions(policy: PolicyMetrics) -> tuple[tuple[str, int], ...]:
    """What was decided; of a policy that was not asked yet no more than a dashboard needs."""
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
    """Whether a policy has been asked about a request yet."""
    counts = (
        *(policy.passed, policy.refused, policy.delayed, policy.skipped),
        *(policy.store_error_passed, policy.store_error_refused, policy.waiting),
    )
    return any(counts)


def has_keys(memory: KeysInMemory) -> bool:
    """Whether a policy has kept keys in memory yet."""
    # Keys come and go; what is there stays there.
    return bool(memory.counted.keys) or memory.policy is None or has_decided(memory.policy)
