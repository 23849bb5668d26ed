"""Sockets to listen on: TCP addresses and Unix sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from gateway.config.values.address import MAX_SOCKET_PATH, Address, UnixAddress
from gateway.net.handover import Handover, identity_of, remove_same, unix_place

BACKLOG: Final = 4096
Place = tuple[socket.AddressFamily, tuple[object, ...]]
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


class BindError(OSError):
    """One of several addresses that cannot be bound.

    Args:
        error: the error of the system.
        address: the address.
    """

    def __init__(self, error: OSError, address: Address) -> None:
        super().__init__(error.errno, error.strerror)
        self.address = address


class Sharing(NamedTuple):
    """Which other processes of the same gateway may use an address as well.

    Attributes:
        is_on: whether there may be any, now or later.
        predecessors: the ids of the processes that use it now and that this process replaces.
        handover: sockets that this process inherits; None for none.
        ports: TCP ports that this process has already, at whichever addresses.
    """

    is_on: bool = False
    predecessors: frozenset[int] = frozenset()
    handover: Handover | None = None
    ports: frozenset[int] = frozenset()

    @property
    def is_pending(self) -> bool:
        """Return whether the predecessor of this gateway still serves."""
        return self.handover is not None and self.handover.is_pending

    @property
    def has_predecessors(self) -> bool:
        """Return whether a process that this one replaces still runs."""
        return any(map(_runs, self.predecessors))


ALONE: Final = Sharing()
SHARED: Final = Sharing(is_on=hasattr(socket, "SO_REUSEPORT"))
"""For whatever has an address that its successor is to have as well, while both serve."""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def places(infos: Iterable[AddressInfo]) -> list[Place]:
    """Return the addresses of a host and port.

    Addresses of a family that this system does not support are omitted, unless there are no others.
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
    """Return the arguments of `getaddrinfo` for an address to listen on."""
    return {
        "host": address.host or None,
        "port": address.port,
        "type": socket.SOCK_STREAM,
        "flags": socket.AI_PASSIVE,
    }


def bound(
    family: socket.AddressFamily, place: tuple[object, ...], *, shares_port: bool = False
) -> socket.socket:
    """Return a socket that is bound to a TCP address and does not listen yet.

    Raises:
        OSError: it cannot be bound.
    """
    # asyncio sets TCP_NODELAY only on connections whose socket names its protocol.
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
    """Return a TCP address that no other gateway uses, with its port, without binding it.

    With SO_REUSEPORT alone, the port of another gateway would silently be shared. Of a port that
    this gateway has already, it cannot be tested: 127.0.0.1 and 0.0.0.0 exclude each other.

    Raises:
        OSError: it is in use, or cannot be bound.
    """
    with bound(family, place) as alone:
        taken: tuple[object, ...] = alone.getsockname()
    return taken


def bound_shared(
    family: socket.AddressFamily, place: tuple[object, ...], sharing: Sharing
) -> socket.socket:
    """Return a socket like `bound`, whose address other processes of this gateway may share.

    Raises:
        OSError: it cannot be bound.
    """
    if not sharing.is_on:
        return bound(family, place)
    if not sharing.has_predecessors and place[1] not in sharing.ports:
        place = untaken(family, place)
    return bound(family, place, shares_port=True)


async def bound_everywhere(address: Address, sharing: Sharing = ALONE) -> list[socket.socket]:
    """Return sockets like `bound_shared`, one for each address of a host, or inherited ones.

    Raises:
        OSError: an address cannot be bound; the others are released.
    """
    wanted = places(await asyncio.get_running_loop().getaddrinfo(**lookup(address)))
    found: list[socket.socket] = []
    if sharing.handover is not None:
        found, wanted = sharing.handover.take(wanted)
    try:
        for family, place in wanted:
            found.append(bound_shared(family, place, sharing))
    except OSError:
        for had in found:
            had.close()
        raise
    return found


