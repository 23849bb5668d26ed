"""All workers of a gateway together, for the admin listener.

Counters are the sum over all workers, including those that have ended (`retired_counters`), so that
no counter decreases. Gauges of a worker count if it responds in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from socket import socket
from typing import Final

from prometheus_client import Metric

from gateway.admin import Phase, Readiness, ReloadRecord, Scrape, judge_workers, of_process
from gateway.base.tasks import Tasks
from gateway.observe.metrics import GatewayMetrics, add, pieces
from gateway.workers.reports import COUNTED, STATE, WorkerReport, slices
from gateway.workers.retired_counters import RetiredCounters

ANSWER_S: Final = 1.0
"""How long a worker may take to respond."""
COLLECT_S: Final = 0.3
"""How often workers are asked for their counters without a scrape, so that one that is killed loses
few.
"""
COLLECT_MOST_S: Final = 5.0
"""How often they are asked if that takes long, because there are many counters or much to do."""
COLLECT_SHARE: Final = 1 / 50
"""The part of the time that asking may take."""

_CPU: Final = "process_cpu_seconds_total"
_START: Final = "process_start_time_seconds"


class Fleet:
    """A `Subject` of the admin listener.

    Args:
        workers: how many workers there should be.
        own: the counters of the limiter itself.
        past: the counters of workers that have ended.
        phase: starting until all workers have served once.
        warning: returns a remark about the store that they share.

    Attributes:
        reloads: what came of its reloads.
    """

    def __init__(
        self,
        workers: int,
        own: GatewayMetrics,
        retired: RetiredCounters,
        phase: Phase = Phase.STARTING,
        warning: Callable[[], str] = str,
    ) -> None:
        self._workers = workers
        self._own = own
        self._retired = retired
        self._there: list[WorkerReport] = []
        self._phase = phase
        self._warning = warning
        self.reloads = ReloadRecord(own)
        self._tasks = Tasks()
        self._all_there = asyncio.Event()
        self._patient_until = asyncio.get_running_loop().time() + ANSWER_S
        self._tasks.start(self._collect())

    async def join(self, connection: socket) -> None:
        """Add a worker that is reached over this connection, which the fleet then owns."""
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_unix_connection(WorkerReport, sock=connection)
        self._there.append(worker)
        if len(self._there) >= self._workers:
            self._all_there.set()
        self._tasks.start(self._forget_when_lost(worker))

    def drain(self) -> None:
        """Record that the gateway shuts down."""
        self._phase = Phase.DRAINING

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        took_s = 0.0
        while True:
            await asyncio.sleep(pause_s(took_s))
            began = loop.time()
            await self._ask(COUNTED)
            took_s = loop.time() - began

    async def _forget_when_lost(self, worker: WorkerReport) -> None:
        await worker.lost
        self._there.remove(worker)
        self._retired.add_ended(worker.process.get(_CPU, 0.0), worker.counted)

    async def is_alive(self) -> bool:
        """Return whether a worker responds; if there is none, one is being started."""
        return not self._there or bool(await self._ask(STATE))

    async def readiness(self) -> Readiness:
        """Return whether the workers together should get traffic."""
        answers = [worker.readiness for worker in await self._ask(STATE)]
        known = [answer for answer in answers if answer is not None]
        serving = sum(answer.phase is Phase.SERVING for answer in known)
        if self._phase is Phase.STARTING and serving >= self._workers:
            self._phase = Phase.SERVING
        return judge_workers(self._phase, known, self._workers, self._warning())

    async def scrape(self) -> Scrape:
        """Return the sum over all workers."""
        own_process = await asyncio.to_thread(of_process)
        # A restarted limiter is asked before its workers have reconnected.
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._patient_until):
                await self._all_there.wait()
        answered = await self._ask(COUNTED)
        # As of one moment: a worker that ends while the sum is made must not count twice.
        fresh = [worker for worker in self._there if worker in answered]
        silent = [worker for worker in self._there if worker not in answered]
        parts = [(worker.counted, worker in fresh) for worker in self._there]
        own = list(pieces(self._own))
        self._retired.show(_cpu_seconds(own_process), own)
        parts += [(self._retired.pieces, False), (own, True)]
        processes = [worker.process for worker in fresh]
        ended_cpu = self._retired.cpu_seconds + sum(
            worker.process.get(_CPU, 0.0) for worker in silent
        )
        total = GatewayMetrics(self._own.version, lambda: self._retired.started_us)
        total.config_applied_us = self._own.config_applied_us
        total.workers = sum(
            worker.readiness is not None and worker.readiness.phase is Phase.SERVING
            for worker in fresh
        )
        for counted, is_fresh in parts:
            for some in slices(counted):
                for piece in some:
                    add(total, piece, gauges=is_fresh)
                await asyncio.sleep(0)
        return Scrape(total, sum_of_processes(own_process, [*processes, {_CPU: ended_cpu}]))

    async def _ask(self, question: bytes) -> list[WorkerReport]:
        """Return the workers that responded."""
        asked = tuple(self._there)
        answered = await asyncio.gather(*[worker.ask(question, ANSWER_S) for worker in asked])
        return [worker for worker, has in zip(asked, answered, strict=True) if has]


def pause_s(took_s: float) -> float:
    """Return how long to wait before workers are asked again, in seconds.

    Args:
        took_s: how long it took the last time.
    """
    return min(max(COLLECT_S, took_s / COLLECT_SHARE), COLLECT_MOST_S)


def _cpu_seconds(families: Iterable[Metric]) -> float:
    return sum(one.value for each in families for one in each.samples if one.name == _CPU)


def sum_of_processes(own: Iterable[Metric], others: Sequence[dict[str, float]]) -> list[Metric]:
    """Return memory, CPU and open files of all processes, and the first of their start times."""
    families = list(own)
    for family in families:
        for place, sample in enumerate(family.samples):
            values = [sample.value, *(one[sample.name] for one in others if sample.name in one)]
            # Rounded, or the order of the addends could make a counter decrease in its last digit.
            value = min(values) if sample.name == _START else round(sum(values), 6)
            family.samples[place] = sample._replace(value=value)
    return families
