"""Tasks in the background: kept from the garbage collector, and never failing in silence."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

log = logging.getLogger(__name__)


LOOK_S: Final = 0.005
AT_ONCE: Final = 16
"""Pieces of work in a turn of the loop, of some dozens of microseconds each."""


async def becomes(is_so: Callable[[], bool], within_s: float) -> bool:
    """Look again and again whether something is so; returns False if it is not in time.

    For what has no event, such as whether a store is ready: the contract of stores is short, so
    that one's own is easy to write.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + within_s
    while not is_so():
        if loop.time() >= due:
            return False
        await asyncio.sleep(LOOK_S)
    return True


class Tasks:
    """Tasks of one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for all of them, at most for `seconds`; the rest is cancelled.

        Those that are started meanwhile are waited for as well.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while self._tasks and (left := due - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
            # What they leave behind is done by callbacks, which come first.
            await asyncio.sleep(0)
        late = list(self._tasks)
        self.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel all of them, without waiting for their end."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("A background task failed", exc_info=task.exception())


class Portions:
    """Work of which thousands of pieces may come at once: a few are done in each turn of the loop.

    As long as few come they are done at once. What is put off must bear it.

    Args:
        at_once: how many pieces.
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
        """Do a piece of work, after those that came before it."""
        if self._left < 0:
            self._left = self._at_once
            self._loop.call_soon(self._go_on)
        if self._left and not self._rest:
            self._left -= 1
            piece()
        else:
            self._rest.append(piece)

    def _go_on(self) -> None:
        """Another turn of the loop."""
        if not self._rest:
            self._left = -1
            return
        self._loop.call_soon(self._go_on)
        self._left = self._at_once
        while self._rest and self._left:
            self._left -= 1
            self._rest.popleft()()


class Background:
    """One task that goes on until it is ended."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended yet."""
        return self._task is not None

    def start(self) -> None:
        """Start it, unless it is running."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def end(self) -> None:
        """Cancel it and wait for its end; what it raised is raised."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
