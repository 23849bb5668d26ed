"""All workers of a gateway together, for the admin listener.

Counters are the sum of all ledgers, in which processes that have ended count as those that run, so
no counter decreases. Gauges of a worker count if it responds in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from socket import socket
from typing import Final, TypeVar

from prometheus_client import Metric

from gateway.admin import Phase, Readiness, ReloadRecord, Scrape, judge_workers, of_process
from gateway.base.clock import US
from gateway.base.tasks import Tasks
from gateway.board.ledger import cpu_us, entries
from gateway.board.ledger_file import LedgerFile
from gateway.observe.metrics import GatewayMetrics, ShownNames, add, add_counts, pieces
from gateway.observe.metrics.shared import SharedMetrics
from gateway.workers.reports import CPU, GAUGES, PIECES, STATE, WorkerReport

ANSWER_S: Final = 1.0
"""How long a worker may take to respond."""
_START: Final = "process_start_time_seconds"

T = TypeVar("T")


class Fleet:
    """A `Subject` of the admin listener.

    Args:
        workers: how many workers there should be.
        own: the counters of the limiter itself.
        ledgers: those of all processes.
        names: what the configuration has counters for.
        phase: starting until all workers have served once.
        warning: returns a remark about the store that they share.

    Attributes:
        names: as given; set it when the configuration changes.
        reloads: what came of its reloads.
    """

    def __init__(
        self,
        workers: int,
        own: SharedMetrics,
        ledgers: LedgerFile,
        names: ShownNames,
        phase: Phase = Phase.STARTING,
        warning: Callable[[], str] = str,
    ) -> None:
        self._workers = workers
        self._own = own
        self._ledgers = ledgers
        self.names = names
        self._there: list[WorkerReport] = []
        self._phase = phase
        self._warning = warning
        self.reloads = ReloadRecord(own)
        self._tasks = Tasks()
        self._all_there = asyncio.Event()
        self._patient_until = asyncio.get_running_loop().time() + ANSWER_S

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

    async def _forget_when_lost(self, worker: WorkerReport) -> None:
        await worker.lost
        self._there.remove(worker)

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
        answered = await self._ask(GAUGES)
        self._own.used_cpu(_value(own_process, CPU))
        # Those that have ended meanwhile have no gauges.
        fresh = [worker for worker in self._there if worker in answered]
        total = GatewayMetrics(self._own.version, lambda: self._ledgers.started_us)
        total.config_applied_us = self._own.config_applied_us
        total.workers = sum(
            worker.readiness is not None and worker.readiness.phase is Phase.SERVING
            for worker in fresh
        )
        processes = [worker.process for worker in fresh]
        gauges = [piece for worker in fresh for piece in worker.gauges]
        for some in _slices(chain(pieces(self._own), gauges)):
            for piece in some:
                add(total, piece)
            await asyncio.sleep(0)
        copies = await asyncio.to_thread(self._ledgers.copies)
        for part in _slices(chain.from_iterable(map(entries, copies))):
            for entry in part:
                add_counts(total, *entry)
            await asyncio.sleep(0)
        total.keep(self.names)
        cpu_seconds = sum(map(cpu_us, copies)) / US
        return Scrape(total, sum_of_processes(own_process, processes, cpu_seconds))

    async def _ask(self, question: bytes) -> list[WorkerReport]:
        """Return the workers that responded."""
        asked = tuple(self._there)
        answered = await asyncio.gather(*[worker.ask(question, ANSWER_S) for worker in asked])
        return [worker for worker, has in zip(asked, answered, strict=True) if has]


def _slices(every: Iterable[T]) -> Iterator[list[T]]:
    """Yield parts that delay nothing."""
    left = iter(every)
    while some := list(islice(left, PIECES)):
        yield some


def _value(families: Iterable[Metric], name: str) -> float:
    return sum(one.value for each in families for one in each.samples if one.name == name)


def sum_of_processes(
    own: Iterable[Metric], others: Sequence[dict[str, float]], cpu_seconds: float
) -> list[Metric]:
    """Return memory and open files of all processes, the first of their start times, and CPU time.

    Args:
        own: of this process.
        others: of the others that are there.
        cpu_seconds: the CPU time of all, and of those that have ended.
    """
    families = list(own)
    for family in families:
        for place, sample in enumerate(family.samples):
            values = [sample.value, *(one[sample.name] for one in others if sample.name in one)]
            value = min(values) if sample.name == _START else sum(values)
            if sample.name == CPU:
                value = cpu_seconds
            family.samples[place] = sample._replace(value=value)
    return families
