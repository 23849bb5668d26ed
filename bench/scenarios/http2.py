"""Throughput with HTTP/2, from clients and to upstreams; limits in the proxy's own memory."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.envoy import ENVOY, ENVOY_HTTP2
from bench.rivals.nginx import NGINX
from bench.rivals.sluice import SLUICE_2, SLUICE_2_REDIS, SLUICE_2_TO_2
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage
from bench.streams import ONE_EACH, TEN_EACH

RIVALS = (NGINX, ENVOY, ENVOY_HTTP2, SLUICE_2, SLUICE_2_TO_2, SLUICE_2_REDIS)
_NOTE = (
    "nginx speaks HTTP/1.1 to its upstream in every row: it has no other way. All speak HTTP/2 in "
    "clear text with their clients (h2load)."
)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood every rival with one and with ten streams a connection; then HTTP/1.1 to HTTP/2."""
    for title, load, bound in (
        ("HTTP/2, 64 connections of one stream", ONE_EACH, 1.0),
        ("HTTP/2, 16 connections of ten streams", TEN_EACH, 1.3),
    ):
        result, medians = measure(
            title, RIVALS, WITHIN, lambda f: f.ok_per_second, plan, stage, load, is_http2=True
        )
        result.goals += [
            _goal(medians, SLUICE_2.name, NGINX.name, 0.7),
            _goal(medians, SLUICE_2.name, ENVOY.name, 1.3),
            _goal(medians, SLUICE_2_TO_2.name, NGINX.name, bound),
            _goal(medians, SLUICE_2_TO_2.name, ENVOY_HTTP2.name, 1.5),
        ]
        result.remarks.append(_NOTE)
        yield result
    title = "HTTP/1.1 from clients, to upstreams of both versions"
    pair = (SLUICE_2, SLUICE_2_TO_2)
    result, medians = measure(title, pair, WITHIN, lambda f: f.ok_per_second, plan, stage)
    result.goals.append(_goal(medians, SLUICE_2_TO_2.name, SLUICE_2.name, 1.1))
    yield result


def _goal(medians: dict[str, float], ours: str, theirs: str, bound: float) -> Goal:
    return Goal(f"{ours} / {theirs}", ratio(medians.get(ours), medians.get(theirs)), bound)
