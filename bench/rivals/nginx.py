"""nginx with `limit_req`, and nginx asking Redis through a few lines of Lua."""

from __future__ import annotations

from bench.programs import program, version_of
from bench.rivals.base import Rival, Site
from bench.template import nginx_user, render

_US = 1_000_000


def _command(site: Site) -> list[str]:
    return [program("nginx"), "-p", str(site.directory), "-e", "error.log", "-c", "nginx.conf"]


def _prepare(site: Site) -> list[str]:
    render(
        "nginx.conf",
        site.directory / "nginx.conf",
        user=nginx_user(),
        port=str(site.port),
        http2_port=str(site.http2_port),
        upstream_port=str(site.upstream_port),
        rate=str(site.rate.per_second),
        burst=str(site.rate.burst),
        log=str(site.log),
    )
    return _command(site)


def _prepare_lua(site: Site) -> list[str]:
    render(
        "limiter.lua",
        site.directory / "limiter.lua",
        interval_us=str(_US // site.rate.per_second),
        burst=str(site.rate.burst),
        redis_port=str(site.redis_port),
    )
    render(
        "nginx_lua.conf",
        site.directory / "nginx.conf",
        user=nginx_user(),
        port=str(site.port),
        upstream_port=str(site.upstream_port),
        log=str(site.log),
        home=str(site.directory),
    )
    return _command(site)


def _version() -> str:
    return version_of([program("nginx"), "-v"])


NGINX = Rival(
    "nginx", "limit_req per address, in its own memory", _prepare, _version, is_split=True
)
NGINX_LUA = Rival("nginx + Lua + Redis", "one EVALSHA per request", _prepare_lua, _version)
