"""Counters as Prometheus samples, in pieces small enough for an event loop.

The text is encoded by prometheus-client, a few hundred samples at a time: a gateway of
thousands of routes has a scrape of megabytes, and encoding that at once would hold every
request up. Whoever serves it lets the event loop run between the pieces.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice
from typing import Final, NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.metrics.counters import GatewayMetrics, Histogram, PolicyMetrics
from gateway.metrics.exposition_frontends import of_frontends
from gateway.metrics.exposition_targets import BREAKER_STATES, of_breakers, of_targets

CHILDREN_PER_PIECE: Final = 16
"""Labelled children encoded in one go; as histograms they are some 300 samples, about 2 ms."""

STATUSES: Final = range(100, 600)
"""Statuses with a series of their own; what else an upstream makes up is one: `other`."""

END_OF_OPENMETRICS: Final = b"# EOF\n"

_T = TypeVar("_T")


class Exposition(NamedTuple):
    """What a scrape is answered with; the pieces are made one by one, as they are taken."""

    content_type: str
    pieces: Iterator[bytes]


def expose(metrics: GatewayMetrics, accept: str = "", others: Iterable[Metric] = ()) -> Exposition:
    """All samples as text, in the format that an `Accept` header asks for.

    That is OpenMetrics 1.0 where it is named, and the classic text format otherwise. Families
    from elsewhere, such as those of the process, come first.
    """
    encode, form = choose_encoder(accept)

    def pieces() -> Iterator[bytes]:
        last_name = ""
        for metric in chain(others, _collect(metrics)):
            text = encode(_Single(metric)).removesuffix(END_OF_OPENMETRICS)
            # A family of several pieces has its HELP and TYPE once.
            yield text if metric.name != last_name else _without_head(text)
            last_name = metric.name
        if form.startswith("application/openmetrics-text"):
            yield END_OF_OPENMETRICS

    return Exposition(form, pieces())


def content_type(accept: str) -> str:
    """The format that an `Accept` header asks for."""
    return choose_encoder(accept)[1]


def render(metrics: GatewayMetrics, accept: str = "") -> bytes:
    """All samples as one text, for who has no event loop to keep going."""
    return b"".join(expose(metrics, accept).pieces)


class _Single(Collector):
    """One family, in the shape in which prometheus-client takes it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _without_head(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text


def _slices(children: dict[str, _T]) -> Iterator[list[tuple[str, _T]]]:
    """Children in pieces; a copy, since some may be added between two pieces."""
    items = iter(list(children.items()))
    while piece := list(islice(items, CHILDREN_PER_PIECE)):
        yield piece


def _collect(metrics: GatewayMetrics) -> Iterator[Metric]:
    """Every family, in pieces of the same name where it has many children."""
    yield from _of_gateway(metrics)
    yield from _of_certificates(metrics)
    yield from _of_routes(metrics)
    yield from _of_policies(metrics)
    yield from _of_upstreams(metrics)
    yield from of_breakers(metrics)
    yield from of_targets(metrics)
    yield from _of_websockets(metrics)
    yield from _of_stores(metrics)
    yield from of_frontends(metrics)


def _of_gateway(metrics: GatewayMetrics) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "sluice_build",
        "The gateway's version and the Python it runs on.",
        {"version": metrics.version, "python": platform.python_version()},
    )
    yield GaugeMetricFamily(
        "sluice_start_time_seconds",
        "When this gateway started, in seconds since 1970.",
        metrics.started_us / 1e6,
    )
    yield GaugeMetricFamily(
        "sluice_workers", "Processes of this gateway that serve requests.", metrics.workers
    )
    yield GaugeMetricFamily(
        "sluice_client_connections", "Client connections that are open.", metrics.connections
    )
    refused = CounterMetricFamily(
        "sluice_client_connections_refused",
        "Client connections that were refused, by the limit that was reached.",
        labels=("limit",),
    )
    for limit, count in sorted(metrics.connections_refused.items()):
        refused.add_metric((limit,), count)
    yield refused
    yield CounterMetricFamily(
        "sluice_client_connections_evicted",
        "Client connections that were closed to make room for others.",
        metrics.connections_evicted,
    )
    client_errors = CounterMetricFamily(
        "sluice_client_errors", "Requests that could not be read, by reason.", labels=("kind",)
    )
    for kind, count in sorted(metrics.client_errors.items()):
        client_errors.add_metric((kind,), count)
    yield client_errors
    yield CounterMetricFamily(
        "sluice_clients_left",
        "Clients that left before their answer was complete.",
        metrics.clients_left,
    )
    yield CounterMetricFamily(
        "sluice_log_lines_dropped",
        "Log lines lost to a full disk, or to a reader that is gone or too slow.",
        metrics.log.lines_dropped,
    )


