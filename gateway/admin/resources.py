"""What can be read of a running gateway: is it alive, is it ready, what did it count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import Metric, ProcessCollector

from gateway.admin.mux import Answer, Query, Resource, json_answer, text_answer
from gateway.admin.readiness import Readiness
from gateway.metrics import GatewayMetrics, expose


def healthz() -> Resource:
    """Alive: an answer at all says that the event loop runs."""

    async def read(_query: Query) -> Answer:
        return text_answer("ok\n")

    return Resource("/healthz", "200 while the process is alive", read)


def readyz(readiness: Callable[[], Readiness]) -> Resource:
    """Ready for traffic, with what speaks against it."""

    async def read(_query: Query) -> Answer:
        is_ready, phase, reasons = readiness()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        document = {"ready": is_ready, "phase": phase, "reasons": reasons}
        return json_answer(status, document)

    return Resource("/readyz", "200 while the gateway should get traffic, else 503", read)


def metrics_text(metrics: GatewayMetrics) -> Resource:
    """All counters for Prometheus.

    Scrapes at the same time share one encoding, and the event loop runs between its pieces:
    neither many scrapers nor many routes can hold requests up.
    """
    running: dict[str, asyncio.Task[bytes]] = {}

    async def read(query: Query) -> Answer:
        content_type = expose(metrics, query.accept).content_type
        task = running.get(content_type)
        if task is None:
            loop = asyncio.get_running_loop()
            task = running[content_type] = loop.create_task(_encode(metrics, query.accept))
            task.add_done_callback(lambda _task: running.pop(content_type))
        return Answer(HTTPStatus.OK, content_type, await task)

    return Resource("/metrics", "counters in the formats of Prometheus", read)


async def _encode(metrics: GatewayMetrics, accept: str) -> bytes:
    process = await asyncio.to_thread(_of_process)
    pieces = []
    for piece in expose(metrics, accept, process).pieces:
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces)


def _of_process() -> list[Metric]:
    """Memory, CPU and open files; counting many files takes the system a while."""
    return list(ProcessCollector(registry=None).collect())
