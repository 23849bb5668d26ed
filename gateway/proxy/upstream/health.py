"""Health checks: each probes a target over a connection of its own.

`gateway.proxy.upstream.balancing.checks` interprets consecutive checks, and
`gateway.proxy.upstream.load_balancer` handles unhealthy targets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Container, Iterable
from functools import partial
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import UpstreamError
from gateway.base.tasks import Tasks
from gateway.config.models.balancing import HealthConfig, numbers
from gateway.config.values.units import format_duration
from gateway.proxy.upstream.connection import UpstreamConnection
from gateway.proxy.upstream.grpc_health import grpc_check, grpc_failure
from gateway.proxy.upstream.pool import TargetPool
from gateway.proxy.upstream.targets import Upstream

JITTER: Final = 0.1
"""Relative jitter of the interval, so that the checks of many gateways do not coincide."""
USER_AGENT: Final = "sluice-health"
JudgeCheck = Callable[[UpstreamConnection], Awaitable[str]]
EXPECTED: Final = range(200, 400)


class HealthChecks:
    """Checks the targets of upstreams that configure checks."""

    def __init__(self) -> None:
        self._checking: dict[Upstream, list[asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<HealthChecks of {len(self._tasks)} targets>"

    def watch(self, upstreams: Iterable[Upstream]) -> None:
        """Check these upstreams and no others: new ones now, and then at their intervals."""
        wanted = [upstream for upstream in upstreams if upstream.health is not None]
        for upstream in [one for one in self._checking if one not in wanted]:
            for task in self._checking.pop(upstream):
                task.cancel()
        for upstream in wanted:
            if upstream not in self._checking and upstream.health is not None:
                self._checking[upstream] = [
                    self._tasks.start(_watch(upstream, index, upstream.health))
                    for index in range(len(upstream.pools))
                ]

    async def stop(self) -> None:
        """Stop checking; abandon the checks in progress."""
        self._checking.clear()
        await self._tasks.finish(0)


async def _watch(upstream: Upstream, index: int, config: HealthConfig) -> None:
    pool = upstream.pools[index]
    request = check_request(pool, config)
    expected = numbers(config.status) or EXPECTED
    judge = grpc_failure if config.grpc is not None else partial(_failure, expected)
    while True:
        upstream.checked(index, await _check(pool, request, judge, config.timeout))
        every = config.every * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        await asyncio.sleep(every / US)


async def _check(pool: TargetPool, request: bytes, judge: JudgeCheck, timeout_us: int) -> str:
    """Check once; return why the check failed, or nothing if it passed."""
    try:
        async with asyncio.timeout(timeout_us / US):
            connection = await pool.open_apart()
            try:
                if not request:
                    return ""
                connection.begin(request, is_head=False, on_interim=None, is_whole=True)
                await connection.head()
                return await judge(connection)
            finally:
                connection.abort()
    except TimeoutError:
        return f"no answer within {format_duration(timeout_us)}"
    except UpstreamError as error:
        return f"{error.kind} ({error})"


async def _failure(expected: Container[int], connection: UpstreamConnection) -> str:
    """Return what is wrong with the answer to a check; nothing if it passed."""
    status = connection.answer.status
    return "" if status in expected else f"status {status}"


def check_request(pool: TargetPool, config: HealthConfig) -> bytes:
    """Return the bytes of a check; empty if connecting is enough."""
    host = config.host or pool.authority
    if config.grpc is not None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in config.headers.items())
        return grpc_check(config.grpc, f"Host: {host}\r\nUser-Agent: {USER_AGENT}\r\n{lines}")
    if config.path is None:
        return b""
    fields = {
        "Host": host,
        "User-Agent": USER_AGENT,
        "Accept": "*/*",
        **config.headers,
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"GET {config.path} HTTP/1.1\r\n{lines}\r\n".encode("ascii")
