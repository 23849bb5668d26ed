"""Sluice itself, started as its users start it, with everything on that is on by default."""

from __future__ import annotations

from functools import partial

import gateway
from bench.programs import PYTHON_PATH, python
from bench.rivals.base import Rival, Site
from bench.template import render
from gateway.base.build import BUILD


def _prepare(site: Site, *, shared: bool, consistency: str, per: str) -> list[str]:
    config = render(
        "sluice.yaml",
        site.directory / "sluice.yaml",
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        store=f"redis://127.0.0.1:{site.redis_port}/0" if shared else "memory://",
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
        consistency=consistency,
        per=per,
    )
    return [python(), "-m", "gateway", "run", "-c", str(config)]


def _version() -> str:
    return f"{gateway.__version__} ({BUILD})"


_ENV = {"PYTHONPATH": PYTHON_PATH}


def rivals(per: str = "ip") -> tuple[Rival, Rival, Rival, Rival]:
    """Sluice with counts in memory, in Redis, leased from it, and told to it now and then.

    Args:
        per: whom the limit counts.
    """
    strict = partial(_prepare, per=per, consistency="strict")
    leased = partial(_prepare, per=per, consistency="leased", shared=True)
    eventual = partial(_prepare, per=per, consistency="eventual", shared=True)
    return (
        Rival("Sluice", "token bucket, memory://", partial(strict, shared=False), _version, _ENV),
        Rival(
            "Sluice + Redis", "token bucket, redis://", partial(strict, shared=True), _version, _ENV
        ),
        Rival("Sluice leased", "token bucket, leased from redis://", leased, _version, _ENV),
        Rival("Sluice eventual", "token bucket, told to redis://", eventual, _version, _ENV),
    )


SLUICE, SLUICE_REDIS, LEASED, EVENTUAL = rivals()
