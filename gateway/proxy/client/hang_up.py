"""Detect resets of connections that are not being read: the transport reports no event for them."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 1.0
"""Interval between two checks."""


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Return whether a reset has arrived; the transport does not report it while paused."""
    sock = transport.get_extra_info("socket")
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return bool(poll.poll(0))


class HangUpWatch:
    """Checks for a reset for as long as a connection is not being read.

    Args:
        is_deaf: whether the connection is still not being read.
        hung_up: called when a reset has arrived.
    """

    __slots__ = ("_hung_up", "_is_deaf", "_timer")

    def __init__(self, is_deaf: Callable[[], bool], hung_up: Callable[[], None]) -> None:
        self._is_deaf = is_deaf
        self._hung_up = hung_up
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Start: nothing is read from now on."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_S, self._look, transport)

    def _look(self, transport: asyncio.Transport) -> None:
        self._timer = None
        if transport.is_closing() or not self._is_deaf():
            return
        if has_hung_up(transport):
            self._hung_up()
        else:
            self.begin(transport)
