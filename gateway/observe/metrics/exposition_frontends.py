"""Samples of listeners for other systems' clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric

from gateway.observe.metrics.counters import FrontendMetrics, GatewayMetrics
from gateway.observe.metrics.families import (
    Family,
    counted_by,
    counted_by_pair,
    counter,
    gauge,
    pieces_of,
)

_CONNECTIONS: Final[tuple[Family[FrontendMetrics], ...]] = (
    counter(
        "sluice_listener_connections",
        "Connections of a listener's clients.",
        "listener",
        lambda frontend: frontend.connections,
    ),
    gauge(
        "sluice_listener_open_connections",
        "Connections of a listener's clients that are open.",
        "listener",
        lambda frontend: frontend.open_connections,
    ),
)
_FAMILIES: Final[tuple[Family[FrontendMetrics], ...]] = (
    counted_by_pair(
        "sluice_listener_answers",
        "Requests of a listener's clients, by what was asked and what was answered.",
        ("listener", "operation", "answer"),
        lambda frontend: frontend.answers,
    ),
    counted_by(
        "sluice_listener_malformed",
        "What a listener could not read, by reason.",
        ("listener", "kind"),
        lambda frontend: frontend.malformed,
    ),
)
_KEPT: Final[tuple[Family[FrontendMetrics], ...]] = (
    gauge(
        "sluice_listener_records",
        "Records that a listener keeps.",
        "listener",
        lambda frontend: frontend.records or 0,
    ),
    gauge(
        "sluice_listener_record_bytes",
        "The memory of its records.",
        "listener",
        lambda frontend: frontend.record_bytes or 0,
    ),
)


def of_frontends(metrics: GatewayMetrics) -> Iterator[Metric]:
    """Their families, of each listener those that it has something to say of."""
    for frontend in list(metrics.frontends.values()):
        frontend.refresh()
    seeing = {name: one for name, one in metrics.frontends.items() if one.sees_connections}
    yield from pieces_of(seeing, _CONNECTIONS)
    yield from pieces_of(metrics.frontends, _FAMILIES)
    keeping = {name: one for name, one in metrics.frontends.items() if one.records is not None}
    yield from pieces_of(keeping, _KEPT)
