"""The two ports of a master of Smockron, one above the other, on each address of its host."""

from __future__ import annotations

import asyncio
import errno
from contextlib import ExitStack
from socket import AddressFamily, socket
from typing import Any, Final

from gateway.config.values.address import MAX_PORT, Address
from gateway.net.binding import BindError, Place, Sharing, bound_shared, lookup, places

TRIED: Final = 100
"""The most attempts to find a port whose next port is free too."""

Pair = tuple[socket, socket]
"""The sockets for accounting and for control."""


async def bound_pairs(address: Address, sharing: Sharing) -> list[Pair]:
    """Return bound sockets for each address of a host.

    Args:
        address: for accounting; with port 0 the system chooses.
        sharing: see `Sharing`.

    Raises:
        BindError: one of the ports is not available.
        OSError: the host is unknown.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(**lookup(address))
    found = places(infos)
    left = 1 if address.port else TRIED
    while True:
        left -= 1
        try:
            return _bound_pairs(found, address, sharing)
        except BindError:
            if not left:
                raise


def _bound_pairs(found: list[Place], address: Address, sharing: Sharing) -> list[Pair]:
    port = address.port

    def take(family: AddressFamily, port: int, place: tuple[Any, ...]) -> socket:
        where = Address(address.host, port)
        if port > MAX_PORT:
            raise BindError(OSError(errno.EADDRINUSE, "there is no such port"), where)
        try:
            return bound_shared(family, (place[0], port, *place[2:]), sharing)
        except OSError as error:
            raise BindError(error, where) from error

    pairs = []
    with ExitStack() as had:
        for family, place in found:
            first = had.enter_context(take(family, port, place))
            port = first.getsockname()[1]
            pairs.append((first, had.enter_context(take(family, port + 1, place))))
        had.pop_all()
    return pairs
