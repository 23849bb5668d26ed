"""Log lines about a limit of the gateway itself that refuses clients or requests.

A limit that refuses silently looks like another fault. The first refusal is logged immediately;
later ones are counted and reported once a minute for as long as there are any.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

TELL_AGAIN_S: Final = 60.0


class Refusals:
    """The refusals of one limit.

    Args:
        log: the logger to write to.
        what: what is refused and by which setting, such as `clients are refused:
            server.max_connections (1000) is reached`.
    """

    __slots__ = ("_count", "_log", "_timer", "_what")

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Record one refusal."""
        if self._timer is None:
            self._log.warning("%s", self._what)
            self._log_later()
        else:
            self._count += 1

    def stop(self) -> None:
        """Log what is still unreported, and stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._log_count()

    def _log_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TELL_AGAIN_S, self._log_after_a_minute)

    def _log_after_a_minute(self) -> None:
        if self._log_count():
            self._log_later()

    def _log_count(self) -> bool:
        """Log how many there were; returns False if there were none."""
        self._timer = None
        count, self._count = self._count, 0
        if count:
            self._log.warning("%s: %d more since the last message", self._what, count)
        return bool(count)
