"""Lines of callers, first come, first served, for policies without a queue.

A policy without a queue refuses immediately, in every gateway that shares its store. Callers that
wait anyway must ask again; only the first of a line does so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from gateway.base.clock import US
from gateway.limiter.plan import UNBOUNDED_WAIT_US


class CallerDeadline:
    """The remaining wait of a caller.

    Args:
        seconds: from now on; None for no limit.

    Attributes:
        due: when it ends, by the clock of the loop; None for never.
    """

    __slots__ = ("_loop", "due")

    def __init__(self, seconds: float | None) -> None:
        if not isinstance(seconds, int | float | None):
            raise TypeError(f"a wait is a number of seconds, not {seconds!r}")
        self._loop = asyncio.get_running_loop()
        self.due = None if seconds is None else self._loop.time() + max(seconds, 0)

    @property
    def microseconds(self) -> int:
        """Return the rest of it, rounded down; 0 when it is over."""
        if self.due is None:
            return UNBOUNDED_WAIT_US
        return max(0, int((self.due - self._loop.time()) * US))


class CallerLines:
    """One line per name that callers wait for."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, asyncio.Future[None]] = {}
        self._lines: dict[Hashable, OrderedDict[asyncio.Future[None], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def wait_in_line(self, name: Hashable) -> AsyncIterator[None]:
        """Come to the front of the line, and leave it afterwards."""
        line = self._lines.setdefault(name, OrderedDict())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line[place] = None
        try:
            if next(iter(line)) is not place:
                await place
            yield
        finally:
            # From anywhere in the line: thousands may leave together.
            del line[place]
            if not line:
                del self._lines[name]
            elif not (first := next(iter(line))).done():
                first.set_result(None)

    async def pause(self, name: Hashable, seconds: float) -> None:
        """As the first of the line, wait this long, or until `wake` is called."""
        loop = asyncio.get_running_loop()
        pause = self._pauses[name] = loop.create_future()
        timer = loop.call_later(seconds, _end, pause)
        try:
            await pause
        finally:
            timer.cancel()
            del self._pauses[name]

    def wake(self) -> None:
        """Wake the first of each line: something was given back."""
        for pause in self._pauses.values():
            _end(pause)


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
