"""What the log says of a bound that turns somebody away: not each time, and never nothing at all.

A bound that refuses in silence looks like a fault of something else. The first refusal is told at
once; those that follow are counted, and told once a minute for as long as there are any.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

TELL_AGAIN_S: Final = 60.0


class Refusals:
    """The refusals of one bound.

    Args:
        log: where they are told.
        what: what is refused, and by which setting, such as `clients are refused:
            server.max_connections (1000) is reached`.
    """

    __slots__ = ("_count", "_log", "_timer", "_what")

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """There was one."""
        if self._timer is None:
            self._log.warning("%s", self._what)
            self._tell_later()
        else:
            self._count += 1

    def stop(self) -> None:
        """Tell what was not told yet, and no more after that."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _tell_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TELL_AGAIN_S, self._minute_is_over)

    def _minute_is_over(self) -> None:
        if self._tell():
            self._tell_later()

    def _tell(self) -> bool:
        """Say how many there were; returns False if there were none."""
        self._timer = None
        count, self._count = self._count, 0
        if count:
            self._log.warning("%s: %d more since this was last said", self._what, count)
        return bool(count)
