"""The addresses of a gRPC server: TCP ports, or the file of a Unix socket.

grpcio binds by itself. It does not report why it cannot, and is content with one address of two,
so each is tried first. It replaces the file of a socket that another process listens on, and on
shutdown it removes the file it was given: so it gets another name, in the same folder.
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


class ServingOptions(NamedTuple):
    """How a server listens.

    Attributes:
        address: to listen on.
        mode: of a Unix socket's file; None for the umask's default.
        tls: its certificates, loaded; None for plain connections.
    """

    address: Address | UnixAddress
    mode: int | None = None
    tls: TlsTexts | None = None


class Ports:
    """The ports of one server.

    Args:
        server: the server that is to listen; with SO_REUSEPORT if addresses are shared.
        sharing: see there.
    """

    def __init__(self, server: grpc.aio.Server, sharing: Sharing) -> None:
        self._server = server
        self._sharing = sharing
        self._file: SocketFile | None = None

    async def open(self, serving: ServingOptions) -> Address | UnixAddress:
        """Bind; return the address with the actual port.

        An empty host stands for every address of this machine, and so does 0.0.0.0, including
        those of IPv6.

        Raises:
            OSError: the address cannot be bound.
        """
        address = serving.address
        credentials = None if serving.tls is None else credentials_of(serving.tls)
        if isinstance(address, UnixAddress):
            beside = await asyncio.to_thread(place_beside, address, self._sharing.predecessors)
            with _files_of(serving.mode):
                # It decodes %41 as A.
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
            # Its message only says how to get more details.
            if credentials is None:
                raise OSError(errno.EADDRINUSE, "gRPC could not bind it") from error
            # It was free a moment ago, so more likely the library cannot use a certificate.
            said = "gRPC cannot use the certificates, or not bind it"
            raise OSError(errno.EIO, said) from error

    async def remove_file(self) -> None:
        """Remove the file of a Unix socket, before the server closes it."""
        if self._file is not None:
            await asyncio.to_thread(self._file.remove)


@contextmanager
def _files_of(mode: int | None) -> Iterator[None]:
    """Set the mode of files from the moment they are created.

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
    """Return the addresses that a host stands for, after binding each of them as a test.

    Raises:
        OSError: one cannot be bound, with the reason.
    """
    if sharing.is_on and address.host in EVERYWHERE:
        # For either, grpcio binds both families; it would share a port without an error.
        address = Address("", address.port)
    hosts: dict[str, None] = {}
    # The library could not use a socket that is inherited.
    for one in await bound_everywhere(address, sharing._replace(handover=None)):
        with one:
            hosts[one.getsockname()[0]] = None
    wild = [host for host in hosts if host in EVERYWHERE]
    # grpcio treats them as one.
    return wild[:1] or list(hosts)
