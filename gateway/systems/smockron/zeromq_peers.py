"""Who is connected to a ZeroMQ socket that waits for peers, and that they do not become too many.

ZeroMQ accepts every peer, and has no way to close one peer: `zmq_unbind` closes all that
came through an address. But its monitor names the descriptor of each connection that is accepted,
and one that is shut down is to ZeroMQ like any whose peer has left.

By the time it is named a descriptor may belong to another connection; so it is copied first, and
only what has a port of the socket is shut down. That may be a later peer of the same socket, which
comes again by itself, as each of them does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import zmq

EVENTS: Final = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
"""What is to be known of a socket. The end of a connection follows its beginning always."""


class Peer(Enum):
    """What became of a peer."""

    HAS_COME = auto()
    HAS_GONE = auto()
    IS_TURNED_AWAY = auto()


class Closer:
    """Ends connections that others have accepted; works also where no more files may be opened."""

    def __init__(self) -> None:
        # A place for copies of descriptors, and what is in it meanwhile.
        self._nothing = socket.socket()
        self._place = os.dup(self._nothing.fileno())

    def close(self) -> None:
        """Give the place up."""
        os.close(self._place)
        self._nothing.close()

    def end(self, descriptor: int, port: int) -> None:
        """Shut a connection down, if it is one to this port."""
        try:
            os.dup2(descriptor, self._place, inheritable=False)
        except OSError:
            return  # It is gone already.
        copy: socket.socket | None = None
        try:
            copy = socket.socket(fileno=self._place)
            if copy.getsockname()[1:2] == (port,):
                copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It is gone, or the descriptor is of something else by now.
        finally:
            if copy is not None:
                copy.detach()
            os.dup2(self._nothing.fileno(), self._place, inheritable=False)


class Peers:
    """Those that are connected to one socket.

    Args:
        port: gives the port that the socket is bound to.
        most: how many there may be.
        note: told of each that comes, goes or is turned away.
        closer: ends the connections of the latter.
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
        """End all connections, and those that come from now on."""
        self._is_over = True
        for descriptor in self._connected:
            self._closer.end(descriptor, self._port())

    def take(self, event: int, descriptor: int) -> None:
        """Take in what the monitor says, one of `EVENTS`."""
        connected = self._connected
        if event == zmq.EVENT_DISCONNECTED:
            if descriptor in connected:
                connected.discard(descriptor)
                self._note(Peer.HAS_GONE)
        elif descriptor in connected:
            pass  # ZeroMQ says nothing of those whom `zmq_unbind` closes.
        elif self._is_over:
            self._closer.end(descriptor, self._port())
        elif len(connected) >= self._most:
            self._note(Peer.IS_TURNED_AWAY)
            self._closer.end(descriptor, self._port())
        else:
            connected.add(descriptor)
            self._note(Peer.HAS_COME)
