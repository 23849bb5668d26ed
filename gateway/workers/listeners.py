"""The addresses of a gateway of several workers, bound before the workers start.

Each worker has its own socket for each address (SO_REUSEPORT), and the kernel spreads connections
over them. The supervisor keeps all of them open: while a worker is restarted, the connections of
its sockets wait. Inherited sockets are divided among the workers if each of several may have its
own, and otherwise shared by all. For another configuration it binds what is new (`rebind`), and
closes what is gone when all workers are ready for it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gateway.base.errors import StartError
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import BACKLOG, SocketFile, bound, bound_file, lookup, places, untaken
from gateway.net.handover import Handover
from gateway.net.inherited import shares
from gateway.net.start_errors import ADMIN, cannot_listen
from gateway.wiring.client_listeners import BoundSocket, kept_listeners, listener_key

ADMIN_BACKLOG = 128
ADDED = 0o777
"""The permissions of a socket's file, but for the umask."""


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


class ChangedSockets(NamedTuple):
    """The sockets of another configuration, not in use yet.

    Attributes:
        config: the configuration.
        listeners: all of its sockets.
        new: those that must be handed over to the processes that run already.
        gone: those that the configuration before has and this one does not.
        modes: changed permissions of the files of Unix sockets.
    """

    config: GatewayConfig
    listeners: Listeners
    new: Listeners
    gone: Listeners
    modes: dict[str, int | None]

    def listen(self) -> None:
        """Listen at new addresses, where connections wait from now on.

        Raises:
            StartError: the system does not allow it.
        """
        for sockets in self.new.workers:
            for one in sockets:
                listener = self.config.listen[one.number]
                try:
                    one.socket.listen(BACKLOG)
                except OSError as error:
                    path = listener_key(self.config, one.number)
                    raise cannot_listen(path, listener.address, error) from error
        if self.config.admin is not None:
            for one in self.new.admin:
                try:
                    one.socket.listen(ADMIN_BACKLOG)
                except OSError as error:
                    raise cannot_listen(ADMIN, self.config.admin.listen, error) from error

    def take_effect(self, handover: Handover) -> None:
        """Close what is gone, so that only workers that can still accept have it open.

        Args:
            handover: the inherited sockets.
        """
        for path, mode in self.modes.items():
            # Somebody may have removed it.
            with suppress(OSError):
                Path(path).chmod(_default_mode() if mode is None else mode)
        for one in self.gone.all:
            handover.retire(one)
        self.gone.remove_files()
        self.gone.close_workers()
        self.gone.close_admin()

    def discard(self) -> None:
        """Release what is new."""
        self.new.remove_files()
        self.close()

    def close(self) -> None:
        """Close what is new in this process, which has no use for it."""
        self.new.close_workers()
        self.new.close_admin()


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
    found = _none(workers)
    changed = ChangedSockets(config, found, found, _none(workers), {})
    try:
        for index in range(len(config.listen)):
            _bind_for_all(index, changed, handover.ports, handover)
            changed.listen()
        if config.admin is not None:
            _bind_admin(config.admin.listen, found, handover.ports, handover)
            changed.listen()
    except StartError:
        changed.discard()
        raise
    return found


def rebind(
    before: Listeners, old: GatewayConfig, new: GatewayConfig, handover: Handover
) -> ChangedSockets:
    """Bind the addresses that are new in a configuration, without listening there.

    Those of inherited sockets that no listener uses so far are not bound, but used.

    Args:
        before: the sockets of the configuration in use.
        old: that configuration.
        new: the other one.
        handover: the inherited sockets.

    Raises:
        StartError: an address cannot be bound; the others are released.
        OSError: no more files can be opened; likewise.
    """
    workers = len(before.workers)
    kept = kept_listeners(old, new)
    changed = ChangedSockets(new, _none(workers), _none(workers), _none(workers), {})
    numbers = {number: index for index, number in kept.items()}
    for number, sockets in enumerate(before.workers):
        for one in sockets:
            if one.number in numbers:
                moved = one._replace(number=numbers[one.number])
                changed.listeners.workers[number].append(moved)
            else:
                changed.gone.workers[number].append(one)
    wanted = {one.address.path for one in new.listen if isinstance(one.address, UnixAddress)}
    for file in before.files:
        (changed.listeners if file.path in wanted else changed.gone).files.append(file)
    ours = frozenset(_ports(before))
    try:
        for index in range(len(new.listen)):
            if index not in kept and not _keep_queue(index, old, before, changed, handover):
                _bind_for_all(index, changed, ours, handover)
        if _has_same_admin(old, new):
            changed.listeners.admin.extend(before.admin)
        else:
            changed.gone.admin.extend(before.admin)
            if new.admin is not None:
                _bind_admin(new.admin.listen, changed.new, ours, handover)
    except (StartError, OSError):
        changed.discard()
        raise
    for number, sockets in enumerate(changed.new.workers):
        changed.listeners.workers[number].extend(sockets)
    changed.listeners.admin.extend(changed.new.admin)
    changed.listeners.files.extend(changed.new.files)
    return changed


