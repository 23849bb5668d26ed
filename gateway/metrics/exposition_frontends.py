"""Samples of listeners for other systems' clients: a handful at most, so in no pieces."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gateway.metrics.counters import GatewayMetrics


def of_frontends(metrics: GatewayMetrics) -> Iterator[Metric]:
    """Their families; none for a gateway that has no such listener."""
    frontends = list(metrics.frontends.items())
    if not frontends:
        return
    connections = CounterMetricFamily(
        "sluice_listener_connections", "Connections of a listener's clients.", labels=("listener",)
    )
    still_open = GaugeMetricFamily(
        "sluice_listener_open_connections",
        "Connections of a listener's clients that are open.",
        labels=("listener",),
    )
    answers = CounterMetricFamily(
        "sluice_listener_answers",
        "Requests of a listener's clients, by what was asked and what was answered.",
        labels=("listener", "operation", "answer"),
    )
    malformed = CounterMetricFamily(
        "sluice_listener_malformed",
        "What a listener could not read, by reason.",
        labels=("listener", "kind"),
    )
    records = GaugeMetricFamily(
        "sluice_listener_records", "Records that a listener keeps.", labels=("listener",)
    )
    memory = GaugeMetricFamily(
        "sluice_listener_record_bytes", "The memory of its records.", labels=("listener",)
    )
    for name, frontend in frontends:
        frontend.refresh()
        connections.add_metric((name,), frontend.connections)
        still_open.add_metric((name,), frontend.open_connections)
        for (operation, answer), count in sorted(frontend.answers.items()):
            answers.add_metric((name, operation, answer), count)
        for kind, count in sorted(frontend.malformed.items()):
            malformed.add_metric((name, kind), count)
        if frontend.records is not None:
            records.add_metric((name,), frontend.records)
        if frontend.record_bytes is not None:
            memory.add_metric((name,), frontend.record_bytes)
    yield from (connections, still_open, answers, malformed, records, memory)
