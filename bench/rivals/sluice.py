"""Sluice itself, started as its users start it, with everything on that is on by default."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import gateway
from bench.load import HEADERS
from bench.micro.lists import networks
from bench.programs import PYTHON_PATH, python
from bench.rivals.base import Rival, Site
from bench.template import render
from gateway.base.build import BUILD

KEYS: Final = 10_000
"""API keys that have a tier."""


def _prepare(
    site: Site,
    *,
    shared: bool,
    consistency: str,
    per: str,
    http2: bool = False,
    upstream_http2: bool = False,
) -> list[str]:
    config = render(
        "sluice.yaml",
        site.directory / "sluice.yaml",
        port=str(site.port),
        upstream_port=str(site.upstream_http2_port if upstream_http2 else site.upstream_port),
        http2=str(http2).lower(),
        upstream_http2=str(upstream_http2).lower(),
        store=f"redis://127.0.0.1:{site.redis_port}/0" if shared else "memory://",
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
        consistency=consistency,
        per=per,
    )
    return [python(), "-m", "gateway", "run", "-c", str(config)]


def _prepare_keys(site: Site) -> list[str]:
    lines = [f"Bearer {number:020x},free" for number in range(KEYS - 1)]
    lines.append(f"{HEADERS['Authorization']},pro")
    (site.directory / "keys.csv").write_text("\n".join(lines))
    return _prepare_from("sluice_keys.yaml", site)


def _prepare_denied(site: Site) -> list[str]:
    lines = [one for one in networks(random.Random(1)) if not one.startswith("127.")]
    (site.directory / "blocked.txt").write_text("\n".join(lines))
    return _prepare_from("sluice_denied.yaml", site)


def _prepare_from(template: str, site: Site) -> list[str]:
    config = render(
        template,
        site.directory / "sluice.yaml",
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
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


def http2_rivals() -> tuple[Rival, Rival, Rival]:
    """Sluice for clients of HTTP/2: with HTTP/1.1 and HTTP/2 to the upstream, and with Redis."""
    both = partial(_prepare, per="ip", consistency="strict", http2=True)
    job = "token bucket, memory://"
    on_redis = partial(both, shared=True, upstream_http2=True)
    return (
        Rival("Sluice", job, partial(both, shared=False), _version, _ENV),
        Rival(
            "Sluice to HTTP/2",
            job,
            partial(both, shared=False, upstream_http2=True),
            _version,
            _ENV,
        ),
        Rival(
            "Sluice + Redis to HTTP/2",
            "token bucket, redis://",
            on_redis,
            _version,
            _ENV,
        ),
    )


FIVE_KEYS: Final = Rival(
    "Sluice with five keys",
    f"two limits, five keys, the tier of one of {KEYS:,} API keys",
    _prepare_keys,
    _version,
    _ENV,
)
DENYING: Final = Rival(
    "Sluice with a deny-list",
    "token bucket, a list of a million networks",
    _prepare_denied,
    _version,
    _ENV,
)

SLUICE_2, SLUICE_2_TO_2, SLUICE_2_REDIS = http2_rivals()
