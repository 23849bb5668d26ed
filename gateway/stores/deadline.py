"""How long one call to a store may take."""

from __future__ import annotations

import asyncio

from gateway.errors import StoreTimeout


class Deadline:
    """Ends what its task waits for with `StoreTimeout`.

    `asyncio.timeout` would do the same, but cannot tell a slow store from a stall of this
    process: then the answer may be lying in the socket all the while, so there is one more
    span of time to look for it.
    """

    __slots__ = ("_due", "_is_extended", "_is_over", "_loop", "_seconds", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._is_extended = False
        self._is_over = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._due = self._loop.time() + self._seconds
        self._timer = self._loop.call_later(self._seconds, self._end)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise StoreTimeout("no answer within the deadline") from None

    def _end(self) -> None:
        if not self._is_extended and self._loop.time() - self._due > self._seconds / 4:
            self._is_extended = True
            self._timer = self._loop.call_later(self._seconds, self._end)
        elif self._task is not None:
            self._is_over = True
            self._task.cancel()
