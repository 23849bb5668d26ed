"""Refusals per second: a flood far over its limit, which never reaches the upstream."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Goal, Result, ratio
from bench.rivals.base import REFUSING
from bench.rivals.envoy import ENVOY
from bench.rivals.haproxy import HAPROXY
from bench.rivals.nginx import NGINX
from bench.rivals.plain import PLAIN
from bench.rivals.sluice import SLUICE
from bench.rivals.traefik import TRAEFIK
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage

RIVALS = (NGINX, HAPROXY, ENVOY, TRAEFIK, PLAIN, SLUICE)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood over a limit of 10/s; compare Sluice's refusals with Envoy's."""
    title = "Refusing: a flood over a limit of 10/s (refusals a second)"
    result, medians = measure(title, RIVALS, REFUSING, lambda f: f.refused_per_second, plan, stage)
    found = ratio(medians.get(SLUICE.name), medians.get(ENVOY.name))
    result.goals.append(Goal("Sluice / Envoy", found, 1.3))
    yield result
