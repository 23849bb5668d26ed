"""The addresses of a gateway of several workers, bound before the workers start.

Each worker has its own socket for each address (SO_REUSEPORT), and the kernel spreads connections
over them. The supervisor keeps all of them open: while a worker is restarted, the connections of
its sockets wait.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from gateway.base.errors import StartError
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import BACKLOG, SocketFile, bound, bound_file, lookup, places, untaken
from gateway.net.start_errors import ADMIN, cannot_listen
from gateway.wiring.client_listeners import BoundSocket

ADMIN_BACKLOG = 128


class Listeners(NamedTuple):
    """Sockets that listen.

    Attributes:
        workers: the sockets of each worker.
        admin: the sockets of the admin listener; empty if it is off.
        files: the files of Unix sockets, to be removed at the end.
    """

    workers: list[list[BoundSocket]]
    admin: list[BoundSocket]
    files: list[SocketFile]

    def close_workers(self, but: int | None = None) -> None:
        """Close the sockets of all workers, or of all but one."""
        for number, sockets in enumerate(self.workers):
            if number != but:
                _close(sockets)

    def remove_files(self) -> None:
        """Remove the files of Unix sockets, which no process removes otherwise."""
        for one in self.files:
            one.remove()

    def close_admin(self) -> None:
        """Close those of the admin listener."""
        _close(self.admin)


def bind(config: GatewayConfig, workers: int) -> Listeners:
    """Bind all addresses of the configuration.

    Raises:
        StartError: an address cannot be bound; the others are released.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        message = "this system cannot spread connections over processes (SO_REUSEPORT)"
        raise StartError("server.workers", message, "server: { workers: 1 }")
    found = Listeners([[] for _ in range(workers)], [], [])
    try:
        for index, listener in enumerate(config.listen):
            path = "listen" if len(config.listen) == 1 else f"listen[{index}]"
            try:
                _bind_for_all(index, listener, found)
            except OSError as error:
                raise cannot_listen(path, listener.address, error) from error
        if config.admin is not None:
            address = config.admin.listen
            try:
                _bind_admin(address, found)
            except OSError as error:
                raise cannot_listen(ADMIN, address, error) from error
    except StartError:
        found.remove_files()
        found.close_workers()
        found.close_admin()
        raise
    return found


def _bind_for_all(index: int, listener: ListenerConfig, found: Listeners) -> None:
    address = listener.address
    if isinstance(address, UnixAddress):
        one, file = bound_file(address, listener.mode)
        found.files.append(file)
        with one:
            # They share one queue: any free worker accepts the next connection.
            for sockets in found.workers:
                sockets.append(BoundSocket(index, one.dup()))
        return
    for family, place in places(socket.getaddrinfo(**lookup(address))):
        taken = untaken(family, place)
        for sockets in found.workers:
            one = bound(family, taken, shares_port=True)
            sockets.append(BoundSocket(index, one))
            one.listen(BACKLOG)


def _bind_admin(address: Address, found: Listeners) -> None:
    for family, place in places(socket.getaddrinfo(**lookup(address))):
        one = bound(family, place)
        found.admin.append(BoundSocket(0, one))
        one.listen(ADMIN_BACKLOG)


def _close(sockets: list[BoundSocket]) -> None:
    for one in sockets:
        one.socket.close()
    sockets.clear()
