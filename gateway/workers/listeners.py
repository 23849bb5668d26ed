"""The addresses of a gateway of several workers, bound before the workers start.

Each worker has its own socket for each address (SO_REUSEPORT), and the kernel spreads connections
over them. The supervisor keeps all of them open: while a worker is restarted, the connections of
its sockets wait. Inherited sockets are divided among the workers if each of several may have its
own, and otherwise shared by all.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from gateway.base.errors import StartError
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import BACKLOG, SocketFile, bound, bound_file, lookup, places, untaken
from gateway.net.handover import Handover
from gateway.net.inherited import shares
from gateway.net.start_errors import ADMIN, cannot_listen
from gateway.wiring.gateway import BoundSocket

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

    @property
    def all(self) -> list[socket.socket]:
        """All of them."""
        return [one.socket for sockets in (*self.workers, self.admin) for one in sockets]

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


def bind(config: GatewayConfig, workers: int, handover: Handover) -> Listeners:
    """Bind all addresses of the configuration, but for those of inherited sockets.

    Args:
        config: the configuration.
        workers: how many workers there will be.
        handover: the inherited sockets.

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
                _bind_for_all(index, listener, found, handover)
            except OSError as error:
                raise cannot_listen(path, listener.address, error) from error
        if config.admin is not None:
            address = config.admin.listen
            try:
                _bind_admin(address, found, handover)
            except OSError as error:
                raise cannot_listen(ADMIN, address, error) from error
    except StartError:
        found.remove_files()
        found.close_workers()
        found.close_admin()
        raise
    return found


def _bind_for_all(
    index: int, listener: ListenerConfig, found: Listeners, handover: Handover
) -> None:
    address = listener.address
    if isinstance(address, UnixAddress):
        one, file = bound_file(address, listener.mode, handover=handover)
        found.files.append(file)
        _share([one], index, found)
        return
    inherited, wanted = handover.take(places(socket.getaddrinfo(**lookup(address))))
    for group in _same_address(inherited):
        _divide(group, index, found)
    for family, place in wanted:
        taken = untaken(family, place)
        for sockets in found.workers:
            one = bound(family, taken, shares_port=True)
            sockets.append(BoundSocket(index, one))
            one.listen(BACKLOG)


def _same_address(sockets: Iterable[socket.socket]) -> list[list[socket.socket]]:
    """Return sockets by their addresses."""
    found: dict[object, list[socket.socket]] = {}
    for one in sockets:
        found.setdefault((one.family, one.getsockname()), []).append(one)
    return list(found.values())


def _share(shared: list[socket.socket], index: int, found: Listeners) -> None:
    """Give each worker copies of sockets: any free worker accepts the next connection."""
    for one in shared:
        with one:
            for sockets in found.workers:
                sockets.append(BoundSocket(index, one.dup()))


def _divide(inherited: list[socket.socket], index: int, found: Listeners) -> None:
    """Give each worker as many of the sockets of one address; one that is alone is shared."""
    more, positions = shares(len(inherited), len(found.workers))
    try:
        inherited += _more_of(inherited[0], more)
    except OSError:
        # They belong to another user, or were not made to be many.
        _share(inherited, index, found)
        return
    for sockets, taken in zip(found.workers, positions, strict=True):
        sockets += [BoundSocket(index, inherited[at]) for at in taken]


def _more_of(one: socket.socket, number: int) -> list[socket.socket]:
    """Return more sockets that listen on the address of an inherited one.

    Raises:
        OSError: the system does not allow it.
    """
    made: list[socket.socket] = []
    try:
        for _ in range(number):
            made.append(bound(one.family, one.getsockname(), shares_port=True))
            made[-1].listen(BACKLOG)
    except OSError:
        for other in made:
            other.close()
        raise
    return made


def _bind_admin(address: Address, found: Listeners, handover: Handover) -> None:
    inherited, wanted = handover.take(places(socket.getaddrinfo(**lookup(address))))
    for one in (*inherited, *(bound(family, place) for family, place in wanted)):
        found.admin.append(BoundSocket(0, one))
        one.listen(ADMIN_BACKLOG)


def _close(sockets: list[BoundSocket]) -> None:
    for one in sockets:
        one.socket.close()
    sockets.clear()
