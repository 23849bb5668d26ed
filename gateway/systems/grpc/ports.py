"""Where a gRPC server listens: TCP ports, or the file of a Unix socket.

grpcio binds by itself. It does not say why it cannot, and is content with one address of two, so
each is tried before. It takes the place of a socket's file that another listens on, and at its end
it removes whatever has the name that it was given: so it is given another, beside the right one.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import quote

import grpc
import grpc.aio

from gateway.config.values.address import Address, UnixAddress
from gateway.net.binding import (
    Sharing,
    SocketFile,
    bound_everywhere,
    place_beside,
    renamed,
)
from gateway.net.tls.texts import TlsTexts
from gateway.systems.grpc.tls import credentials_of

EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - as it was asked


class Door(NamedTuple):
    """Where clients come in.

    Attributes:
        address: to listen on.
        mode: of a Unix socket's file; None for what the umask says.
        tls: its certificates, loaded; None to be plain.
    """

    address: Address | UnixAddress
    mode: int | None = None
    tls: TlsTexts | None = None


class Ports:
    """Those of one server.

    Args:
        server: that is to listen; with SO_REUSEPORT if addresses are shared.
        sharing: see there.
    """

    def __init__(self, server: grpc.aio.Server, sharing: Sharing) -> None:
        self._server = server
        self._sharing = sharing
        self._file: SocketFile | None = None

    async def open(self, door: Door) -> Address | UnixAddress:
        """Bind; returns the address with the port that was really taken.

        An empty host stands for every address of this machine, and so does 0.0.0.0, those of IPv6
        included.

        Raises:
            OSError: the address cannot be had.
        """
        address = door.address
        credentials = None if door.tls is None else credentials_of(door.tls)
        if isinstance(address, UnixAddress):
            beside = await asyncio.to_thread(place_beside, address, self._sharing.elders)
            with _files_of(door.mode):
                # It takes %41 for an A.
                self._add(f"unix:{quote(beside.path)}", credentials)
            self._file = await asyncio.to_thread(renamed, beside, address)
            return address
        hosts = await _hosts(address, self._sharing)
        port = address.port
        for host in hosts:
            port = self._add(str(Address(host, port)), credentials)
        return Address(address.host, port)

    def _add(self, place: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._server.add_insecure_port(place)
            return self._server.add_secure_port(place, credentials)
        except RuntimeError as error:
            # What it says is how to make it say more.
            if credentials is None:
                raise OSError(errno.EADDRINUSE, "gRPC could not bind it") from error
            # It was free a moment ago, so more likely the library has no use for a certificate.
            said = "gRPC cannot use the certificates, or not bind it"
            raise OSError(errno.EIO, said) from error

    async def remove_file(self) -> None:
        """Remove the file of a Unix socket, before the server lets go of it."""
        if self._file is not None:
            await asyncio.to_thread(self._file.remove)


@contextmanager
def _files_of(mode: int | None) -> Iterator[None]:
    """Let files that are made have a mode from the first moment on.

    gRPC's library binds and listens in one step, and a client may connect in between.
    """
    if mode is None:
        yield
        return
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)


async def _hosts(address: Address, sharing: Sharing) -> list[str]:
    """The addresses that a host stands for, each of which can be bound.

    Raises:
        OSError: one cannot be bound, and why.
    """
    if sharing.is_on and address.host in EVERYWHERE:
        # Whichever is asked for, grpcio takes those of both families; it would share in silence.
        address = Address("", address.port)
    hosts: dict[str, None] = {}
    for one in await bound_everywhere(address, sharing):
        with one:
            hosts[one.getsockname()[0]] = None
    wild = [host for host in hosts if host in EVERYWHERE]
    # One stands for both with grpcio.
    return wild[:1] or list(hosts)
