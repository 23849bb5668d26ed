"""The resources of the admin listener: liveness, readiness, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from prometheus_client import Metric, ProcessCollector

from gateway.admin.mux import AdminAnswer, Query, Resource, json_answer, problem, text_answer
from gateway.admin.readiness import Readiness
from gateway.admin.reloading import ReloadRecord
from gateway.observe.metrics import GatewayMetrics
from gateway.observe.metrics.exposition import content_type, expose

PART_BYTES: Final = 65_536
"""The size of a piece of a scrape, which is sent in one write."""


class Scrape(NamedTuple):
    """All counters.

    Attributes:
        metrics: the counters of the gateway.
        process: memory, CPU and open files.
    """

    metrics: GatewayMetrics
    process: Sequence[Metric]


class Subject(Protocol):
    """A gateway as the admin listener sees it."""

    @property
    def reloads(self) -> ReloadRecord:
        """What came of its reloads."""

    async def is_alive(self) -> bool:
        """Whether it works; if not, it should be restarted."""

    async def readiness(self) -> Readiness:
        """Whether it should get traffic."""

    async def scrape(self) -> Scrape:
        """Its counters."""


class OneProcess:
    """A gateway that is this process.

    Args:
        metrics: its counters.
        readiness: called each time.
        reloads: what came of its reloads.
    """

    def __init__(
        self,
        metrics: GatewayMetrics,
        readiness: Callable[[], Readiness],
        reloads: ReloadRecord,
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self.reloads = reloads

    async def is_alive(self) -> bool:
        """Return True: any response shows that the event loop runs."""
        return True

    async def readiness(self) -> Readiness:
        """Return the readiness."""
        return self._readiness()

    async def scrape(self) -> Scrape:
        """Return the counters themselves."""
        return Scrape(self._metrics, await asyncio.to_thread(of_process))


def healthz(subject: Subject) -> Resource:
    """Report liveness."""

    async def read(_query: Query) -> AdminAnswer:
        if await subject.is_alive():
            return text_answer("ok\n")
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "No worker of the gateway responds.")

    return Resource("/healthz", "200 while the process is alive", read, is_for_all=True)


def readyz(subject: Subject) -> Resource:
    """Report readiness, with reasons."""

    async def read(_query: Query) -> AdminAnswer:
        is_ready, phase, reasons = await subject.readiness()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        document: dict[str, object] = {"ready": is_ready, "phase": phase, "reasons": reasons}
        document["config"] = subject.reloads.document
        if failed := subject.reloads.failed_upgrade:
            document["upgrade"] = failed
        return json_answer(status, document)

    return Resource(
        "/readyz", "200 while the gateway should get traffic, else 503", read, is_for_all=True
    )


def metrics_text(subject: Subject) -> Resource:
    """Return all counters for Prometheus.

    Concurrent scrapes share one encoding, and the event loop runs between its pieces: neither many
    scrapers nor many routes delay requests.
    """
    running: dict[str, asyncio.Task[list[bytes]]] = {}

    async def read(query: Query) -> AdminAnswer:
        form = content_type(query.accept)
        task = running.get(form)
        if task is None:
            loop = asyncio.get_running_loop()
            task = running[form] = loop.create_task(_encode(subject, query.accept))
            task.add_done_callback(lambda _task: running.pop(form))
        return AdminAnswer(HTTPStatus.OK, form, await task)

    return Resource("/metrics", "counters in the formats of Prometheus", read, is_for_all=True)


async def _encode(subject: Subject, accept: str) -> list[bytes]:
    """Yield the text in parts of this size; the event loop runs between the pieces of each."""
    metrics, process = await subject.scrape()
    parts = []
    part = bytearray()
    for piece in expose(metrics, accept, process).pieces:
        part += piece
        if len(part) >= PART_BYTES:
            parts.append(bytes(part))
            part.clear()
        await asyncio.sleep(0)
    return [*parts, bytes(part)]


def of_process() -> list[Metric]:
    """Return memory, CPU and open files of this process; counting many files takes a while."""
    return list(ProcessCollector(registry=None).collect())
