"""Wakes the event loop of another worker, which then looks at the board."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

ONE: Final = (1).to_bytes(8, sys.byteorder)
"""What is written: an event descriptor takes numbers of this size, a pipe anything."""
MANY: Final = 4096


class Bell:
    """Rung by any process, heard by one; made before they are forked.

    Attributes:
        heard: the descriptor that can be read once it was rung.
    """

    __slots__ = ("_rung", "heard")

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.heard = self._rung = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            self.heard, self._rung = os.pipe()
            os.set_blocking(self.heard, False)
            os.set_blocking(self._rung, False)

    def ring(self) -> None:
        """Wake the process that listens; never blocks."""
        # If it is full, that process is about to wake anyway.
        with suppress(BlockingIOError):
            os.write(self._rung, ONE)

    def silence(self) -> None:
        """Forget how often it was rung."""
        with suppress(BlockingIOError):
            os.read(self.heard, MANY)

    def close(self) -> None:
        """Close its descriptors in this process."""
        for descriptor in {self.heard, self._rung}:
            os.close(descriptor)
