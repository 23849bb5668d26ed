"""Sockets to listen on: TCP addresses, and files of this machine."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from gateway.config.address import MAX_SOCKET_PATH, Address, UnixAddress

BACKLOG: Final = 4096
Place = tuple[socket.AddressFamily, tuple[object, ...]]
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


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


def bound_file(address: UnixAddress, mode: int | None) -> tuple[socket.socket, SocketFile]:
    """A socket that has a file, in place of one that nobody listens on any more.

    It does not listen yet. Blocks.

    Args:
        address: where the file is to be.
        mode: who may connect; None for what the umask says.

    Raises:
        OSError: it cannot be had.
    """
    path = Path(address.path)
    _clear(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.bind(address.path)
        if mode is not None:
            # Nobody can have connected yet.
            path.chmod(mode)
        file = _file_at(path)
    except OSError:
        one.close()
        raise
    return one, file


def name_beside(address: UnixAddress) -> UnixAddress:
    """A name in the same folder for a socket's file that gets its own later, by `renamed`.

    For a library that removes what has the name that it was given, whoever made that.
    """
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


def _clear(path: Path) -> None:
    """Remove a socket's file that nobody listens on."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
