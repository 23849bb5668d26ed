"""Ends a process whose parent is killed, also if it does not run its event loop then.

A child that runs notices by its channel that the supervisor has ended (`orders`). One that is
stopped, or in an endless loop, does not, and nobody is left whose watchdog would kill it: it would
keep the port for as long as it hangs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from functools import partial
from types import FrameType
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""From <linux/prctl.h>."""


def end_with_parent(parent: int, seconds: float) -> None:
    """Let the system continue this process when its parent ends, and end it some time later.

    Args:
        parent: the id of the parent.
        seconds: how long it may take to end by itself.
    """
    # Of the signals that the system can send then, this is the only one that a stopped process
    # notices and that does not end one that has requests to finish.
    signal.signal(signal.SIGCONT, partial(_end_orphan, parent, seconds))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT))


def _end_orphan(parent: int, seconds: float, _number: int, _frame: FrameType | None) -> None:
    if os.getppid() != parent:
        # SIGALRM ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, seconds)
