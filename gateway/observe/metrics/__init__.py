"""The gateway's counters, and their form for Prometheus.

Requests change only plain integers (`counters`); a scrape turns them into samples (`exposition`,
which a limiter without a gateway does not need). One of several processes keeps them in memory that
others read (`shared`, `plain`). The only labels from outside are names of routes, policies,
upstreams, stores and listeners, and they come from the configuration: never a key, a path or an
address, so the configuration bounds the number of series.
"""

from __future__ import annotations

from gateway.observe.metrics.counters import (
    FrontendMetrics,
    GatewayMetrics,
    Histogram,
    LogMetrics,
    MemoryMetrics,
    PolicyMetrics,
    RouteMetrics,
    ShownNames,
    StoreMetrics,
    TargetMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.plain import Piece, add, add_counts, pieces

__all__ = [
    "FrontendMetrics",
    "GatewayMetrics",
    "Histogram",
    "LogMetrics",
    "MemoryMetrics",
    "Piece",
    "PolicyMetrics",
    "RouteMetrics",
    "ShownNames",
    "StoreMetrics",
    "TargetMetrics",
    "UpstreamMetrics",
    "add",
    "add_counts",
    "pieces",
]
