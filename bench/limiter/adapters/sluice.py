"""Sluice's own library, as docs/library.md has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from bench.limiter.job import Burst, Job, Quota
from gateway import Limiter, Policy

# Long, so that a busy machine is seen as slow and not as broken.
DEADLINE = "10s"


@asynccontextmanager
async def opened(job: Job, quota: Quota) -> AsyncIterator[Burst]:
    """A limiter with one policy."""
    options = cast("Any", {"algorithm": job.kind, "on_store_error": "closed"})
    policy = Policy(quota.name, f"{quota.count}/{quota.period_s}s", **options)
    url = job.store
    if url == "memory://":
        url += f"?max_keys={2 * job.keys}"
    async with Limiter(policy, store={"url": url, "deadline": DEADLINE}) as limiter:
        acquire = limiter.acquire

        async def burst(keys: Iterable[str]) -> int:
            passed = 0
            for key in keys:
                if await acquire(key):
                    passed += 1
            _expect_answers(limiter)
            return passed

        yield burst


def _expect_answers(limiter: Limiter) -> None:
    errors = limiter.metrics.store("main").errors
    if errors:
        raise RuntimeError(f"the store failed: {dict(errors)}")
