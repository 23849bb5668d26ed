"""Envoy with its local rate limit filter, a bucket per client address."""

from __future__ import annotations

from functools import partial

from bench.programs import envoy_binary, version_of
from bench.rivals.base import Rival, Site
from bench.template import render


def _prepare(site: Site, *, http2: bool = False) -> list[str]:
    config = render(
        "envoy.yaml",
        site.directory / "envoy.yaml",
        port=str(site.port),
        upstream_port=str(site.upstream_http2_port if http2 else site.upstream_port),
        upstream_protocol="http2_protocol_options" if http2 else "http_protocol_options",
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
    )
    argv = [envoy_binary(), "--concurrency", "1", "--log-level", "error", "-c", str(config)]
    # Two Envoys on one machine must not meet in shared memory.
    return [*argv, "--disable-hot-restart", "--file-flush-interval-msec", "1000"]


def _version() -> str:
    return version_of(["sh", "-c", f"'{envoy_binary()}' --version | sed 's,.*version: [^/]*/,,'"])


ENVOY = Rival("Envoy", "local_ratelimit, a bucket per address", _prepare, _version)
ENVOY_HTTP2 = Rival(
    "Envoy to HTTP/2",
    "local_ratelimit, a bucket per address",
    partial(_prepare, http2=True),
    _version,
)
