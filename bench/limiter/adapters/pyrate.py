"""PyPI `pyrate-limiter`: a bucket for each key, found by a `BucketFactory` as its README has it.

GCRA, which it also calls token bucket, is on a `StateBucket`; the others are on the buckets that
log every request. All buckets are made before anything is measured. On Redis the coroutine of
`try_acquire` is awaited: `try_acquire_async` would let one decision go at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pyrate_limiter
import redis.asyncio
from pyrate_limiter import (
    AbstractBucket,
    BucketFactory,
    InMemoryBucket,
    Limiter,
    MonotonicClock,
    Rate,
    RateItem,
    RedisBucket,
    RedisStateStore,
    StateBucket,
    WallClock,
)

from bench.limiter.drive import key_names
from bench.limiter.job import Burst, Job, Quota

MS = 1_000


class PerKey(BucketFactory):  # type: ignore[misc]
    """Every key has its bucket."""

    def __init__(
        self, clock: MonotonicClock | WallClock, buckets: dict[str, AbstractBucket]
    ) -> None:
        self.clock = clock
        self.buckets = buckets
        for bucket in buckets.values():
            if not isinstance(bucket, StateBucket):
                self.schedule_leak(bucket)

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        """Stamp a request with the time."""
        return RateItem(name, self.clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        """The bucket of its key."""
        return self.buckets[item.name]


@asynccontextmanager
async def opened(job: Job, quota: Quota) -> AsyncIterator[Burst]:
    """`try_acquire` of a `Limiter`; `job.kind` is the class of the algorithm."""
    algorithm = getattr(pyrate_limiter, job.kind)()
    rates = [Rate(quota.count, quota.period_s * MS)]
    has_log = not isinstance(algorithm, pyrate_limiter.StateAlgorithm)
    keys = key_names(job.keys)
    buckets: dict[str, AbstractBucket]
    if job.store == "memory://":
        make = InMemoryBucket if has_log else StateBucket
        buckets = {key: make(rates, algorithm=algorithm) for key in keys}
        with Limiter(PerKey(MonotonicClock(), buckets)) as limiter:
            yield _in_memory(limiter)
        return
    client = redis.asyncio.Redis.from_url(job.store)
    if has_log:
        buckets = {
            key: await RedisBucket.init(rates, client, f"{quota.name}:{key}", algorithm)
            for key in keys
        }
    else:
        buckets = {
            key: StateBucket(
                rates, algorithm=algorithm, store=RedisStateStore(client, f"{quota.name}:{key}")
            )
            for key in keys
        }
    with Limiter(PerKey(WallClock(), buckets)) as limiter:
        yield _shared(limiter)
    await client.aclose()


def _in_memory(limiter: Limiter) -> Burst:
    try_acquire = limiter.try_acquire

    def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if try_acquire(key, blocking=False):
                passed += 1
        return passed

    return burst


def _shared(limiter: Limiter) -> Burst:
    try_acquire = limiter.try_acquire

    async def burst(keys: Iterable[str]) -> int:
        passed = 0
        for key in keys:
            if await try_acquire(key, blocking=False):
                passed += 1
        return passed

    return burst
