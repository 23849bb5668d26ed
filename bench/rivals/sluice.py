"""Sluice itself, started as its users start it, with everything on that is on by default."""

from __future__ import annotations

from functools import partial

import gateway
from bench.programs import REPOSITORY, python
from bench.rivals.base import Rival, Site
from bench.template import render


def _prepare(site: Site, *, shared: bool) -> list[str]:
    config = render(
        "sluice.yaml",
        site.directory / "sluice.yaml",
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        store=f"redis://127.0.0.1:{site.redis_port}/0" if shared else "memory://",
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
    )
    return [python(), "-m", "gateway", "run", "-c", str(config)]


def _version() -> str:
    return gateway.__version__


_ENV = {"PYTHONPATH": str(REPOSITORY)}
SLUICE = Rival("Sluice", "token bucket, memory://", partial(_prepare, shared=False), _version, _ENV)
SLUICE_REDIS = Rival(
    "Sluice + Redis", "token bucket, redis://", partial(_prepare, shared=True), _version, _ENV
)
