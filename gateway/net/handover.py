"""Listening sockets that one process opened and another serves.

A process inherits them from its service manager, or from the gateway that it replaces, and takes
each for the listener with its address. They stay the same sockets of the kernel, so no connection
that waits in their queues is lost. `inherited` decides which socket is whose.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from gateway.base.errors import GatewayError
from gateway.config.values.address import Address, UnixAddress
from gateway.net.closing import begin_no_more
from gateway.net.inherited import (
    Announced,
    AnyPlace,
    InheritedPlace,
    Wanted,
    missing,
    taken,
)

FAMILIES: Final = frozenset({socket.AF_UNIX, socket.AF_INET, socket.AF_INET6})


class InheritedSocket(NamedTuple):
    """A listening socket that this process was started with.

    Attributes:
        socket: the socket.
        place: where it listens.
        announced: how it was announced.
    """

    socket: socket.socket
    place: InheritedPlace
    announced: Announced

    def __str__(self) -> str:
        name = f" ({self.announced.name})" if self.announced.name else ""
        return f"{_shown(self.place)}{name}"


def _shown(place: InheritedPlace) -> Address | UnixAddress:
    if place.family == socket.AF_UNIX:
        return UnixAddress(str(place.address[0]))
    return Address(str(place.address[0]), int(str(place.address[1])))


class Unwanted(NamedTuple):
    """Inherited sockets that no listener of a configuration uses, in words.

    Attributes:
        closed: those that a gateway had opened: their listener was removed.
        open: those of the service manager, where connections wait that no listener accepts.
    """

    closed: tuple[str, ...]
    open: tuple[str, ...]


class HasNumber(Protocol):
    """A socket."""

    def fileno(self) -> int:
        """Return its descriptor; negative if it is closed."""


def unix_place(path: str) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Return where the file of a Unix socket is; blocks."""
    return socket.AF_UNIX, (os.path.realpath(path),)


def _opened(announced: Announced) -> InheritedSocket | None:
    """Return an inherited socket; None if the descriptor is a file, which the log may use.

    Raises:
        GatewayError: there is no such descriptor, or it is a socket that does not listen.
    """
    number = announced.number
    described = f"the inherited descriptor {number} {announced.name}".rstrip()
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        one = socket.socket(fileno=number)
        listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise GatewayError(f"{described} cannot be used: {error.strerror}") from error
    if one.family not in FAMILIES or one.type != socket.SOCK_STREAM or not listens:
        raise GatewayError(f"{described} is not a socket that listens for TCP or Unix connections")
    one.set_inheritable(False)
    one.setblocking(False)
    address = one.getsockname()
    if one.family == socket.AF_UNIX:
        _, address = unix_place(announced.path or address)
    has_both = (
        one.family == socket.AF_INET6
        and address[0] == "::"
        and not one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    )
    return InheritedSocket(one, InheritedPlace(one.family, address, has_both), announced)


