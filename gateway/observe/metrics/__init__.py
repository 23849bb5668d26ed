"""What the gateway counts, and how Prometheus reads it.

On a request's way only plain integers are touched (`counters`); they become samples when
somebody asks (`exposition`, which a limiter without a gateway does without). Several processes of
one gateway tell each other of them as plain data (`plain`). Names of routes, policies, upstreams,
stores and listeners are the only labels that come from outside, and they come from the
configuration: never a key, a path or an address, so the number of series is bounded by the
configuration.
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
    StoreMetrics,
    TargetMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.plain import Piece, add, pieces

__all__ = [
    "FrontendMetrics",
    "GatewayMetrics",
    "Histogram",
    "LogMetrics",
    "MemoryMetrics",
    "Piece",
    "PolicyMetrics",
    "RouteMetrics",
    "StoreMetrics",
    "TargetMetrics",
    "UpstreamMetrics",
    "add",
    "pieces",
]
