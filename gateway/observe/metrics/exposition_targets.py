"""The samples of targets that upstreams choose from, and of the breakers before upstreams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gateway.observe.metrics.counters import GatewayMetrics, TargetMetrics, UpstreamMetrics
from gateway.observe.metrics.families import in_pieces

TARGETS_PER_PIECE: Final = 128
"""Encoded in one go: each is one sample or two."""

BREAKER_STATES: Final = ("closed", "half_open", "open")

_LABELS: Final = ("upstream", "target")

_Families = tuple[
    tuple[
        type[CounterMetricFamily] | type[GaugeMetricFamily],
        str,
        str,
        Callable[[TargetMetrics], int],
    ],
    ...,
]
_FAMILIES: Final[_Families] = (
    (
        CounterMetricFamily,
        "sluice_target_requests",
        "Tries that a target was chosen for.",
        lambda target: target.requests,
    ),
    (
        CounterMetricFamily,
        "sluice_target_ejections",
        "How often a target was left out for failures.",
        lambda target: target.ejections,
    ),
    (
        CounterMetricFamily,
        "sluice_target_checks",
        "Health checks of a target.",
        lambda target: target.checks,
    ),
    (
        CounterMetricFamily,
        "sluice_target_checks_failed",
        "Health checks that a target did not pass.",
        lambda target: target.checks_failed,
    ),
    (
        GaugeMetricFamily,
        "sluice_target_healthy",
        "Whether health checks find a target well; 1 without checks.",
        lambda target: int(target.is_healthy),
    ),
    (
        GaugeMetricFamily,
        "sluice_target_ejected",
        "Whether a target is left out for failures.",
        lambda target: int(target.is_ejected),
    ),
)


def of_targets(metrics: GatewayMetrics) -> Iterator[Metric]:
    """Every family, in pieces of the same name where it has many children."""
    for kind, name, text, value in _FAMILIES:
        children = _targets(metrics)
        while piece := list(islice(children, TARGETS_PER_PIECE)):
            family = kind(name, text, labels=_LABELS)
            for upstream_name, target_name, target in piece:
                family.add_metric((upstream_name, target_name), value(target))
            yield family


def _targets(metrics: GatewayMetrics) -> Iterator[tuple[str, str, TargetMetrics]]:
    """All targets; copies, since some may be added between two pieces."""
    for upstream_name, upstream in list(metrics.upstreams.items()):
        for target_name, target in list(upstream.targets.items()):
            yield upstream_name, target_name, target


def of_breakers(metrics: GatewayMetrics) -> Iterator[Metric]:
    """The state of each breaker that there is."""

    def empty() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "sluice_upstream_breaker",
            "The circuit breaker before an upstream: 1 for the state it is in.",
            labels=("upstream", "state"),
        )

    def add(piece: GaugeMetricFamily, name: str, upstream: UpstreamMetrics) -> None:
        for state in BREAKER_STATES:
            piece.add_metric((name, state), int(upstream.breaker == state))

    having = [(name, one) for name, one in metrics.upstreams.items() if one.breaker]
    yield from in_pieces(having, empty, add)
