"""Counters as Prometheus samples, in pieces small enough for an event loop.

The text is encoded by prometheus-client, a few hundred samples at a time: a gateway of
thousands of routes has a scrape of megabytes, and encoding that at once would hold every
request up. Whoever serves it lets the event loop run between the pieces.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.observe.metrics.counters import (
    GatewayMetrics,
    MemoryMetrics,
    PolicyMetrics,
    RouteMetrics,
    StoreMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.exposition_frontends import of_frontends
from gateway.observe.metrics.exposition_targets import BREAKER_STATES, of_breakers, of_targets
from gateway.observe.metrics.families import (
    CHILDREN_PER_PIECE,
    Family,
    counted_by,
    counted_by_pair,
    counter,
    gauge,
    histograms,
    once,
    pieces_of,
)

STATUSES: Final = range(100, 600)
"""Statuses with a series of their own; what else an upstream makes up is one: `other`."""

END_OF_OPENMETRICS: Final = b"# EOF\n"


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
            if metric is None:
                yield b""
                continue
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


def _collect(metrics: GatewayMetrics) -> Iterator[Metric | None]:
    """Every family, in pieces of the same name where it has many children; None to pause."""
    yield from _of_gateway(metrics)
    yield from _refreshed(metrics)
    yield from pieces_of(metrics.certificates, _CERTIFICATES)
    yield from pieces_of(metrics.routes, _ROUTES)
    yield from histograms(
        metrics.routes,
        "sluice_request_duration_seconds",
        "From a request's head to the last byte of its answer, waiting included.",
        "route",
        lambda route: route.duration,
    )
    yield from pieces_of(metrics.policies, _POLICIES)
    yield from pieces_of(metrics.policies, [once(_may_wait, one) for one in _WAITS])
    yield from pieces_of(metrics.upstreams, _ASKED)
    yield from pieces_of(metrics.upstreams, [once(_is_in_use, one) for one in _UPSTREAMS])
    yield from histograms(
        metrics.upstreams,
        "sluice_upstream_first_byte_seconds",
        "From sending a request to the first byte of the upstream's answer.",
        "upstream",
        lambda upstream: upstream.first_byte,
    )
    yield from of_breakers(metrics)
    yield from of_targets(metrics)
    yield from pieces_of(metrics.upstreams, [once(_has_tunnels, one) for one in _WEBSOCKETS])
    for store in list(metrics.stores.values()):
        store.refresh()
    yield from pieces_of(metrics.stores, _STORES)
    yield from histograms(
        metrics.stores,
        "sluice_store_call_duration_seconds",
        "How long answered calls to a store took.",
        "store",
        lambda store: store.duration,
    )
    policies = metrics.policies

    def has_keys(name: str, memory: MemoryMetrics) -> bool:
        # Keys come and go; what is there stays there.
        policy = policies.get(name)
        return bool(memory.keys) or policy is None or _has_decided(policy)

    yield from pieces_of(metrics.memory, [once(has_keys, one) for one in _MEMORY])
    yield from of_frontends(metrics)


def _refreshed(metrics: GatewayMetrics) -> Iterator[None]:
    """What changes with time is made to be of now, with pauses."""
    for place, upstream in enumerate(list(metrics.upstreams.values()), start=1):
        upstream.refresh()
        if place % CHILDREN_PER_PIECE == 0:
            yield None


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


_CERTIFICATES: Final[tuple[Family[int], ...]] = (
    gauge(
        "sluice_tls_certificate_not_after_seconds",
        "When a certificate ends that clients are shown, in seconds since 1970.",
        "certificate",
        lambda end_s: end_s,
    ),
)

_ROUTES: Final[tuple[Family[RouteMetrics], ...]] = (
    counted_by(
        "sluice_requests",
        "Answered requests.",
        ("route", "status"),
        lambda route: _by_label(route.statuses),
    ),
)

_POLICIES: Final[tuple[Family[PolicyMetrics], ...]] = (
    Family(
        CounterMetricFamily,
        "sluice_decisions",
        "What was decided on requests, by policy.",
        ("policy", "decision"),
        lambda name, policy: (((name, word), count) for word, count in _decisions(policy)),
    ),
)

_WAITS: Final[tuple[Family[PolicyMetrics], ...]] = (
    counter(
        "sluice_policy_wait_seconds",
        "Time that delayed requests waited for their turn, all together.",
        "policy",
        lambda policy: policy.wait_us / 1e6,
    ),
    gauge(
        "sluice_policy_waiting",
        "Requests that wait for their turn.",
        "policy",
        lambda policy: policy.waiting,
    ),
)

_MEMORY: Final[tuple[Family[MemoryMetrics], ...]] = (
    gauge(
        "sluice_memory_keys",
        "Keys that have a place in the memory store.",
        "policy",
        lambda memory: memory.keys,
    ),
    counter(
        "sluice_memory_evicted_keys",
        "Keys that lost their places in the memory store before they expired.",
        "policy",
        lambda memory: memory.evicted,
    ),
    counter(
        "sluice_memory_overflowed_requests",
        "Requests let through of keys for which the memory store had no place.",
        "policy",
        lambda memory: memory.overflowed,
    ),
    counter(
        "sluice_memory_refused_requests",
        "Requests refused for what other keys used, because the memory store is too small.",
        "policy",
        lambda memory: memory.refused,
    ),
)

_ASKED: Final[tuple[Family[UpstreamMetrics], ...]] = (
    counter(
        "sluice_upstream_requests",
        "Requests sent to an upstream.",
        "upstream",
        lambda upstream: upstream.requests,
    ),
)

_UPSTREAMS: Final[tuple[Family[UpstreamMetrics], ...]] = (
    counted_by(
        "sluice_upstream_errors",
        "Requests that an upstream did not answer as it should, by reason.",
        ("upstream", "kind"),
        lambda upstream: upstream.errors,
    ),
    counted_by(
        "sluice_upstream_retries",
        "Requests that were sent again, by what went wrong.",
        ("upstream", "reason"),
        lambda upstream: upstream.retries,
    ),
    counter(
        "sluice_upstream_retries_refused",
        "Requests that were not sent again because the budget was spent.",
        "upstream",
        lambda upstream: upstream.retries_refused,
    ),
    gauge(
        "sluice_upstream_connections",
        "Connections to an upstream that are open.",
        "upstream",
        lambda upstream: upstream.connections,
    ),
)

_WEBSOCKETS: Final[tuple[Family[UpstreamMetrics], ...]] = (
    gauge(
        "sluice_upstream_websockets",
        "WebSockets that are open.",
        "upstream",
        lambda upstream: upstream.tunnels,
    ),
    Family(
        CounterMetricFamily,
        "sluice_upstream_websocket_bytes",
        "Bytes that went through WebSockets, from clients (received) and to them (sent).",
        ("upstream", "direction"),
        lambda name, upstream: (
            ((name, "received"), upstream.tunnel_received),
            ((name, "sent"), upstream.tunnel_sent),
        ),
    ),
)

_STORES: Final[tuple[Family[StoreMetrics], ...]] = (
    counter(
        "sluice_store_decisions",
        "Decisions made by a store.",
        "store",
        lambda store: store.decisions,
    ),
    counter(
        "sluice_store_batches",
        "Calls to a store that were answered.",
        "store",
        lambda store: store.batches,
    ),
    counted_by(
        "sluice_store_errors",
        "Calls to a store that failed.",
        ("store", "reason"),
        lambda store: store.errors,
    ),
    Family(
        CounterMetricFamily,
        "sluice_store_missed",
        "Decisions that a store should have made beside another one and did not.",
        ("store",),
        lambda name, store: () if store.missed is None else [((name,), store.missed)],
    ),
    counted_by_pair(
        "sluice_store_messages",
        "Messages to and from a store that nobody waits for, and what came of them.",
        ("store", "message", "outcome"),
        lambda store: store.messages,
    ),
    gauge(
        "sluice_store_ready",
        "Whether a store would answer now.",
        "store",
        lambda store: store.is_ready,
    ),
    Family(
        GaugeMetricFamily,
        "sluice_store_breaker",
        "The circuit breaker before a store: 1 for the state it is in.",
        ("store", "state"),
        lambda name, store: (((name, state), store.breaker == state) for state in BREAKER_STATES),
    ),
    gauge(
        "sluice_store_gateways",
        "Gateways that share a store, this one included, as last seen.",
        "store",
        lambda store: store.gateways,
    ),
)


def _by_label(statuses: Mapping[int, int]) -> dict[str, int]:
    """Counts of answers by the label of their status."""
    by_label: dict[str, int] = {}
    for status, count in sorted(statuses.items()):
        label = str(status) if status in STATUSES else "other"
        by_label[label] = by_label.get(label, 0) + count
    return by_label


def _decisions(policy: PolicyMetrics) -> tuple[tuple[str, int], ...]:
    """What was decided; of a policy that was not asked yet no more than a dashboard needs."""
    most = ("pass", policy.passed), ("refuse", policy.refused)
    if not _has_decided(policy):
        return most
    return (
        *most,
        ("delay", policy.delayed),
        ("skip", policy.skipped),
        ("store_error_pass", policy.store_error_passed),
        ("store_error_refuse", policy.store_error_refused),
    )


def _has_decided(policy: PolicyMetrics) -> bool:
    counts = (
        *(policy.passed, policy.refused, policy.delayed, policy.skipped),
        *(policy.store_error_passed, policy.store_error_refused, policy.waiting),
    )
    return any(counts)


def _may_wait(_name: str, policy: PolicyMetrics) -> bool:
    return _has_decided(policy)


def _is_in_use(_name: str, upstream: UpstreamMetrics) -> bool:
    return bool(upstream.requests or upstream.connections or upstream.errors)


def _has_tunnels(_name: str, upstream: UpstreamMetrics) -> bool:
    return bool(upstream.tunnels or upstream.tunnel_received or upstream.tunnel_sent)
