"""Counters as plain data, exchanged between the processes of a gateway, and their sum.

A piece is one labelled child, such as a route with all its counters. Pieces are made one by one,
because there may be thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from gateway.observe.metrics.counters import (
    FrontendMetrics,
    GatewayMetrics,
    Histogram,
    MemoryMetrics,
    PolicyMetrics,
    RouteMetrics,
    StoreMetrics,
    TargetMetrics,
    UpstreamMetrics,
)

Piece = list[Any]
"""Kind, name, counters, and gauges: numbers, text, and lists and mappings of these."""

_DECIDED: Final = (
    *("passed", "delayed", "refused", "skipped"),
    *("store_error_passed", "store_error_refused", "wait_us"),
)
_COUNTED_OF_TARGET: Final = ("requests", "ejections", "checks", "checks_failed")
_OF_TARGET: Final = (*_COUNTED_OF_TARGET, "is_healthy", "is_ejected")
_BREAKER: Final = ("closed", "half_open", "open")


def pieces(metrics: GatewayMetrics) -> Iterator[Piece]:
    """Yield all counters of a gateway in a form that fits JSON."""
    yield [
        *("gateway", "", metrics.clients_left, dict(metrics.client_errors)),
        *(metrics.log.lines_dropped, metrics.connections),
        *(dict(metrics.connections_refused), metrics.connections_evicted),
    ]
    for name, end_s in list(metrics.certificates.items()):
        yield ["certificate", name, end_s]
    for name, route in list(metrics.routes.items()):
        # Routes without responses have no samples; there may be ten thousand.
        if route.statuses:
            statuses = {str(status): count for status, count in route.statuses.items()}
            yield ["route", name, statuses, _plain(route.duration)]
    for name, policy in list(metrics.policies.items()):
        yield ["policy", name, [getattr(policy, key) for key in _DECIDED], policy.waiting]
    for name, upstream in list(metrics.upstreams.items()):
        upstream.refresh()
        yield [
            *("upstream", name, upstream.requests, dict(upstream.errors)),
            *(_plain(upstream.first_byte), upstream.connections),
            *(upstream.tunnel_received, upstream.tunnel_sent, upstream.tunnels, upstream.breaker),
            {
                target: [getattr(counted, key) for key in _OF_TARGET]
                for target, counted in upstream.targets.items()
            },
            *(dict(upstream.retries), upstream.retries_refused),
        ]
    for name, store in list(metrics.stores.items()):
        store.refresh()
        gauges = [store.is_ready, store.breaker, store.gateways]
        yield [
            *("store", name, store.decisions, store.batches, dict(store.errors)),
            *(store.missed, _plain(store.duration), gauges),
            [[*what, count] for what, count in store.messages.items()],
        ]
    for name, memory in list(metrics.memory.items()):
        yield ["memory", name, memory.keys, memory.evicted, memory.overflowed, memory.refused]
    for name, frontend in list(metrics.frontends.items()):
        frontend.refresh()
        yield [
            *("frontend", name, frontend.sees_connections, frontend.connections),
            [[*what, count] for what, count in frontend.answers.items()],
            dict(frontend.malformed),
            [frontend.open_connections, frontend.records, frontend.record_bytes],
        ]


def add(total: GatewayMetrics, piece: Piece, *, gauges: bool = True) -> None:
    """Add one piece to a sum.

    Args:
        total: the sum, changed in place.
        piece: the counters of one process.
        gauges: whether its current values count too; not for a process that has ended.
    """
    kind, name, *values = piece
    if kind == "route":
        _add_route(total.route(name), *values)
    elif kind == "policy":
        _add_policy(total.policy(name), values, gauges=gauges)
    elif kind == "upstream":
        _add_upstream(total.upstream(name), values, gauges=gauges)
    elif kind == "store":
        _add_store(total.store(name), values, gauges=gauges)
    elif kind == "frontend":
        _add_frontend(total.frontend(name), values, gauges=gauges)
    elif kind == "memory":
        memory = total.memory.setdefault(name, MemoryMetrics())
        keys, evicted, overflowed, refused = values
        memory.keys += keys if gauges else 0
        memory.evicted += evicted
        memory.overflowed += overflowed
        memory.refused += refused
    elif kind == "certificate":
        if gauges:
            # The certificate that expires first is the important one.
            total.certificates[name] = min(total.certificates.get(name, values[0]), values[0])
    else:
        clients_left, client_errors, lines_dropped, connections, refused, evicted = values
        total.clients_left += clients_left
        _count(total.client_errors, client_errors)
        total.log.lines_dropped += lines_dropped
        total.connections += connections if gauges else 0
        _count(total.connections_refused, refused)
        total.connections_evicted += evicted


def _add_route(route: RouteMetrics, statuses: dict[str, int], duration: Piece) -> None:
    for status, count in statuses.items():
        route.statuses[int(status)] += count
    _observe(route.duration, duration)


def _add_policy(policy: PolicyMetrics, values: Piece, *, gauges: bool) -> None:
    decided, waiting = values
    for key, count in zip(_DECIDED, decided, strict=True):
        setattr(policy, key, getattr(policy, key) + count)
    policy.waiting += waiting if gauges else 0


def _add_upstream(upstream: UpstreamMetrics, values: Piece, *, gauges: bool) -> None:
    requests, errors, first_byte, connections, received, sent, tunnels, *rest = values
    breaker, targets, retries, refused = rest
    upstream.requests += requests
    _count(upstream.errors, errors)
    _observe(upstream.first_byte, first_byte)
    upstream.connections += connections if gauges else 0
    upstream.tunnel_received += received
    upstream.tunnel_sent += sent
    upstream.tunnels += tunnels if gauges else 0
    if gauges and breaker:
        upstream.breaker = max(upstream.breaker or breaker, breaker, key=_BREAKER.index)
    for name, values_of_target in targets.items():
        _add_target(upstream.target(name), values_of_target, gauges=gauges)
    _count(upstream.retries, retries)
    upstream.retries_refused += refused


def _add_target(target: TargetMetrics, values: Piece, *, gauges: bool) -> None:
    """Healthy means healthy for all processes, ejected means ejected by any of them."""
    *counts, is_healthy, is_ejected = values
    for key, count in zip(_COUNTED_OF_TARGET, counts, strict=True):
        setattr(target, key, getattr(target, key) + count)
    if gauges:
        target.is_healthy = target.is_healthy and is_healthy
        target.is_ejected = target.is_ejected or is_ejected


def _add_store(store: StoreMetrics, values: Piece, *, gauges: bool) -> None:
    """Ready means ready for all, and the breaker is the worst of all."""
    decisions, batches, errors, missed, duration, now, messages = values
    is_ready, breaker, gateways = now
    for message, outcome, count in messages:
        store.messages[message, outcome] += count
    store.decisions += decisions
    store.batches += batches
    _count(store.errors, errors)
    if missed is not None:
        store.missed = (store.missed or 0) + missed
    _observe(store.duration, duration)
    if gauges:
        store.is_ready = store.is_ready and is_ready
        store.breaker = max(store.breaker, breaker, key=_BREAKER.index)
        store.gateways = max(store.gateways, gateways)


def _add_frontend(frontend: FrontendMetrics, values: Piece, *, gauges: bool) -> None:
    sees_connections, connections, answers, malformed, (still_open, records, memory) = values
    frontend.sees_connections = sees_connections
    frontend.connections += connections
    for operation, answer, count in answers:
        frontend.answers[operation, answer] += count
    _count(frontend.malformed, malformed)
    if gauges:
        frontend.open_connections += still_open
        if records is not None:
            frontend.records = (frontend.records or 0) + records
        if memory is not None:
            frontend.record_bytes = (frontend.record_bytes or 0) + memory


def _plain(histogram: Histogram) -> Piece:
    """Empty if nothing was counted."""
    return [histogram.sum_us, *histogram.counts] if any(histogram.counts) else []


def _observe(histogram: Histogram, plain: Piece) -> None:
    if not plain:
        return
    sum_us, *counts = plain
    histogram.sum_us += sum_us
    for place, count in enumerate(counts):
        histogram.counts[place] += count


def _count(total: defaultdict[str, int], counts: dict[str, int]) -> None:
    for key, count in counts.items():
        total[key] += count
