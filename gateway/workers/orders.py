"""What the supervisor and its children say to each other, over a pair of sockets for each child.

An order is one byte, perhaps with open sockets. What a child says is a line of JSON: that it
serves, what keeps it from starting, or that it leaves; or an empty line, that it is well. The end
of either is seen by the other.
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
"""Connections to the process at the other end of them."""
STOP: Final = b"S"
"""End in peace."""
YIELD: Final = b"Y"
"""End in peace, and without waiting for anybody to see it: another serves in your place."""
DRAIN: Final = b"D"
"""The gateway is ending: to the limiter, which ends last."""
REOPEN: Final = b"R"
"""Go on in a new log file."""
RENEW: Final = b"C"
"""Look at once whether certificates have changed."""
REFUSE: Final = b"H"
"""Say that a changed configuration needs a restart."""

MAX_SOCKETS: Final = 2
ORPHAN_S: Final = 2.0
"""How long a child may go on without its supervisor, to end what is under way."""


class Said(NamedTuple):
    """What a child says of itself.

    Attributes:
        is_started: it serves.
        is_leaving: somebody else told it to end, and it will when another serves in its place.
        error: what keeps it from starting: the arguments of a `StartError`, or of a
            `GatewayError`; none if nothing does.
    """

    is_started: bool = False
    is_leaving: bool = False
    error: tuple[str, ...] = ()

    def reason(self) -> GatewayError:
        """The error itself."""
        return StartError(*self.error) if len(self.error) == 3 else GatewayError(*self.error)


def give(channel: socket, order: bytes, sockets: Sequence[socket] = ()) -> None:
    """Give an order; one that a child cannot take is lost, as the child is.

    Never blocks: the channel of a child that does not run is full some day.
    """
    with suppress(OSError):
        send_fds(channel, [order], [one.fileno() for one in sockets])


class Orders:
    """A child's end; to be made inside its event loop.

    Args:
        channel: to the supervisor; it belongs to this object from now on.
        acts: what to do at which order, given the sockets that came with it.
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

    def say_started(self) -> None:
        """Tell the supervisor that this child serves."""
        _say(self._channel, Said(is_started=True))

    def say_leaving(self) -> None:
        """Tell the supervisor that this child will end, when another serves in its place."""
        _say(self._channel, Said(is_leaving=True))

    def _beat(self) -> None:
        """Tell the supervisor that the loop goes round; see `watchdog`."""
        with suppress(OSError):
            self._channel.send(b"\n")
        self._loop.call_later(BEAT_S, self._beat)

    def _read(self) -> None:
        try:
            # One byte at a time: sockets come with the byte that they were sent with.
            order, descriptors, _, _ = recv_fds(self._channel, 1, MAX_SOCKETS)
        except BlockingIOError:
            return
        except OSError:
            order, descriptors = b"", []
        sockets = [socket(fileno=number) for number in descriptors]
        if order:
            self._acts.get(order, _let_go)(sockets)
            return
        self._loop.remove_reader(self._channel.fileno())
        log.warning("the supervisor is gone; this process ends too")
        self._loop.call_later(ORPHAN_S, os._exit, 1)
        self._acts[STOP]([])


def _let_go(sockets: list[socket]) -> None:
    for one in sockets:
        one.close()


def say_failed(channel: socket, error: GatewayError) -> None:
    """Tell the supervisor why a child cannot start."""
    words: tuple[str, ...] = (str(error),)
    if isinstance(error, StartError):
        words = (error.path, error.message, error.hint)
    _say(channel, Said(error=words))


def _say(channel: socket, said: Said) -> None:
    with suppress(OSError):
        channel.sendall(json.dumps(said).encode() + b"\n")


def understand(line: bytes) -> Said:
    """What a child said."""
    is_started, is_leaving, error = json.loads(line)
    return Said(is_started, is_leaving, tuple(error))
