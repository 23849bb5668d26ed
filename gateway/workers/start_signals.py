"""Signals that come during a start, before the gateway has handlers for them.

The default action of each would end the process in the middle of its start, and leave the files of
Unix sockets behind. As process 1 of a container, SIGTERM would not end it at all.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)
NOTED: Final = (*ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class StartSignals:
    """Keeps signals for the handlers to come; make it first of all.

    The second SIGTERM or SIGINT ends the process immediately, as it does later.
    """

    def __init__(self) -> None:
        self._noted: set[int] = set()
        for number in NOTED:
            signal.signal(number, self._note)
        # A predecessor lets them wait until then.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTED)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted.add(number)
        if number in ENDING:
            signal.signal(number, signal.SIG_DFL)

    @property
    def is_ending(self) -> bool:
        """Whether one has come that ends the gateway."""
        return not self._noted.isdisjoint(ENDING)

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """Install other handlers inside; they get each signal that has come so far."""
        with signals_blocked(NOTED):
            yield
        for number in self._noted:
            signal.raise_signal(number)


@contextmanager
def signals_blocked(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Let signals wait while handlers are exchanged: each gets to one handler, once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
