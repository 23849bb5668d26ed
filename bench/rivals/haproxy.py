"""HAProxy with a stick table."""

from __future__ import annotations

from bench.programs import program, version_of
from bench.rivals.base import Rival, Site
from bench.template import render


def _prepare(site: Site) -> list[str]:
    config = render(
        "haproxy.cfg",
        site.directory / "haproxy.cfg",
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        rate=str(site.rate.per_second),
    )
    return [program("haproxy"), "-db", "-f", str(config)]


def _version() -> str:
    return version_of([program("haproxy"), "-v"])


HAPROXY = Rival(
    "HAProxy",
    "stick table: requests in the last second per address",
    _prepare,
    _version,
    log_name="stdout.log",
)