def places_of(addresses: Iterable[Address | UnixAddress]) -> list[Place]:
    """Return the addresses of several listeners; hosts that are not known have none. Blocks."""
    found: list[Place] = []
    for address in addresses:
        if isinstance(address, UnixAddress):
            found.append(unix_place(address.path))
            continue
        with suppress(OSError):
            found += places(socket.getaddrinfo(**lookup(address)))
    return found


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class SocketFile(NamedTuple):
    """The file of a Unix socket, as it was created.

    Attributes:
        path: where it is.
        device, inode: which file it is.
        is_ours: returns whether it belongs to this process, and not to another that shares the
            socket.
    """

    path: str
    device: int
    inode: int
    is_ours: Callable[[], bool] = _always

    def remove(self) -> None:
        """Remove it, unless it is not ours, or another file has replaced it.

        Call this while the socket is open: a file system may reuse its inode number for the next
        file.
        """
        if self.is_ours():
            remove_same(self.path, (self.device, self.inode))


def bound_file(
    address: UnixAddress,
    mode: int | None,
    predecessors: frozenset[int] = frozenset(),
    handover: Handover | None = None,
) -> tuple[socket.socket, SocketFile]:
    """Return a socket with a file, which may replace an unused one or that of a predecessor.

    If the socket is inherited, its file stays.

    It listens already: otherwise another process that starts now would treat it as unused. Blocks.

    Args:
        address: the path of the file.
        mode: who may connect; None for the umask. A service manager sets that of its files.
        predecessors: as in `Sharing`.
        handover: as in `Sharing`.

    Raises:
        OSError: the file cannot be created.
    """
    if handover is not None:
        inherited, _ = handover.take([unix_place(address.path)])
        if inherited:
            return inherited[0], _inherited_file(inherited[0], address, mode, handover)
    is_predecessors = _clear(Path(address.path), predecessors)
    first = _name_beside(address) if is_predecessors else address
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.bind(first.path)
        if mode is not None:
            # No client can have connected yet.
            Path(first.path).chmod(mode)
        one.listen(BACKLOG)
        # Clients find a listener at every moment of the handover.
        file = renamed(first, address) if is_predecessors else _file_at(Path(address.path))
    except OSError:
        one.close()
        raise
    if handover is None:
        return one, file
    if is_predecessors:
        handover.moved(one, address.path)
    return one, file._replace(is_ours=handover.owns_new)


def _inherited_file(
    one: socket.socket, address: UnixAddress, mode: int | None, handover: Handover
) -> SocketFile:
    path = Path(address.path)
    file = _file_at(path)
    if handover.is_foreign(one):
        return file._replace(is_ours=_never)
    if mode is not None:
        handover.once_adopted(lambda: path.chmod(mode))
    return file._replace(is_ours=handover.owns_inherited)


def place_beside(address: UnixAddress, predecessors: frozenset[int]) -> UnixAddress:
    """Return a temporary path for a socket's file, which `renamed` moves into place; blocks.

    For libraries that create the file themselves, do not report why they cannot, and remove the
    path at the end, whichever process created the file.

    Raises:
        OSError: the file cannot be created.
    """
    _clear(Path(address.path), predecessors)
    beside = _name_beside(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.bind(beside.path)
        Path(beside.path).unlink()
    return beside


def _name_beside(address: UnixAddress) -> UnixAddress:
    """Return an unused name in the same folder."""
    path = Path(address.path)
    name = f"{path.name}.{token_hex(4)}"
    room = MAX_SOCKET_PATH - len(os.fsencode(path)) + len(os.fsencode(path.name))
    if len(os.fsencode(name)) > room:
        name = token_hex(room)[:room]
    return UnixAddress(str(path.with_name(name)))


def renamed(beside: UnixAddress, address: UnixAddress) -> SocketFile:
    """Move a socket's file to its final name; blocks.

    Raises:
        OSError: it cannot be moved.
    """
    file = _file_at(Path(beside.path))
    Path(beside.path).replace(address.path)
    return file._replace(path=address.path)


def _file_at(path: Path) -> SocketFile:
    return SocketFile(str(path), *identity_of(path))


def _clear(path: Path, predecessors: frozenset[int]) -> bool:
    """Remove an unused socket's file; return whether a predecessor listens on it.

    Raises:
        OSError: another process listens on it, or it is not a socket.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileExistsError(errno.EEXIST, "it is a dangling link") from None
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "the file is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return False
        except OSError as error:
            # Its queue is full, or it is a socket of another type: it is in use in any case.
            if error.errno not in {errno.EAGAIN, errno.EPROTOTYPE}:
                raise
        else:
            if predecessors and _listener(probe) in {*predecessors, None}:
                return True
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _listener(connected: socket.socket) -> int | None:
    """Return the process that listens at the other end of a Unix socket; None if unknown."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    said = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", said)[0])
