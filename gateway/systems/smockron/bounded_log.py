"""A log with a bound on lines that clients cause."""

from __future__ import annotations

import logging
from typing import Final

from gateway.base.clock import US, Clock

log = logging.getLogger(__name__)

LINES_PER_SECOND: Final = 20
"""The most log lines about messages of gatekeepers; more are only counted."""


class BoundedLog:
    """The log, with a bound on lines that clients cause."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def write(self, level: int, text: str, *args: object) -> None:
        """Write a line, unless there were too many in this second."""
        second = self._clock() // US
        if second != self._second:
            if self._left_out:
                log.info("smockron: %d more messages had no room in the log", self._left_out)
            self._second, self._lines, self._left_out = second, 0, 0
        if self._lines < LINES_PER_SECOND:
            self._lines += 1
            log.log(level, text, *args)
        else:
            self._left_out += 1
