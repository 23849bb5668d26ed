"""The process that measures one library: `python -m bench.limiter.worker JOB`.

It says a line when it is ready, and then answers each line of its input, an order, with one of
its output, a sample. It ends with its input.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import AsyncExitStack
from importlib import import_module

import uvloop

from bench.limiter.drive import in_disorder, many_in_flight, one_at_a_time
from bench.limiter.job import READY, Burst, Job, Opened, Order, Sample


async def serve(job: Job) -> None:
    """Open the library once for each quota, and obey orders."""
    opened: Opened = import_module(f"bench.limiter.adapters.{job.module}").opened
    async with AsyncExitStack() as stack:
        bursts = {
            quota.name: await stack.enter_async_context(opened(job, quota)) for quota in job.quotas
        }
        print(READY, flush=True)
        # In a thread, so that what a library does in the background goes on between orders.
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = Order.from_text(line)
            print((await _obey(bursts[order.quota], job, order)).as_text(), flush=True)


async def _obey(burst: Burst, job: Job, order: Order) -> Sample:
    keys = in_disorder(job.keys, order.seed)
    gc.collect()
    if job.in_flight == 1:
        return await one_at_a_time(burst, keys, order)
    return await many_in_flight(burst, keys, order, job.in_flight)


if __name__ == "__main__":
    uvloop.run(serve(Job.from_text(sys.argv[1])))
