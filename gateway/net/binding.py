"""Sockets to listen on: TCP addresses, and files of this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from gateway.config.values.address import MAX_SOCKET_PATH, Address, UnixAddress

BACKLOG: Final = 4096
Place = tuple[socket.AddressFamily, tuple[object, ...]]
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


class BindError(OSError):
    """An address that cannot be had, where several were to be.

    Args:
        error: what the system says.
        address: which one it is.
    """

    def __init__(self, error: OSError, address: Address) -> None:
        super().__init__(error.errno, error.strerror)
        self.address = address


class Sharing(NamedTuple):
    """Which other processes of the same gateway may have an address, too.

    Attributes:
        is_on: whether there may be any, now or later.
        elders: those that have it now, by their ids; this process starts in their place.
    """

    is_on: bool = False
    elders: frozenset[int] = frozenset()


ALONE: Final = Sharing()


def places(infos: Iterable[AddressInfo]) -> list[Place]:
    """What a host and port stand for, which may be several addresses.

    Those of a family that this system lacks are left out, unless there are no others.
    """
    found = list(dict.fromkeys((family, place) for family, _, _, _, place in infos))
    return [one for one in found if _is_known(one[0])] or found


def _is_known(family: socket.AddressFamily) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as error:
        return error.errno != errno.EAFNOSUPPORT
    return True


def lookup(address: Address) -> dict[str, Any]:
    """The arguments of `getaddrinfo` for an address to listen on."""
    return {
        "host": address.host or None,
        "port": address.port,
        "type": socket.SOCK_STREAM,
        "flags": socket.AI_PASSIVE,
    }


def bound(
    family: socket.AddressFamily, place: tuple[object, ...], *, shares_port: bool = False
) -> socket.socket:
    """A socket that has a TCP address, and does not listen yet.

    Raises:
        OSError: it cannot be had.
    """
    # asyncio sets TCP_NODELAY for connections of sockets only that name their protocol.
    one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


def untaken(family: socket.AddressFamily, place: tuple[object, ...]) -> tuple[object, ...]:
    """A TCP address that no other gateway has, with its port; it is not taken here.

    With SO_REUSEPORT alone the port of another gateway would be shared in silence.

    Raises:
        OSError: somebody has it, or it cannot be had.
    """
    with bound(family, place) as alone:
        taken: tuple[object, ...] = alone.getsockname()
    return taken


def bound_shared(
    family: socket.AddressFamily, place: tuple[object, ...], sharing: Sharing
) -> socket.socket:
    """A socket as `bound`, whose address others of this gateway may have as well.

    Raises:
        OSError: it cannot be had.
    """
    if not sharing.is_on:
        return bound(family, place)
    if not sharing.elders:
        place = untaken(family, place)
    return bound(family, place, shares_port=True)


async def bound_everywhere(address: Address, sharing: Sharing = ALONE) -> list[socket.socket]:
    """Sockets as `bound_shared`, one for each address that a host stands for.

    Raises:
        OSError: one cannot be had; those that were had are let go.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(**lookup(address))
    found: list[socket.socket] = []
    try:
        for family, place in places(infos):
            found.append(bound_shared(family, place, sharing))
    except OSError:
        for had in found:
            had.close()
        raise
    return found


class SocketFile(NamedTuple):
    """The file of a Unix socket, as it was made."""

    path: str
    device: int
    inode: int

    def remove(self) -> None:
        """Remove it, unless another has taken its place.

        To be called while the socket is open: a file system may give its number to the next file.
        """
        with suppress(OSError):
            found = Path(self.path).stat()
            if (found.st_dev, found.st_ino) == (self.device, self.inode):
                Path(self.path).unlink()


def bound_file(
    address: UnixAddress, mode: int | None, elders: frozenset[int] = frozenset()
) -> tuple[socket.socket, SocketFile]:
    """A socket that has a file, in place of one that nobody listens on any more, or an elder does.

    It listens: who else starts now would take it for one that was left. Blocks.

    Args:
        address: where the file is to be.
        mode: who may connect; None for what the umask says.
        elders: as in `Sharing`.

    Raises:
        OSError: it cannot be had.
    """
    is_elders = _clear(Path(address.path), elders)
    first = _name_beside(address) if is_elders else address
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.bind(first.path)
        if mode is not None:
            # Nobody can have connected yet.
            Path(first.path).chmod(mode)
        one.listen(BACKLOG)
        # From an elder to this one there is no moment in which clients find nobody.
        file = renamed(first, address) if is_elders else _file_at(Path(address.path))
    except OSError:
        one.close()
        raise
    return one, file


def place_beside(address: UnixAddress, elders: frozenset[int]) -> UnixAddress:
    """Where a socket's file can be made, to get its own name by `renamed`; blocks.

    For a library that makes it by itself, does not say why it cannot, and at its end removes what
    has the name that it was given, whoever made that.

    Raises:
        OSError: the file cannot be had.
    """
    _clear(Path(address.path), elders)
    beside = _name_beside(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.bind(beside.path)
        Path(beside.path).unlink()
    return beside


def _name_beside(address: UnixAddress) -> UnixAddress:
    """A name that no file has, in the same folder."""
    path = Path(address.path)
    name = f"{path.name}.{token_hex(4)}"
    room = MAX_SOCKET_PATH - len(os.fsencode(path)) + len(os.fsencode(path.name))
    if len(os.fsencode(name)) > room:
        name = token_hex(room)[:room]
    return UnixAddress(str(path.with_name(name)))


def renamed(beside: UnixAddress, address: UnixAddress) -> SocketFile:
    """Give a socket's file its own name; blocks.

    Raises:
        OSError: it cannot have it.
    """
    file = _file_at(Path(beside.path))
    Path(beside.path).replace(address.path)
    return file._replace(path=address.path)


def _file_at(path: Path) -> SocketFile:
    found = path.stat()
    return SocketFile(str(path), found.st_dev, found.st_ino)


def _clear(path: Path, elders: frozenset[int]) -> bool:
    """Remove a socket's file that nobody listens on; returns whether an elder does.

    Raises:
        OSError: somebody else does, or it is no socket.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileExistsError(errno.EEXIST, "it is a link to what is not there") from None
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return False
        except OSError as error:
            # Its queue is full, or it is a socket of another type: somebody has it all the same.
            if error.errno not in {errno.EAGAIN, errno.EPROTOTYPE}:
                raise
        else:
            if elders and _listener(probe) in {*elders, None}:
                return True
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _listener(connected: socket.socket) -> int | None:
    """The process that listens at the other end of a Unix socket; None if the system cannot say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    said = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", said)[0])
