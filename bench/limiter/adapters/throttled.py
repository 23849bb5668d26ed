"""PyPI `throttled-py`: `Throttled.limit`, `throttled.asyncio` on Redis.

Its memory store holds 1,024 keys unless told otherwise, and a sliding window takes two for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import throttled
import throttled.asyncio

from bench.limiter.job import Burst, Job, Quota


@asynccontextmanager
async def opened(job: Job, quota: Quota) -> AsyncIterator[Burst]:
    """`limit` of a `Throttled`; `job.kind` is what it is `using`."""
    of = throttled.per_duration(timedelta(seconds=quota.period_s), quota.count, quota.count)
    yield _in_memory(job, of) if job.store == "memory://" else _shared(job, of, quota.name)


def _in_memory(job: Job, of: throttled.Quota) -> Burst:
    store = throttled.MemoryStore(options={"MAX_SIZE": 4 * job.keys})
    limit = throttled.Throttled(using=job.kind, quota=of, store=store).limit

    def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if not limit(key).limited:
                passed += 1
        return passed

    return burst


def _shared(job: Job, of: throttled.Quota, name: str) -> Burst:
    store = throttled.asyncio.RedisStore(server=job.store)
    made = throttled.asyncio.Throttled(using=job.kind, quota=of, store=store, key_prefix=name)
    limit = made.limit

    async def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if not (await limit(key)).limited:
                passed += 1
        return passed

    return burst
