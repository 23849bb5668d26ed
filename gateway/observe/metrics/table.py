"""All families of a scrape, in order."""

from __future__ import annotations

import platform
from typing import Any, Final

from gateway.observe.metrics.children import (
    KeysInMemory,
    by_label,
    decisions,
    has_decided,
    has_keys,
    keys_in_memory,
    named,
    states,
    targets,
)
from gateway.observe.metrics.counters import (
    FrontendMetrics,
    GatewayMetrics,
    PolicyMetrics,
    RouteMetrics,
    StoreMetrics,
    TargetMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.families import (
    Section,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    info,
)

_GATEWAY: Final = Section[GatewayMetrics](
    (),
    lambda metrics: (((), metrics),),
    (
        info(
            "sluice_build",
            "The gateway's version and its version of Python.",
            lambda of: {"version": of.version, "python": platform.python_version()},
        ),
        gauge(
            "sluice_start_time_seconds",
            "When this gateway started, in seconds since 1970.",
            lambda of: of.started_us / 1e6,
        ),
        gauge(
            "sluice_workers",
            "Processes of this gateway that serve requests.",
            lambda of: of.workers,
        ),
        gauge(
            "sluice_client_connections",
            "Open client connections.",
            lambda of: of.connections,
        ),
        counters(
            "sluice_client_connections_refused",
            "Client connections that were refused, by the limit that was reached.",
            ("limit",),
            lambda of: sorted(of.connections_refused.items()),
        ),
        counter(
            "sluice_client_connections_evicted",
            "Client connections that were closed to make room for others.",
            lambda of: of.connections_evicted,
        ),
        counters(
            "sluice_client_errors",
            "Invalid requests, by reason.",
            ("kind",),
            lambda of: sorted(of.client_errors.items()),
        ),
        counter(
            "sluice_clients_left",
            "Clients that left before their response was complete.",
            lambda of: of.clients_left,
        ),
        counter(
            "sluice_log_lines_dropped",
            (
                "Log lines that were lost because the disk was full, or the reader was gone "
                "or too slow."
            ),
            lambda of: of.log.lines_dropped,
        ),
    ),
)

_CERTIFICATES: Final = Section[int](
    ("certificate",),
    named(lambda metrics: metrics.certificates),
    (
        gauge(
            "sluice_tls_certificate_not_after_seconds",
            "When a server certificate expires, in seconds since 1970.",
            lambda end_s: end_s,
        ),
    ),
)

_ROUTES: Final = Section[RouteMetrics](
    ("route",),
    named(lambda metrics: metrics.routes),
    (
        counters(
            "sluice_requests", "Answered requests.", ("status",), lambda of: by_label(of.statuses)
        ),
        histogram(
            "sluice_request_duration_seconds",
            "From a request's head to the last byte of its response, including any wait.",
            lambda of: of.duration,
        ),
    ),
)

_POLICIES: Final = Section[PolicyMetrics](
    ("policy",),
    named(lambda metrics: metrics.policies),
    (
        counters(
            "sluice_decisions",
            "Decisions on requests, by policy and result.",
            ("decision",),
            decisions,
        ),
    ),
)

_WAITS: Final = Section[PolicyMetrics](
    ("policy",),
    named(lambda metrics: metrics.policies),
    (
        counter(
            "sluice_policy_wait_seconds",
            "Total time that delayed requests waited for their turn.",
            lambda of: of.wait_us / 1e6,
        ),
        gauge(
            "sluice_policy_waiting",
            "Requests that currently wait for their turn.",
            lambda of: of.waiting,
        ),
    ),
    is_shown=has_decided,
)

_UPSTREAMS: Final = Section[UpstreamMetrics](
    ("upstream",),
    named(lambda metrics: metrics.upstreams),
    (counter("sluice_upstream_requests", "Requests sent to an upstream.", lambda of: of.requests),),
    refresh=lambda of: of.refresh(),
)

_UPSTREAMS_IN_USE: Final = Section[UpstreamMetrics](
    ("upstream",),
    named(lambda metrics: metrics.upstreams),
    (
        counters(
            "sluice_upstream_errors",
            "Requests that an upstream did not answer properly, by reason.",
            ("kind",),
            lambda of: sorted(of.errors.items()),
        ),
        counters(
            "sluice_upstream_retries",
            "Requests that were retried, by reason.",
            ("reason",),
            lambda of: sorted(of.retries.items()),
        ),
        counter(
            "sluice_upstream_retries_refused",
            "Retries that the budget did not allow.",
            lambda of: of.retries_refused,
        ),
        gauge(
            "sluice_upstream_connections",
            "Open connections to an upstream.",
            lambda of: of.connections,
        ),
    ),
    is_shown=lambda of: of.requests or of.connections or of.errors,
)

_FIRST_BYTES: Final = Section[UpstreamMetrics](
    ("upstream",),
    named(lambda metrics: metrics.upstreams),
    (
        histogram(
            "sluice_upstream_first_byte_seconds",
            "From sending a request to the first byte of the upstream's response.",
            lambda of: of.first_byte,
        ),
    ),
)

_BREAKERS: Final = Section[UpstreamMetrics](
    ("upstream",),
    named(lambda metrics: {name: of for name, of in metrics.upstreams.items() if of.breaker}),
    (
        gauges(
            "sluice_upstream_breaker",
            "The circuit breaker of an upstream: 1 for its current state.",
            ("state",),
            lambda of: states(of.breaker),
        ),
    ),
)

_TARGETS: Final = Section[TargetMetrics](
    ("upstream", "target"),
    targets,
    (
        counter(
            "sluice_target_requests", "Tries that a target was chosen for.", lambda of: of.requests
        ),
        counter(
            "sluice_target_ejections",
            "How often a target was ejected for failures.",
            lambda of: of.ejections,
        ),
        counter("sluice_target_checks", "Health checks of a target.", lambda of: of.checks),
        counter(
            "sluice_target_checks_failed",
            "Health checks that a target failed.",
            lambda of: of.checks_failed,
        ),
        gauge(
            "sluice_target_healthy",
            "Whether health checks find a target healthy; 1 without checks.",
            lambda of: of.is_healthy,
        ),
        gauge(
            "sluice_target_ejected",
            "Whether a target is ejected for failures.",
            lambda of: of.is_ejected,
        ),
    ),
)

_WEBSOCKETS: Final = Section[UpstreamMetrics](
    ("upstream",),
    named(lambda metrics: metrics.upstreams),
    (
        gauge("sluice_upstream_websockets", "Open WebSockets.", lambda of: of.tunnels),
        counters(
            "sluice_upstream_websocket_bytes",
            "Bytes through WebSockets, from clients (received) and to them (sent).",
            ("direction",),
            lambda of: (("received", of.tunnel_received), ("sent", of.tunnel_sent)),
        ),
    ),
    is_shown=lambda of: of.tunnels or of.tunnel_received or of.tunnel_sent,
)

_STORES: Final = Section[StoreMetrics](
    ("store",),
    named(lambda metrics: metrics.stores),
    (
        counter("sluice_store_decisions", "Decisions made by a store.", lambda of: of.decisions),
        counter("sluice_store_batches", "Successful calls to a store.", lambda of: of.batches),
        counters(
            "sluice_store_errors",
            "Failed calls to a store, by reason.",
            ("reason",),
            lambda of: sorted(of.errors.items()),
        ),
        counters(
            "sluice_store_missed",
            "Decisions that a store should have made beside another one but did not.",
            (),
            lambda of: () if of.missed is None else [((), of.missed)],
        ),
        counters(
            "sluice_store_messages",
            "Messages to and from a store outside of calls, by result.",
            ("message", "outcome"),
            lambda of: sorted(of.messages.items()),
        ),
        gauge("sluice_store_ready", "Whether a store would reply now.", lambda of: of.is_ready),
        gauges(
            "sluice_store_breaker",
            "The circuit breaker of a store: 1 for its current state.",
            ("state",),
            lambda of: states(of.breaker),
        ),
        gauge(
            "sluice_store_gateways",
            "Gateways that share a store, including this one, as last seen.",
            lambda of: of.gateways,
        ),
        histogram(
            "sluice_store_call_duration_seconds",
            "Duration of successful calls to a store.",
            lambda of: of.duration,
        ),
    ),
    refresh=lambda of: of.refresh(),
)

_MEMORY: Final = Section[KeysInMemory](
    ("policy",),
    keys_in_memory,
    (
        gauge(
            "sluice_memory_keys",
            "Keys in the memory store.",
            lambda of: of.counted.keys,
        ),
        counter(
            "sluice_memory_evicted_keys",
            "Keys that were evicted from the memory store before they expired.",
            lambda of: of.counted.evicted,
        ),
        counter(
            "sluice_memory_overflowed_requests",
            "Requests admitted although the memory store had no room for their key.",
            lambda of: of.counted.overflowed,
        ),
        counter(
            "sluice_memory_refused_requests",
            "Requests refused for the usage of other keys, because the memory store is too small.",
            lambda of: of.counted.refused,
        ),
    ),
    is_shown=has_keys,
)

_LISTENERS: Final = Section[FrontendMetrics](
    ("listener",),
    named(
        lambda metrics: {name: of for name, of in metrics.frontends.items() if of.sees_connections}
    ),
    (
        counter(
            "sluice_listener_connections",
            "Accepted connections of a listener's clients.",
            lambda of: of.connections,
        ),
        gauge(
            "sluice_listener_open_connections",
            "Open connections of a listener's clients.",
            lambda of: of.open_connections,
        ),
    ),
)

_ANSWERS: Final = Section[FrontendMetrics](
    ("listener",),
    named(lambda metrics: metrics.frontends),
    (
        counters(
            "sluice_listener_answers",
            "Requests of a listener's clients, by request and result.",
            ("operation", "answer"),
            lambda of: sorted(of.answers.items()),
        ),
        counters(
            "sluice_listener_malformed",
            "Invalid input of a listener's clients, by reason.",
            ("kind",),
            lambda of: sorted(of.malformed.items()),
        ),
    ),
    refresh=lambda of: of.refresh(),
)

_RECORDS: Final = Section[FrontendMetrics](
    ("listener",),
    named(
        lambda metrics: {
            name: of for name, of in metrics.frontends.items() if of.records is not None
        }
    ),
    (
        gauge(
            "sluice_listener_records", "Records that a listener keeps.", lambda of: of.records or 0
        ),
        gauge(
            "sluice_listener_record_bytes",
            "Memory of these records.",
            lambda of: of.record_bytes or 0,
        ),
    ),
)

TABLE: Final[tuple[Section[Any], ...]] = (
    _GATEWAY,
    _CERTIFICATES,
    _ROUTES,
    _POLICIES,
    _WAITS,
    _UPSTREAMS,
    _UPSTREAMS_IN_USE,
    _FIRST_BYTES,
    _BREAKERS,
    _TARGETS,
    _WEBSOCKETS,
    _STORES,
    _MEMORY,
    _LISTENERS,
    _ANSWERS,
    _RECORDS,
)
