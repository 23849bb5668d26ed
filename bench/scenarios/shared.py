"""Throughput with exact limits shared through Redis, every request within them."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.nginx import NGINX_LUA
from bench.rivals.sluice import SLUICE_REDIS
from bench.rivals.traefik import TRAEFIK_REDIS
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage

RIVALS = (NGINX_LUA, TRAEFIK_REDIS, SLUICE_REDIS)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood those that can share a limit; compare Sluice with nginx + Lua and Traefik."""
    title = "Limits in Redis, one decision per request, every request within them"
    result, medians = measure(title, RIVALS, WITHIN, lambda f: f.ok_per_second, plan, stage)
    ours = medians.get(SLUICE_REDIS.name)
    for rival, bound in ((NGINX_LUA, 0.9), (TRAEFIK_REDIS, 1.5)):
        found = ratio(ours, medians.get(rival.name))
        result.goals.append(Goal(f"Sluice / {rival.name}", found, bound))
    yield result