def _of_certificates(metrics: GatewayMetrics) -> Iterator[Metric]:
    for certificates in _slices(metrics.certificates):
        ends = GaugeMetricFamily(
            "sluice_tls_certificate_not_after_seconds",
            "When a certificate ends that clients are shown, in seconds since 1970.",
            labels=("certificate",),
        )
        for name, end_s in certificates:
            ends.add_metric((name,), end_s)
        yield ends


def _of_routes(metrics: GatewayMetrics) -> Iterator[Metric]:
    for routes in _slices(metrics.routes):
        requests = CounterMetricFamily(
            "sluice_requests", "Answered requests.", labels=("route", "status")
        )
        for name, route in routes:
            by_status: dict[str, int] = {}
            for status, count in sorted(route.statuses.items()):
                label = str(status) if status in STATUSES else "other"
                by_status[label] = by_status.get(label, 0) + count
            for label, count in by_status.items():
                requests.add_metric((name, label), count)
        yield requests
    for routes in _slices(metrics.routes):
        duration = HistogramMetricFamily(
            "sluice_request_duration_seconds",
            "From a request's head to the last byte of its answer, waiting included.",
            labels=("route",),
        )
        for name, route in routes:
            _add_histogram(duration, name, route.duration)
        yield duration


def _of_policies(metrics: GatewayMetrics) -> Iterator[Metric]:
    for policies in _slices(metrics.policies):
        decisions = CounterMetricFamily(
            "sluice_decisions",
            "What was decided on requests, by policy.",
            labels=("policy", "decision"),
        )
        for name, policy in policies:
            for decision, count in _decisions(policy):
                decisions.add_metric((name, decision), count)
        yield decisions
    for policies in _slices(metrics.policies):
        waited = CounterMetricFamily(
            "sluice_policy_wait_seconds",
            "Time that delayed requests waited for their turn, all together.",
            labels=("policy",),
        )
        for name, policy in policies:
            waited.add_metric((name,), policy.wait_us / 1e6)
        yield waited
    for policies in _slices(metrics.policies):
        waiting = GaugeMetricFamily(
            "sluice_policy_waiting", "Requests that wait for their turn.", labels=("policy",)
        )
        for name, policy in policies:
            waiting.add_metric((name,), policy.waiting)
        yield waiting


def _decisions(policy: PolicyMetrics) -> tuple[tuple[str, int], ...]:
    return (
        ("pass", policy.passed),
        ("delay", policy.delayed),
        ("refuse", policy.refused),
        ("skip", policy.skipped),
        ("store_error_pass", policy.store_error_passed),
        ("store_error_refuse", policy.store_error_refused),
    )


def _of_upstreams(metrics: GatewayMetrics) -> Iterator[Metric]:
    for upstreams in _slices(metrics.upstreams):
        requests = CounterMetricFamily(
            "sluice_upstream_requests", "Requests sent to an upstream.", labels=("upstream",)
        )
        for name, upstream in upstreams:
            requests.add_metric((name,), upstream.requests)
        yield requests
    for upstreams in _slices(metrics.upstreams):
        errors = CounterMetricFamily(
            "sluice_upstream_errors",
            "Requests that an upstream did not answer as it should, by reason.",
            labels=("upstream", "kind"),
        )
        for name, upstream in upstreams:
            for kind, count in sorted(upstream.errors.items()):
                errors.add_metric((name, kind), count)
        yield errors
    yield from _of_retries(metrics)
    for upstreams in _slices(metrics.upstreams):
        connections = GaugeMetricFamily(
            "sluice_upstream_connections",
            "Connections to an upstream that are open.",
            labels=("upstream",),
        )
        for name, upstream in upstreams:
            connections.add_metric((name,), upstream.connections)
        yield connections
    for upstreams in _slices(metrics.upstreams):
        first_byte = HistogramMetricFamily(
            "sluice_upstream_first_byte_seconds",
            "From sending a request to the first byte of the upstream's answer.",
            labels=("upstream",),
        )
        for name, upstream in upstreams:
            _add_histogram(first_byte, name, upstream.first_byte)
        yield first_byte


