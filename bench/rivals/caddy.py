"""Caddy, which has no limiter in its standard build: a proxy and nothing else."""

from __future__ import annotations

from bench.programs import program, version_of
from bench.rivals.base import Rival, Site
from bench.template import render


def _prepare(site: Site) -> list[str]:
    config = render(
        "Caddyfile",
        site.directory / "Caddyfile",
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        log=str(site.log),
    )
    return [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(config)]


def _version() -> str:
    return version_of([program("caddy"), "version"])


CADDY = Rival(
    "Caddy", "no limiter: only proxies", _prepare, _version, {"GOMAXPROCS": "1"}, limits=False
)
