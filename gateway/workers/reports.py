"""The limiter's questions to workers, and their answers.

What workers have counted is in their ledgers; they are asked for what is true only now. A question
is one byte; answers are JSON frames, any number of them for `GAUGES`. A worker is asked one
question of a kind at a time, so answers need no number.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, cast

from gateway.admin import Phase, Readiness, of_process
from gateway.base.tasks import Tasks
from gateway.observe.metrics import Piece, pieces
from gateway.observe.metrics.shared import SharedMetrics
from gateway.stores.shared.frames import Splitter, frame
from gateway.wiring.gateway import Gateway

STATE: Final = b"s"
GAUGES: Final = b"g"

CPU: Final = "process_cpu_seconds_total"

PIECES: Final = 64
"""How many pieces are written and read in one step, between turns of the loops."""


class Reporter(asyncio.Protocol):
    """A worker's end of the connection.

    Args:
        gateway: the worker.
        metrics: its counters.
    """

    def __init__(self, gateway: Gateway, metrics: SharedMetrics) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._transport: asyncio.Transport | None = None
        self._tasks = Tasks()
        self._telling = asyncio.Lock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record that the limiter is connected."""
        # A cast, not an assertion: uvloop's transports only behave like one.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer a question."""
        if STATE in data:
            self._send({"state": self._gateway.readiness})
        if GAUGES in data:
            self._tasks.start(self._report())

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the limiter is gone."""
        self._transport = None
        self._tasks.cancel()

    async def _report(self) -> None:
        async with self._telling:
            process = await asyncio.to_thread(_process)
            self._metrics.used_cpu(process.get(CPU, 0.0))
            every = pieces(self._metrics)
            while some := list(islice(every, PIECES)):
                self._send({"pieces": some})
                await asyncio.sleep(0)
            self._send({"process": process, "state": self._gateway.readiness})

    def _send(self, answer: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(frame(1, json.dumps(answer).encode()))


def _process() -> dict[str, float]:
    return {sample.name: sample.value for family in of_process() for sample in family.samples}


class WorkerReport(asyncio.Protocol):
    """The limiter's end of the connection to one worker.

    Attributes:
        gauges: the values of the worker that change, as of its last answer.
        process: its memory and open files, likewise.
        readiness: whether it should get traffic, likewise; None before its first answer.
        lost: a future that is done when the worker is gone.
    """

    def __init__(self) -> None:
        self.gauges: list[Piece] = []
        self.process: dict[str, float] = {}
        self.readiness: Readiness | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coming: list[Piece] = []
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._asked: dict[bytes, asyncio.Future[None]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record that the worker is connected."""
        self._transport = cast("asyncio.Transport", transport)

    async def ask(self, question: bytes, within_s: float) -> bool:
        """Ask the worker, unless a question is pending; returns whether it answered in time."""
        asked = self._asked.get(question)
        if asked is None or asked.done():
            if self._transport is None:
                return False
            asked = self._asked[question] = asyncio.get_running_loop().create_future()
            self._transport.write(question)
        await asyncio.wait(
            {asked, self.lost}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
        )
        return asked.done()

    def data_received(self, data: bytes) -> None:
        """Read its answers."""
        try:
            for one in self._splitter.feed(data):
                self._take(json.loads(one[1:]))
        except (ValueError, KeyError, TypeError):
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the worker is gone."""
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)

    def _take(self, answer: dict[str, Any]) -> None:
        if "pieces" in answer:
            self._coming += answer["pieces"]
            return
        is_ready, phase, reasons = answer["state"]
        self.readiness = Readiness(is_ready, Phase(phase), tuple(reasons))
        question = STATE
        if "process" in answer:
            question = GAUGES
            self.gauges, self._coming = self._coming, []
            self.process = answer["process"]
        asked = self._asked.get(question)
        if asked is not None and not asked.done():
            asked.set_result(None)
