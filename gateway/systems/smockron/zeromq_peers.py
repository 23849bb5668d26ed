"""Bounds the number of peers of a listening ZeroMQ socket.

ZeroMQ accepts every peer, and cannot close a single one: `zmq_unbind` closes all peers of an
address. But its monitor reports the descriptor of each accepted connection, and a connection that
is shut down looks to ZeroMQ as if its peer had left.

By the time it is reported, a descriptor may belong to another connection. So it is duplicated
first, and only shut down if it has the port of the socket. That may be a later peer of the same
socket, which reconnects by itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import zmq

EVENTS: Final = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
"""The monitored events. The end of a connection always follows its beginning."""


class Peer(Enum):
    """What happened to a peer."""

    HAS_COME = auto()
    HAS_GONE = auto()
    IS_TURNED_AWAY = auto()


class Closer:
    """Ends connections that ZeroMQ accepted, even if no more files can be opened."""

    def __init__(self) -> None:
        # A reserved descriptor, which duplicates replace for a moment.
        self._nothing = socket.socket()
        self._place = os.dup(self._nothing.fileno())

    def close(self) -> None:
        """Release the reserved descriptor."""
        os.close(self._place)
        self._nothing.close()

    def end(self, descriptor: int, port: int) -> None:
        """Shut down a connection if it is to this port."""
        try:
            os.dup2(descriptor, self._place, inheritable=False)
        except OSError:
            return  # It is closed already.
        copy: socket.socket | None = None
        try:
            copy = socket.socket(fileno=self._place)
            if copy.getsockname()[1:2] == (port,):
                copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It is closed, or the descriptor belongs to something else now.
        finally:
            if copy is not None:
                copy.detach()
            os.dup2(self._nothing.fileno(), self._place, inheritable=False)


class Peers:
    """The peers of one socket.

    Args:
        port: returns the port that the socket is bound to.
        most: the most peers.
        note: called when a peer comes, goes or is refused.
        closer: ends the connections of refused peers.
    """

    def __init__(
        self, port: Callable[[], int], most: int, note: Callable[[Peer], None], closer: Closer
    ) -> None:
        self._port = port
        self._most = most
        self._note = note
        self._closer = closer
        self._connected: set[int] = set()
        self._is_over = False

    def __len__(self) -> int:
        return len(self._connected)

    def close_all(self) -> None:
        """End all connections, and all future ones."""
        self._is_over = True
        for descriptor in self._connected:
            self._closer.end(descriptor, self._port())

    def take(self, event: int, descriptor: int) -> None:
        """Process an event of the monitor, one of `EVENTS`."""
        connected = self._connected
        if event == zmq.EVENT_DISCONNECTED:
            if descriptor in connected:
                connected.discard(descriptor)
                self._note(Peer.HAS_GONE)
        elif descriptor in connected:
            pass  # ZeroMQ reports no event for peers that `zmq_unbind` closes.
        elif self._is_over:
            self._closer.end(descriptor, self._port())
        elif len(connected) >= self._most:
            self._note(Peer.IS_TURNED_AWAY)
            self._closer.end(descriptor, self._port())
        else:
            connected.add(descriptor)
            self._note(Peer.HAS_COME)