def _none(workers: int) -> Listeners:
    return Listeners([[] for _ in range(workers)], [], [])


def _has_same_admin(old: GatewayConfig, new: GatewayConfig) -> bool:
    return old.admin is not None and new.admin is not None and old.admin.listen == new.admin.listen


def _ports(listeners: Listeners) -> Iterator[int]:
    for one in (*listeners.workers[0], *listeners.admin):
        if one.socket.family != socket.AF_UNIX:
            yield one.socket.getsockname()[1]


def _keep_queue(
    index: int,
    old: GatewayConfig,
    before: Listeners,
    changed: ChangedSockets,
    handover: Handover,
) -> bool:
    """Use the queue of a Unix socket again whose file only changes its permissions."""
    listener = changed.config.listen[index]
    addresses = [one.address for one in old.listen]
    if not isinstance(listener.address, UnixAddress) or listener.address not in addresses:
        return False
    number = addresses.index(listener.address)
    queue = [one.socket for one in before.workers[0] if one.number == number]
    _share([one.dup() for one in queue], index, changed.new)
    if not any(map(handover.is_foreign, queue)):
        changed.modes[listener.address.path] = listener.mode
    return True


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return ADDED & ~mask


def _bind_for_all(
    index: int, changed: ChangedSockets, ours: frozenset[int], handover: Handover
) -> None:
    """Bind the sockets of a listener.

    Args:
        index: its number.
        changed: receives the sockets.
        ours: ports that sockets of this gateway have already.
        handover: the inherited sockets.

    Raises:
        StartError: its address cannot be bound.
    """
    listener = changed.config.listen[index]
    found = changed.new
    try:
        if isinstance(listener.address, UnixAddress):
            _bind_file(index, listener, listener.address, found, handover)
            return
        inherited, wanted = handover.take(places(socket.getaddrinfo(**lookup(listener.address))))
        for group in _same_address(inherited):
            _divide(group, index, found)
        for family, place in wanted:
            taken = place if place[1] in ours else untaken(family, place)
            for sockets in found.workers:
                sockets.append(BoundSocket(index, bound(family, taken, shares_port=True)))
    except OSError as error:
        path = listener_key(changed.config, index)
        raise cannot_listen(path, listener.address, error, ours) from error


def _bind_file(
    index: int,
    listener: ListenerConfig,
    address: UnixAddress,
    found: Listeners,
    handover: Handover,
) -> None:
    one, file = bound_file(address, listener.mode, handover=handover)
    found.files.append(file)
    _share([one], index, found)


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
    """Return more sockets with the address of an inherited one.

    Raises:
        OSError: the system does not allow it.
    """
    made: list[socket.socket] = []
    try:
        while len(made) < number:
            made.append(bound(one.family, one.getsockname(), shares_port=True))
    except OSError:
        for other in made:
            other.close()
        raise
    return made


def _bind_admin(
    address: Address, found: Listeners, ours: frozenset[int], handover: Handover
) -> None:
    try:
        inherited, wanted = handover.take(places(socket.getaddrinfo(**lookup(address))))
        found.admin.extend(BoundSocket(0, one) for one in inherited)
        for family, place in wanted:
            taken = place if place[1] in ours else untaken(family, place)
            found.admin.append(BoundSocket(0, bound(family, taken, shares_port=True)))
    except OSError as error:
        raise cannot_listen(ADMIN, address, error, ours) from error


def _close(sockets: list[BoundSocket]) -> None:
    for one in sockets:
        one.socket.close()
    sockets.clear()