class Handover:
    """The listening sockets that a process inherits, and leaves to its successor.

    Until this process serves, what it inherits still belongs to its predecessor, which may have to
    continue. Once its successor serves, everything belongs to that. The sockets of a service
    manager stay open here for as long as this process runs: a reload may remove their listener and
    add it again.

    Args:
        announced: the descriptors that are inherited; they belong to this object from now on.
        has_predecessor: whether a gateway still serves there.

    Attributes:
        ports: the TCP ports of all of them.

    Raises:
        GatewayError: one of them cannot be used.
    """

    def __init__(self, announced: Iterable[Announced] = (), *, has_predecessor: bool) -> None:
        opened = map(_opened, announced)
        self._left = [one for one in opened if one is not None]
        self._foreign = {
            _identity(one.socket): one.announced.name
            for one in self._left
            if not one.announced.is_ours
        }
        self._paths = {
            _identity(one.socket): one.announced.path for one in self._left if one.announced.path
        }
        self.ports = frozenset(
            one.socket.getsockname()[1] for one in self._left if one.socket.family != socket.AF_UNIX
        )
        self._is_pending = has_predecessor
        self._is_done = False
        self._waiting: list[Callable[[], object]] = []
        self._retiring: list[socket.socket] = []

    @property
    def is_pending(self) -> bool:
        """Return whether a predecessor still owns what was inherited."""
        return self._is_pending

    def adopt(self) -> None:
        """Own what was inherited from now on: this process serves."""
        self._is_pending = False
        self._end_retiring()
        for work in self._waiting:
            work()
        self._waiting = []

    def leave(self) -> None:
        """Own nothing any more: a successor serves."""
        self._is_done = True

    def once_adopted(self, work: Callable[[], object]) -> None:
        """Do something to what was inherited as soon as it is this process's own."""
        if self._is_pending:
            self._waiting.append(work)
        else:
            work()

    def _end_retiring(self) -> None:
        for one in self._retiring:
            # The predecessor, which has it as well, serves who has connected by now.
            begin_no_more(one)
        self.forget_retiring()

    def forget_retiring(self) -> None:
        """Close what is kept until this process serves, as one does that will not say so."""
        for one in self._retiring:
            one.close()
        self._retiring = []

    def owns_new(self) -> bool:
        """Return whether what this process has made is its own."""
        return not self._is_done

    def owns_inherited(self) -> bool:
        """Return whether what it inherited from a gateway is its own."""
        return not (self._is_pending or self._is_done)

    @property
    def left(self) -> list[socket.socket]:
        """Return the sockets that no listener has taken, and all of the service manager's."""
        return [one.socket for one in self._left]

    def take(self, wanted: Sequence[Wanted]) -> tuple[list[socket.socket], list[Wanted]]:
        """Return the sockets of a listener, and the addresses that it still has to bind.

        Args:
            wanted: the addresses of the listener.

        Raises:
            OSError: no more files can be opened.
        """
        found = [self._left[at] for at in taken([one.place for one in self._left], wanted)]
        lacking = missing([one.place for one in found], wanted)
        sockets = [one.socket if one.announced.is_ours else one.socket.dup() for one in found]
        self._left = [one for one in self._left if one not in found or not one.announced.is_ours]
        return sockets, lacking

    def is_foreign(self, one: socket.socket) -> bool:
        """Return whether a service manager has opened a socket, and looks after its file."""
        return _identity(one) in self._foreign

    def retire(self, one: socket.socket) -> None:
        """Begin no more connections at a socket that is to be closed, unless it stays open.

        That of a service manager does: who connects there waits for a later listener.
        """
        if not self.is_foreign(one):
            begin_no_more(one)

    def moved(self, one: HasNumber, path: str) -> None:
        """Note that a socket's file was renamed: the kernel keeps the name that it was bound to."""
        self._paths[_identity(one)] = path

    def drop_unwanted(self, wanted: Collection[AnyPlace]) -> Unwanted:
        """Close the sockets of gateways that no listener will take; return all unwanted ones.

        Args:
            wanted: the addresses of all listeners.
        """
        kept = {self._left[at] for at in taken([one.place for one in self._left], wanted)}
        unwanted = [one for one in self._left if one not in kept]
        closed = [one for one in unwanted if one.announced.is_ours]
        self._left = [one for one in self._left if one not in closed]
        for one in closed:
            if one.place.family == socket.AF_UNIX:
                path = str(one.place.address[0])
                with suppress(OSError):
                    self.once_adopted(partial(remove_same, path, identity_of(path)))
            # The predecessor may have to go on, and needs it then.
            self._retiring.append(one.socket)
        if not self._is_pending:
            self._end_retiring()
        # Copies of one socket, or several of one address, are one line.
        closed_words = tuple(dict.fromkeys(map(str, closed)))
        return Unwanted(closed_words, tuple(str(one) for one in unwanted if one not in closed))

    def announced(self, sockets: Iterable[HasNumber]) -> list[Announced]:
        """Return what a successor is told of sockets: each of them once."""
        found: dict[int, Announced] = {}
        for one in sockets:
            number = one.fileno()
            if number >= 0:
                identity = _identity(one)
                name = self._foreign.get(identity)
                path = self._paths.get(identity, "")
                found.setdefault(identity, Announced(number, name or "", name is None, path))
        return list(found.values())

    def close(self) -> None:
        """Close the sockets that are left."""
        self.forget_retiring()
        for one in self._left:
            one.socket.close()
        self._left = []


def identity_of(path: str | Path) -> tuple[int, int]:
    """Return the device and inode of a file; blocks.

    Raises:
        OSError: there is none.
    """
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def remove_same(path: str, identity: tuple[int, int]) -> None:
    """Remove a file, unless another has replaced it; blocks."""
    with suppress(OSError):
        if identity_of(path) == identity:
            Path(path).unlink()


def _identity(one: HasNumber) -> int:
    """Return what all copies of a socket have in common."""
    return os.fstat(one.fileno()).st_ino
