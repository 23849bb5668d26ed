"""PyPI `limits`: the strategies of its quick start, `limits.aio` on Redis.

Its default client of Redis is coredis; redis-py, with hiredis, is the other that it offers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
from limits import RateLimitItemPerSecond

from bench.limiter.job import Burst, Job, Quota


@asynccontextmanager
async def opened(job: Job, quota: Quota) -> AsyncIterator[Burst]:
    """`hit` of a strategy; `job.kind` is its class, and the client of Redis after a space."""
    strategy, _, client = job.kind.partition(" ")
    item = RateLimitItemPerSecond(quota.count, quota.period_s)
    yield _shared(job, item, strategy, client) if client else _in_memory(item, strategy)


def _in_memory(item: RateLimitItemPerSecond, strategy: str) -> Burst:
    hit = getattr(limits.strategies, strategy)(limits.storage.MemoryStorage()).hit

    def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if hit(item, key):
                passed += 1
        return passed

    return burst


def _shared(job: Job, item: RateLimitItemPerSecond, strategy: str, client: str) -> Burst:
    storage = limits.aio.storage.RedisStorage(f"async+{job.store}", implementation=client)
    hit = getattr(limits.aio.strategies, strategy)(storage).hit

    async def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if await hit(item, key):
                passed += 1
        return passed

    return burst
