"""Every family of samples, in order: the one list of what a gateway counts.

A scrape (`exposition`), what processes of one gateway tell each other (`plain`) and the reference
in `docs/metrics.md`, which a test compares with this table, follow from it.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from gateway.observe.metrics.children import (
    GATEWAY,
    LISTENERS,
    LOG,
    MEMORY,
    ROUTES,
    STORES,
    TARGETS,
    UPSTREAMS,
    by_label,
    has_keys,
    reloads,
    states,
)
from gateway.observe.metrics.families import (
    COUNT,
    EVER,
    EVERY,
    FIRST,
    MOST,
    SOME,
    SUM_IF_KNOWN,
    TIMES,
    WORST,
    Family,
    Field,
    Section,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    info,
)
from gateway.observe.metrics.policy_sections import POLICY_SECTIONS

TABLE: Final[tuple[Section[Any], ...]] = (
    Section(
        GATEWAY,
        (
            info(
                "sluice_build",
                "The gateway's version and its version of Python.",
                lambda of: {"version": of.version, "python": platform.python_version()},
            ),
            gauge(
                "sluice_start_time_seconds",
                "When this gateway started, in seconds since 1970.",
                "started_us",
                None,
                lambda us: us / 1e6,
            ),
            gauge(
                "sluice_workers",
                "Processes of this gateway that serve requests.",
                "workers",
                None,
            ),
            gauge(
                "sluice_client_connections",
                "Open client connections.",
                "connections",
            ),
            counters(
                "sluice_client_connections_refused",
                "Client connections that were refused, by the limit that was reached.",
                ("limit",),
                "connections_refused",
            ),
            counter(
                "sluice_client_connections_evicted",
                "Client connections that were closed to make room for others.",
                "connections_evicted",
            ),
            counters(
                "sluice_client_errors",
                "Invalid requests, by reason.",
                ("kind",),
                "client_errors",
            ),
            counter(
                "sluice_clients_left",
                "Clients that left before their response was complete.",
                "clients_left",
            ),
            counters(
                "sluice_config_reloads",
                "Reloads of the configuration, by result.",
                ("result",),
                "config_reloads",
                samples=reloads,
            ),
            gauge(
                "sluice_config_last_reload_successful",
                "Whether the last reload of the configuration succeeded; 1 if there was none.",
                "is_last_reload_applied",
                EVERY,
            ),
            gauge(
                "sluice_config_applied_timestamp_seconds",
                "When the configuration in force was last read and applied, in seconds since 1970.",
                "config_applied_us",
                None,
                lambda us: us / 1e6,
            ),
            counter(
                "sluice_upgrades_failed",
                "Upgrades of the program that failed; the one that is running continued.",
                "upgrades_failed",
            ),
        ),
    ),
    Section(
        LOG,
        (
            counter(
                "sluice_log_lines_dropped",
                (
                    "Log lines that were lost because the disk was full, or the reader was "
                    "gone or too slow."
                ),
                "lines_dropped",
            ),
        ),
    ),
    Section(
        GATEWAY,
        (
            gauges(
                "sluice_tls_certificate_not_after_seconds",
                "When a server certificate expires, in seconds since 1970.",
                ("certificate",),
                "certificates",
                FIRST,
                lambda certificates: list(certificates.items()),
            ),
        ),
        among=lambda of: of.certificates,
    ),
    Section(
        ROUTES,
        (
            counters(
                "sluice_requests", "Answered requests.", ("status",), "statuses", samples=by_label
            ),
            histogram(
                "sluice_request_duration_seconds",
                "From a request's head to the last byte of its response, including any wait.",
                "duration",
            ),
        ),
    ),
    *POLICY_SECTIONS,
    Section(
        UPSTREAMS,
        (counter("sluice_upstream_requests", "Requests sent to an upstream.", "requests"),),
        is_first=True,
    ),
    Section(
        UPSTREAMS,
        (
            counters(
                "sluice_upstream_errors",
                "Requests that an upstream did not answer properly, by reason.",
                ("kind",),
                "errors",
            ),
            counters(
                "sluice_upstream_retries",
                "Requests that were retried, by reason.",
                ("reason",),
                "retries",
            ),
            counter(
                "sluice_upstream_retries_refused",
                "Retries that the budget did not allow.",
                "retries_refused",
            ),
            gauge(
                "sluice_upstream_connections",
                "Open connections to an upstream.",
                "connections",
            ),
        ),
        is_shown=lambda of, _, __: of.requests or of.connections or of.errors,
    ),
    Section(
        UPSTREAMS,
        (
            histogram(
                "sluice_upstream_first_byte_seconds",
                "From sending a request to the first byte of the upstream's response.",
                "first_byte",
            ),
        ),
    ),
    Section(
        UPSTREAMS,
        (
            gauges(
                "sluice_upstream_breaker",
                "The circuit breaker of an upstream: 1 for its current state.",
                ("state",),
                "breaker",
                WORST,
                states,
            ),
        ),
        among=lambda of: of.breaker,
    ),
    Section(
        TARGETS,
        (
            counter("sluice_target_requests", "Tries that a target was chosen for.", "requests"),
            counter(
                "sluice_target_ejections",
                "How often a target was ejected for failures.",
                "ejections",
            ),
            counter("sluice_target_checks", "Health checks of a target.", "checks"),
            counter(
                "sluice_target_checks_failed",
                "Health checks that a target failed.",
                "checks_failed",
            ),
            # Healthy if all processes find it healthy, ejected if one of them has ejected it.
            gauge(
                "sluice_target_healthy",
                "Whether health checks find a target healthy; 1 without checks.",
                "is_healthy",
                EVERY,
            ),
            gauge(
                "sluice_target_ejected",
                "Whether a target is ejected for failures.",
                "is_ejected",
                SOME,
            ),
        ),
    ),
    Section(
        UPSTREAMS,
        (
            gauge("sluice_upstream_websockets", "Open WebSockets.", "tunnels"),
            Family(
                "counter",
                "sluice_upstream_websocket_bytes",
                "Bytes through WebSockets, from clients (received) and to them (sent).",
                ("direction",),
                (Field("tunnel_received", COUNT), Field("tunnel_sent", COUNT)),
                lambda of: (("received", of.tunnel_received), ("sent", of.tunnel_sent)),
            ),
        ),
        is_shown=lambda of, _, __: of.tunnels or of.tunnel_received or of.tunnel_sent,
    ),
    Section(
        STORES,
        (
            counter("sluice_store_decisions", "Decisions made by a store.", "decisions"),
            Family(
                "counter",
                "sluice_store_batches",
                "Successful calls to a store.",
                (),
                (Field("duration", TIMES),),
                lambda of: (((), of.batches),),
            ),
            counters(
                "sluice_store_errors", "Failed calls to a store, by reason.", ("reason",), "errors"
            ),
        ),
        is_first=True,
    ),
    Section(
        STORES,
        (
            counter(
                "sluice_store_missed",
                "Decisions that a store should have made beside another one but did not.",
                "missed",
            ),
        ),
        is_shown=lambda of, _, __: of.is_follower,
        unshown=(Field("is_follower", EVER),),
    ),
    Section(
        STORES,
        (
            counters(
                "sluice_store_messages",
                "Messages to and from a store outside of calls, by result.",
                ("message", "outcome"),
                "messages",
            ),
            # A store is ready if it is for all processes; the breaker is the worst of all.
            gauge("sluice_store_ready", "Whether a store would reply now.", "is_ready", EVERY),
            gauges(
                "sluice_store_breaker",
                "The circuit breaker of a store: 1 for its current state.",
                ("state",),
                "breaker",
                WORST,
                states,
            ),
            gauge(
                "sluice_store_gateways",
                "Gateways that share a store, including this one, as last seen.",
                "gateways",
                MOST,
            ),
            histogram(
                "sluice_store_call_duration_seconds",
                "Duration of successful calls to a store.",
                "duration",
            ),
        ),
    ),
    Section(
        MEMORY,
        (
            gauge("sluice_memory_keys", "Keys in the memory store.", "keys"),
            counter(
                "sluice_memory_evicted_keys",
                "Keys that were evicted from the memory store before they expired.",
                "evicted",
            ),
            counter(
                "sluice_memory_overflowed_requests",
                "Requests admitted although the memory store had no room for their key.",
                "overflowed",
            ),
            counter(
                "sluice_memory_refused_requests",
                (
                    "Requests refused for the usage of other keys, because the memory store "
                    "is too small."
                ),
                "refused",
            ),
        ),
        is_shown=has_keys,
    ),
    Section(
        LISTENERS,
        (
            counter(
                "sluice_listener_connections",
                "Accepted connections of a listener's clients.",
                "connections",
            ),
            gauge(
                "sluice_listener_open_connections",
                "Open connections of a listener's clients.",
                "open_connections",
            ),
        ),
        among=lambda of: not of.hides_connections,
        unshown=(Field("hides_connections", EVER),),
    ),
    Section(
        LISTENERS,
        (
            counters(
                "sluice_listener_answers",
                "Requests of a listener's clients, by request and result.",
                ("operation", "answer"),
                "answers",
            ),
            counters(
                "sluice_listener_malformed",
                "Invalid input of a listener's clients, by reason.",
                ("kind",),
                "malformed",
            ),
        ),
        is_first=True,
    ),
    Section(
        LISTENERS,
        (
            gauge(
                "sluice_listener_records",
                "Records that a listener keeps.",
                "records",
                SUM_IF_KNOWN,
            ),
            gauge(
                "sluice_listener_record_bytes",
                "Memory of these records.",
                "record_bytes",
                SUM_IF_KNOWN,
                lambda count: count or 0,
            ),
        ),
        among=lambda of: of.records is not None,
    ),
)
