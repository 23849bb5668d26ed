"""The addresses of a gateway of several workers, taken before there are any.

Each worker has a socket of its own for each address (SO_REUSEPORT), and the kernel spreads
connections over them. The supervisor keeps all of them open: while a worker is started again,
the connections of its sockets wait.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from gateway.app import BACKLOG
from gateway.config.models import Address, GatewayConfig
from gateway.errors import StartError
from gateway.obstacles import cannot_listen

ADMIN_BACKLOG = 128


class Listeners(NamedTuple):
    """Sockets that listen.

    Attributes:
        workers: those of each worker.
        admin: those of the admin listener; none if it is off.
    """

    workers: list[list[socket.socket]]
    admin: list[socket.socket]

    def close_workers(self, but: int | None = None) -> None:
        """Close the sockets of all workers, or of all but one."""
        for number, sockets in enumerate(self.workers):
            if number != but:
                _close(sockets)

    def close_admin(self) -> None:
        """Close those of the admin listener."""
        _close(self.admin)


def bind(config: GatewayConfig, workers: int) -> Listeners:
    """Take every address that the configuration names.

    Raises:
        StartError: one cannot be had; those that were had are let go.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        message = "this system cannot spread connections over processes (SO_REUSEPORT)"
        raise StartError("server.workers", message, "server: { workers: 1 }")
    found = Listeners([[] for _ in range(workers)], [])
    try:
        for index, address in enumerate(config.listen):
            path = "listen" if len(config.listen) == 1 else f"listen[{index}]"
            try:
                _bind_for_all(address, found)
            except OSError as error:
                raise cannot_listen(path, address, error) from error
        if config.admin is not None:
            address = config.admin.listen
            try:
                _bind_admin(address, found)
            except OSError as error:
                raise cannot_listen("admin.listen", address, error) from error
    except StartError:
        found.close_workers()
        found.close_admin()
        raise
    return found


def _bind_for_all(address: Address, found: Listeners) -> None:
    for family, place in _places(address):
        # Without SO_REUSEPORT: with it, another gateway's port would be shared in silence.
        with _bound(family, place) as alone:
            taken = alone.getsockname()
        for sockets in found.workers:
            one = _bound(family, taken, shares_port=True)
            sockets.append(one)
            one.listen(BACKLOG)


def _bind_admin(address: Address, found: Listeners) -> None:
    for family, place in _places(address):
        one = _bound(family, place)
        found.admin.append(one)
        one.listen(ADMIN_BACKLOG)


def _places(address: Address) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """What a host and port stand for, which may be several addresses."""
    found = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, place) for family, _, _, _, place in found))


def _bound(
    family: socket.AddressFamily, place: tuple[object, ...], *, shares_port: bool = False
) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(place)
    except OSError:
        one.close()
        raise
    return one


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()
    sockets.clear()
