"""Throughput with limits kept in the proxy's own memory, every request within them."""

from __future__ import annotations

from collections.abc import Iterator

from bench.load import Flood, flood
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.caddy import CADDY
from bench.rivals.envoy import ENVOY
from bench.rivals.haproxy import HAPROXY
from bench.rivals.nginx import NGINX
from bench.rivals.plain import PLAIN
from bench.rivals.sluice import SLUICE
from bench.rivals.traefik import TRAEFIK
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage

RIVALS = (NGINX, HAPROXY, ENVOY, TRAEFIK, CADDY, PLAIN, SLUICE)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood every rival; compare Sluice with Envoy, nginx and the plain aiohttp proxy."""
    title = "Local limits, every request within them"
    result, medians = measure(title, RIVALS, WITHIN, lambda f: f.ok_per_second, plan, stage)
    ours = medians.get(SLUICE.name)
    for rival, bound in ((ENVOY, 1.0), (NGINX, 0.45), (PLAIN, 3.5)):
        found = ratio(ours, medians.get(rival.name))
        result.goals.append(Goal(f"Sluice / {rival.name}", found, bound))
    direct: Flood = flood(f"http://127.0.0.1:{stage.upstream_port}/", plan.seconds)
    result.remarks.append(
        f"The same load straight to the upstream, without a proxy: {direct.ok_per_second:,.0f}/s."
    )
    yield result
