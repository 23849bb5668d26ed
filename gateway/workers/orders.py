"""Messages between the supervisor and its children, over a socket pair per child.

An order is one byte, perhaps with open sockets. A message of a child is a line of JSON: that it
serves, why it cannot start, or that it leaves; or an empty line, the beat of a healthy child. Each
side notices the end of the other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from socket import recv_fds, send_fds, socket
from typing import Final, NamedTuple

from gateway.base.errors import GatewayError, StartError
from gateway.workers.watchdog import BEAT_S

log = logging.getLogger(__name__)

LINK: Final = b"L"
"""Here are sockets that connect to the process at their other end."""
SERVE: Final = b"G"
"""Accept connections: all processes are ready."""
STOP: Final = b"S"
"""Shut down gracefully."""
YIELD: Final = b"Y"
"""Shut down without waiting for load balancers: another process serves in your place. The limiter
only closes the admin listener."""
DRAIN: Final = b"D"
"""The gateway is shutting down (for the limiter, which ends last)."""
REOPEN: Final = b"R"
"""Continue in a new log file."""
RENEW: Final = b"C"
"""Check immediately whether certificates have changed."""
LOG: Final = b"W"
"""Log the text that this socket has (for the limiter)."""
REFUSE: Final = b"H"
"""Log that a changed configuration needs a restart."""

MAX_SOCKETS: Final = 2
ORPHAN_S: Final = 2.0
"""How long a child may continue without its supervisor, to finish requests in flight."""


class ChildMessage(NamedTuple):
    """A message of a child.

    Attributes:
        is_started: it serves.
        is_leaving: another process stopped it, and it ends when another worker serves in its place.
        error: why it cannot start: the arguments of a `StartError` or `GatewayError`; empty if it
            can.
    """

    is_started: bool = False
    is_leaving: bool = False
    error: tuple[str, ...] = ()

    def reason(self) -> GatewayError:
        """Return the error itself."""
        return StartError(*self.error) if len(self.error) == 3 else GatewayError(*self.error)


def give(channel: socket, order: bytes, sockets: Sequence[socket] = ()) -> None:
    """Send an order; it is lost if the child is.

    Never blocks: the channel of a child that has stopped running may be full.
    """
    with suppress(OSError):
        send_fds(channel, [order], [one.fileno() for one in sockets])


class Orders:
    """A child's end of the channel; create it in the child's event loop.

    Args:
        channel: the channel to the supervisor, owned by this object from now on.
        acts: the handler of each order, which receives the sockets sent with it.
    """

    def __init__(
        self, channel: socket, acts: Mapping[bytes, Callable[[list[socket]], object]]
    ) -> None:
        self._channel = channel
        self._acts = acts
        channel.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)
        self._beat()

    def report_started(self) -> None:
        """Report to the supervisor that this child serves."""
        _send(self._channel, ChildMessage(is_started=True))

    def report_leaving(self) -> None:
        """Report to the supervisor that this child will end when another serves in its place."""
        _send(self._channel, ChildMessage(is_leaving=True))

    def _beat(self) -> None:
        """Report to the supervisor that the loop runs; see `watchdog`."""
        with suppress(OSError):
            self._channel.send(b"\n")
        self._loop.call_later(BEAT_S, self._beat)

    def _read(self) -> None:
        try:
            # One byte at a time: sockets arrive with the byte that they were sent with.
            order, descriptors, _, _ = recv_fds(self._channel, 1, MAX_SOCKETS)
        except BlockingIOError:
            return
        except OSError:
            order, descriptors = b"", []
        sockets = [socket(fileno=number) for number in descriptors]
        if order:
            self._acts.get(order, _close_all)(sockets)
            return
        self._loop.remove_reader(self._channel.fileno())
        log.warning("the supervisor has ended; this process shuts down as well")
        self._loop.call_later(ORPHAN_S, os._exit, 1)
        self._acts[STOP]([])


def _close_all(sockets: list[socket]) -> None:
    for one in sockets:
        one.close()


def report_failed(channel: socket, error: GatewayError) -> None:
    """Report to the supervisor why a child cannot start."""
    words: tuple[str, ...] = (str(error),)
    if isinstance(error, StartError):
        words = (error.path, error.message, error.hint)
    _send(channel, ChildMessage(error=words))


def _send(channel: socket, said: ChildMessage) -> None:
    with suppress(OSError):
        channel.sendall(json.dumps(said).encode() + b"\n")


def read_message(line: bytes) -> ChildMessage:
    """Return the message of a child."""
    is_started, is_leaving, error = json.loads(line)
    return ChildMessage(is_started, is_leaving, tuple(error))
