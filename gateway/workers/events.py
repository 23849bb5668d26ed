"""Waits for signals, for messages and for moments, without an event loop."""

from __future__ import annotations

import select
import signal
from collections.abc import Iterable
from socket import socket, socketpair
from typing import Final

from gateway.base.clock import monotonic_us

LATE_US: Final = 1_000_000
"""A process that runs this much later than planned was stopped, or had no processor."""


class Events:
    """What a process without an event loop waits for; one for each process."""

    def __init__(self) -> None:
        self._woken, self._waker = socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)

    def catch(self, numbers: Iterable[int]) -> None:
        """Note these signals from now on, instead of being ended by them."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            # The wakeup descriptor reports signals, but only those that have a handler.
            signal.signal(number, lambda *_: None)

    def close_in_child(self) -> None:
        """Close the descriptors in a process that was forked."""
        self._woken.close()
        self._waker.close()

    def wait(self, channels: Iterable[socket], moments: Iterable[int]) -> bool:
        """Wait for a signal, for a channel that can be read, or for the first of some moments.

        Returns:
            Whether this process is late: it did not run when the moment had come.
        """
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for channel in channels:
            poll.register(channel, select.POLLIN)
        first_us = min(moments, default=None)
        if first_us is None:
            poll.poll()
            return False
        poll.poll(max(0, -((monotonic_us() - first_us) // 1000)))
        return monotonic_us() > first_us + LATE_US

    def signals(self) -> bytes:
        """Return the numbers of the signals that have come."""
        try:
            return self._woken.recv(1 << 12)
        except BlockingIOError:
            return b""