def _of_retries(metrics: GatewayMetrics) -> Iterator[Metric]:
    for upstreams in _slices(metrics.upstreams):
        retries = CounterMetricFamily(
            "sluice_upstream_retries",
            "Requests that were sent again, by what went wrong.",
            labels=("upstream", "reason"),
        )
        for name, upstream in upstreams:
            for reason, count in sorted(upstream.retries.items()):
                retries.add_metric((name, reason), count)
        yield retries
    for upstreams in _slices(metrics.upstreams):
        refused = CounterMetricFamily(
            "sluice_upstream_retries_refused",
            "Requests that were not sent again because the budget was spent.",
            labels=("upstream",),
        )
        for name, upstream in upstreams:
            refused.add_metric((name,), upstream.retries_refused)
        yield refused


def _of_websockets(metrics: GatewayMetrics) -> Iterator[Metric]:
    for upstreams in _slices(metrics.upstreams):
        tunnels = GaugeMetricFamily(
            "sluice_upstream_websockets", "WebSockets that are open.", labels=("upstream",)
        )
        for name, upstream in upstreams:
            tunnels.add_metric((name,), upstream.tunnels)
        yield tunnels
    for upstreams in _slices(metrics.upstreams):
        carried = CounterMetricFamily(
            "sluice_upstream_websocket_bytes",
            "Bytes that went through WebSockets, from clients (received) and to them (sent).",
            labels=("upstream", "direction"),
        )
        for name, upstream in upstreams:
            carried.add_metric((name, "received"), upstream.tunnel_received)
            carried.add_metric((name, "sent"), upstream.tunnel_sent)
        yield carried


def _of_stores(metrics: GatewayMetrics) -> Iterator[Metric]:
    """A gateway has a handful of stores at most: no pieces."""
    decisions = CounterMetricFamily(
        "sluice_store_decisions", "Decisions made by a store.", labels=("store",)
    )
    batches = CounterMetricFamily(
        "sluice_store_batches", "Calls to a store that were answered.", labels=("store",)
    )
    errors = CounterMetricFamily(
        "sluice_store_errors", "Calls to a store that failed.", labels=("store", "reason")
    )
    missed = CounterMetricFamily(
        "sluice_store_missed",
        "Decisions that a store should have made beside another one and did not.",
        labels=("store",),
    )
    ready = GaugeMetricFamily(
        "sluice_store_ready", "Whether a store would answer now.", labels=("store",)
    )
    breaker = GaugeMetricFamily(
        "sluice_store_breaker",
        "The circuit breaker before a store: 1 for the state it is in.",
        labels=("store", "state"),
    )
    gateways = GaugeMetricFamily(
        "sluice_store_gateways",
        "Gateways that share a store, this one included, as last seen.",
        labels=("store",),
    )
    duration = HistogramMetricFamily(
        "sluice_store_call_duration_seconds",
        "How long answered calls to a store took.",
        labels=("store",),
    )
    for name, store in list(metrics.stores.items()):
        store.refresh()
        decisions.add_metric((name,), store.decisions)
        batches.add_metric((name,), store.batches)
        for reason, count in sorted(store.errors.items()):
            errors.add_metric((name, reason), count)
        if store.missed is not None:
            missed.add_metric((name,), store.missed)
        ready.add_metric((name,), int(store.is_ready))
        gateways.add_metric((name,), store.gateways)
        for state in BREAKER_STATES:
            breaker.add_metric((name, state), int(store.breaker == state))
        _add_histogram(duration, name, store.duration)
    yield from (decisions, batches, errors, missed, ready, breaker, gateways, duration)


def _add_histogram(family: HistogramMetricFamily, name: str, histogram: Histogram) -> None:
    bounds = (*(str(bound / 1e6) for bound in histogram.bounds_us), "+Inf")
    # Prometheus wants, for each bucket, everything at or below its bound.
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family.add_metric((name,), buckets, histogram.sum_us / 1e6)
