"""Background tasks: kept from the garbage collector, and never failing silently."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

log = logging.getLogger(__name__)


LOOK_S: Final = 0.005
AT_ONCE: Final = 16
"""How many pieces of work, of some dozens of microseconds each, run in one turn of the loop."""


async def becomes(is_so: Callable[[], bool], within_s: float) -> bool:
    """Poll until a condition is true; returns False if time runs out first.

    For conditions without an event, such as whether a store is ready: the interface of stores is
    kept small, so that it is easy to write one.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + within_s
    while not is_so():
        if loop.time() >= due:
            return False
        await asyncio.sleep(LOOK_S)
    return True


class Tasks:
    """The tasks of one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task and log any exception it raises."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for all tasks for at most `seconds`, then cancel the rest.

        Includes tasks that are started in the meantime.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while self._tasks and (left := due - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
            # Their callbacks run first and do the cleanup.
            await asyncio.sleep(0)
        late = list(self._tasks)
        self.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them to end."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("A background task failed", exc_info=task.exception())


class Portions:
    """Work that may arrive in thousands of pieces at a time: a few are done per turn of the loop.

    While there are few, they run immediately. All others are delayed and must tolerate that.

    Args:
        at_once: how many pieces run per turn.
    """

    __slots__ = ("_at_once", "_left", "_loop", "_rest")

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = -1
        self._rest: deque[Callable[[], object]] = deque()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._rest)

    def do(self, piece: Callable[[], object]) -> None:
        """Run a piece of work after those that were added before it."""
        if self._left < 0:
            self._left = self._at_once
            self._loop.call_soon(self._go_on)
        if self._left and not self._rest:
            self._left -= 1
            piece()
        else:
            self._rest.append(piece)

    def _go_on(self) -> None:
        """Run the next portion."""
        if not self._rest:
            self._left = -1
            return
        self._loop.call_soon(self._go_on)
        self._left = self._at_once
        while self._rest and self._left:
            self._left -= 1
            self._rest.popleft()()


class Background:
    """One task that runs until it is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not ended."""
        return self._task is not None

    def start(self) -> None:
        """Start it, unless it is running already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def end(self) -> None:
        """Cancel it, wait for its end, and raise what it raised."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
