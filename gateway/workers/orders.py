"""Messages between the supervisor and its children, over a socket pair per child.

An order is one byte, perhaps with open files. A message of a child is a line of JSON: that it
serves, why it cannot start, that it leaves, or what became of a new configuration; or an empty
line, the beat of a healthy child. Each side notices the end of the other.
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
only closes the admin listener, and reports that."""
DRAIN: Final = b"D"
"""The gateway is shutting down (for the limiter, which ends last)."""
REOPEN: Final = b"R"
"""Continue in a new log file."""
RENEW: Final = b"C"
"""Check immediately whether certificates have changed."""
SOCKETS: Final = b"K"
"""Here are sockets for listeners of the configuration of the next `PREPARE`."""
PREPARE: Final = b"P"
"""Prepare to use the configuration in these files (`preparing`), and report whether you can."""
COMMIT: Final = b"U"
"""Use the configuration that you have prepared, and report that you do."""
DISCARD: Final = b"F"
"""Do not use the configuration that you have prepared."""
LOG: Final = b"W"
"""Log the line in this file, with its level (for the limiter)."""
OUTCOME: Final = b"O"
"""How a reload went is in this file (for the limiter, which reports it to the operator)."""
NOT_UPGRADED: Final = b"N"
"""Why an upgrade has failed, and when, is in this file (for the limiter, likewise)."""

LINK_SOCKETS: Final = 2
MAX_FILES: Final = 200
"""How many files one order may have; Linux sends at most 253."""
ORPHAN_S: Final = 2.0
"""How long a child may continue without its supervisor, to finish requests in flight."""


class ChildMessage(NamedTuple):
    """A message of a child.

    Attributes:
        is_started: it serves.
        is_leaving: another process stopped it, and it ends when another worker serves in its place.
        error: why it cannot start, or cannot use the new configuration: the arguments of a
            `StartError` or `GatewayError`; empty if it can.
        prepared: the number of the configuration that it has prepared, or tried to; otherwise 0.
        committed: the number of the configuration that it uses from now on; otherwise 0.
        reloads: how many reloads were requested from it so far (for the limiter); otherwise 0.
        has_yielded: its admin listener is closed (for the limiter).
    """

    is_started: bool = False
    is_leaving: bool = False
    error: tuple[str, ...] = ()
    prepared: int = 0
    committed: int = 0
    reloads: int = 0
    has_yielded: bool = False

    def reason(self) -> GatewayError:
        """Return the error itself."""
        return StartError(*self.error) if len(self.error) == 3 else GatewayError(*self.error)


def give(channel: socket, order: bytes, files: Sequence[int] = ()) -> bool:
    """Send an order, with open files; returns whether it was sent. It is lost if the child is.

    Never blocks: the channel of a child that has stopped running may be full.
    """
    try:
        send_fds(channel, [order], list(files))
    except OSError:
        return False
    return True


class Orders:
    """A child's end of the channel; create it in the child's event loop.

    Args:
        channel: the channel to the supervisor, owned by this object from now on.
        acts: the handler of each order, which receives the files sent with it.
    """

    def __init__(
        self, channel: socket, acts: Mapping[bytes, Callable[[list[int]], object]]
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

    def report_yielded(self) -> None:
        """Report to the supervisor that the admin listener is closed."""
        _send(self._channel, ChildMessage(has_yielded=True))

    def report_prepared(self, number: int, error: GatewayError | None) -> None:
        """Report to the supervisor that a configuration is prepared, or why it cannot be used."""
        _send(self._channel, ChildMessage(prepared=number, error=_words(error) if error else ()))

    def report_committed(self, number: int) -> None:
        """Report to the supervisor that a configuration is in use."""
        _send(self._channel, ChildMessage(committed=number))

    def ask_for_reload(self, reloads: int) -> None:
        """Ask the supervisor for a reload; `reloads` is how many were requested so far."""
        _send(self._channel, ChildMessage(reloads=reloads))

    def _beat(self) -> None:
        """Report to the supervisor that the loop runs; see `watchdog`."""
        with suppress(OSError):
            self._channel.send(b"\n")
        self._loop.call_later(BEAT_S, self._beat)

    def _read(self) -> None:
        try:
            # One byte at a time: files arrive with the byte that they were sent with.
            order, files, _, _ = recv_fds(self._channel, 1, MAX_FILES)
        except BlockingIOError:
            return
        except OSError:
            order, files = b"", []
        if order:
            self._acts.get(order, _close_all)(files)
            return
        self._loop.remove_reader(self._channel.fileno())
        log.warning("the supervisor has ended; this process shuts down as well")
        self._loop.call_later(ORPHAN_S, os._exit, 1)
        self._acts[STOP]([])


def _close_all(files: list[int]) -> None:
    for one in files:
        os.close(one)


def report_failed(channel: socket, error: GatewayError) -> None:
    """Report to the supervisor why a child cannot start."""
    _send(channel, ChildMessage(error=_words(error)))


def _words(error: GatewayError) -> tuple[str, ...]:
    if isinstance(error, StartError):
        return (error.path, error.message, error.hint)
    return (str(error),)


def _send(channel: socket, said: ChildMessage) -> None:
    with suppress(OSError):
        channel.sendall(json.dumps(said).encode() + b"\n")


def read_message(line: bytes) -> ChildMessage:
    """Return the message of a child."""
    is_started, is_leaving, error, *numbers = json.loads(line)
    return ChildMessage(is_started, is_leaving, tuple(error), *numbers)
