"""Traefik with its RateLimit middleware: counts in its own memory, or in Redis."""

from __future__ import annotations

from functools import partial

from bench.programs import program, version_of
from bench.rivals.base import Rival, Site
from bench.template import render


def _prepare(site: Site, *, shared: bool) -> list[str]:
    redis = f'redis: {{ endpoints: ["127.0.0.1:{site.redis_port}"], poolSize: 64 }}'
    routes = render(
        "traefik_routes.yaml",
        site.directory / "routes.yaml",
        upstream_port=str(site.upstream_port),
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        where="in Redis" if shared else "in its own memory",
        redis=redis if shared else "",
    )
    config = render(
        "traefik.yaml",
        site.directory / "traefik.yaml",
        port=str(site.port),
        log=str(site.log),
        routes=str(routes),
    )
    return [program("traefik"), f"--configFile={config}"]


def _version() -> str:
    return version_of([program("traefik"), "version"])


_ENV = {"GOMAXPROCS": "1"}
TRAEFIK = Rival(
    "Traefik", "RateLimit, in its own memory", partial(_prepare, shared=False), _version, _ENV
)
TRAEFIK_REDIS = Rival(
    "Traefik + Redis", "RateLimit with Redis", partial(_prepare, shared=True), _version, _ENV
)
