"""The proxy that everyone writes with aiohttp: `web.Application`, a middleware, `ClientSession`.

It is a program of its own, `python -m bench.rivals.plain PORT UPSTREAM_PORT RATE BURST LOG`,
and does the same job as the others: a token bucket per client address, forwarding over
keep-alive connections, an access log line per request.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import ClientSession, TCPConnector, web

from bench.programs import PYTHON_PATH, python
from bench.rivals.base import Rival, Site

_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "host",
}
_SESSION = web.AppKey("session", ClientSession)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Buckets:
    """A token bucket per key, in a dictionary."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._state: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> bool:
        """Spend a token if there is one."""
        now = time.monotonic()
        tokens, then = self._state.get(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        if tokens < 1:
            self._state[key] = (tokens, now)
            return False
        self._state[key] = (tokens - 1, now)
        return True


def build(upstream: str, buckets: Buckets) -> web.Application:
    """The whole proxy."""

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not buckets.take(request.remote or ""):
            return web.Response(status=429, text="Too Many Requests", headers={"Retry-After": "1"})
        return await handler(request)

    async def session(app: web.Application) -> AsyncIterator[None]:
        # aiohttp's default of 100 connections would do; the cookie jar must not be shared.
        async with ClientSession(
            connector=TCPConnector(limit=256), auto_decompress=False
        ) as client:
            app[_SESSION] = client
            yield

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        headers["X-Forwarded-For"] = request.remote or ""
        async with request.app[_SESSION].request(
            request.method,
            upstream + request.path_qs,
            headers=headers,
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    app = web.Application(middlewares=[limit])
    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


def main(port: int, upstream_port: int, rate: float, burst: float, log: str) -> None:
    """Serve until told to stop."""
    access_log = logging.getLogger("aiohttp.access")
    access_log.setLevel(logging.INFO)
    access_log.addHandler(logging.FileHandler(log))
    app = build(f"http://127.0.0.1:{upstream_port}", Buckets(rate, burst))
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=access_log)


def _prepare(site: Site) -> list[str]:
    where = [str(site.port), str(site.upstream_port)]
    limit = [str(site.rate.per_second), str(site.rate.burst)]
    return [python(), "-m", "bench.rivals.plain", *where, *limit, str(site.log)]


def _version() -> str:
    return importlib.metadata.version("aiohttp")


PLAIN = Rival(
    "plain aiohttp proxy",
    "a token bucket per address, in a dictionary",
    _prepare,
    _version,
    {"PYTHONPATH": PYTHON_PATH},
)

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
