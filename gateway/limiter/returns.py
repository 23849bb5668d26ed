"""What is given back to a store, a few at a time, and never waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.base.errors import StoreError
from gateway.base.tasks import Tasks
from gateway.limits.decision import Verdict
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, Store

RETURNED_AT_ONCE: Final = 32
"""Asks that are given back concurrently; the others wait, so that they do not fill a connection."""


class Returns:
    """Gives admissions back to a store.

    Args:
        store: the store that admitted them.
        deadline_s: how long one call may take, in seconds.
        metrics: counts those that are lost.
        tasks: what runs the calls.

    Attributes:
        deadline_s: see above.
    """

    __slots__ = ("_metrics", "_queue", "_running", "_store", "_tasks", "deadline_s")

    def __init__(
        self, store: Store, deadline_s: float, metrics: StoreMetrics, tasks: Tasks
    ) -> None:
        self._store = store
        self.deadline_s = deadline_s
        self._metrics = metrics
        self._tasks = tasks
        self._queue: deque[tuple[Ask, Verdict]] = deque()
        self._running = 0

    def add(self, ask: Ask, verdict: Verdict) -> None:
        """Give an admission back soon."""
        self._queue.append((ask, verdict))
        if self._running < RETURNED_AT_ONCE:
            self._running += 1
            self._tasks.start(self._run())

    def drop(self) -> None:
        """Give up what has not been given back yet."""
        if self._queue:
            self._metrics.errors["give_back"] += len(self._queue)
            self._queue.clear()

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._give_back(*self._queue.popleft())
        finally:
            self._running -= 1

    async def _give_back(self, ask: Ask, verdict: Verdict) -> None:
        try:
            async with asyncio.timeout(self.deadline_s):
                await self._store.give_back(ask, verdict)
        except (StoreError, TimeoutError):
            # The turn stays taken: too little may pass then, never too much.
            self._metrics.errors["give_back"] += 1
        except asyncio.CancelledError:
            self._metrics.errors["give_back"] += 1
            raise
