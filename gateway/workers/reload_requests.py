"""Requests for a reload that come to the limiter, which has the admin listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.admin import ReloadOutcome, ReloadRecord, not_possible
from gateway.wiring.reloading import STOPPING
from gateway.workers.parcels import unpack
from gateway.workers.reload import ReloadReport


class ReloadRequests:
    """Passes them to the supervisor, and its reports to those who asked; a `Reloadable`.

    Args:
        name: of the configuration, for messages: its file or folder.
        ask: asks the supervisor, with the number of requests so far.
        record: takes note of the outcome of every reload.
    """

    def __init__(self, name: str, ask: Callable[[int], None], record: ReloadRecord) -> None:
        self.file = name
        self._ask = ask
        self._record = record
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[ReloadOutcome]] = {}
        self._is_stopping = False

    async def reload(self) -> ReloadOutcome:
        """Reload now, or after the reload in progress: see `Reloadable`."""
        if self._is_stopping:
            return self._stopping
        self._requests += 1
        future: asyncio.Future[ReloadOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[self._requests] = future
        self._ask(self._requests)
        return await future

    def take(self, files: list[int]) -> ReloadReport:
        """Take note of the outcome of a reload, which the supervisor reports in a file."""
        (file,) = files
        report = cast("ReloadReport", unpack(file))
        self._record.note(report.outcome, report.ended_us)
        self._answer(report.requests, report.outcome)
        return report

    def stop(self) -> None:
        """Answer that the gateway stops."""
        self._is_stopping = True
        self._answer(self._requests, self._stopping)

    @property
    def _stopping(self) -> ReloadOutcome:
        return not_possible(self.file, STOPPING)

    def _answer(self, requests: int, outcome: ReloadOutcome) -> None:
        for number in [number for number in self._waiting if number <= requests]:
            future = self._waiting.pop(number)
            # A client that left does not wait any more.
            if not future.done():
                future.set_result(outcome)
