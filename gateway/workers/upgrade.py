"""Upgrade: starts the program anew, from disk, and hands its listening sockets over.

Both processes serve at the same sockets for a moment. The old one ends when the new one has
reported that it serves. If the new one cannot serve, it is ended, and the old one continues
untouched. This module has no event loop: a gateway of one process and a supervisor use it alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket, socketpair
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import GatewayError, StartError
from gateway.config.models.gateway import Address, GatewayConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import SHARED, Sharing, places_of
from gateway.net.handover import Handover, HasNumber, Unwanted
from gateway.net.inherited import UPGRADE, VARIABLES, Announcement, announcement
from gateway.net.service_manager import NOTIFY_SOCKET, ServiceManager
from gateway.workers.start_signals import NOTED, signals_blocked

UPGRADING: Final = "upgrading: process %d is starting"
UPGRADED: Final = "upgraded: the new process serves; this one finishes its requests and ends"
NOT_UPGRADED: Final = "not upgraded: %s; this gateway continues to serve"
STOPPING: Final = "not upgraded: the gateway is stopping"
UNDER_WAY: Final = "another upgrade has not ended yet"
UPGRADE_WAITS: Final = "an upgrade was requested; it begins when the %s in progress has ended"
RELOAD_WAITS: Final = "a reload was requested; it begins when the upgrade in progress has ended"
REPLACED: Final = (
    "the gateway was upgraded meanwhile; the new process reads the configuration again"
)
CLOSED: Final = "%s is closed: no listener has this address any more"
UNUSED: Final = "no listener has the address of the inherited socket %s: connections wait there"
START_US: Final = 60 * US
"""How long a successor may take until it serves."""
ADMIN_US: Final = 2 * US
"""How long the admin listener may take to close, before the rest of this process stops."""
END_S: Final = 1.0
"""How long a successor that has closed its channel may take to end."""
SERVES: Final = b"+"
FAILED: Final = b"-"
STANDARD_FILES: Final = 3
FIRST_PID: Final = 1


class Successor:
    """A process that is to replace this one.

    Args:
        process: the process.
        channel: the connection to it.
        due_us: when it must have reported that it serves.
    """

    def __init__(self, process: subprocess.Popen[bytes], channel: socket, due_us: int) -> None:
        self.pid = process.pid
        self.channel = channel
        self.due_us = due_us
        self._process = process
        self._said = b""
        self._is_over = False

    def serves(self, now_us: int) -> bool | None:
        """Return whether it serves; None while that is not known."""
        try:
            data = self.channel.recv(1 << 16)
        except BlockingIOError:
            return None if now_us < self.due_us else False
        except OSError:
            data = b""
        self._is_over = not data
        self._said += data
        if self._said == SERVES:
            return True
        return False if self._is_over else None

    def end(self) -> str:
        """End it, and return why it does not serve; blocks for up to a second."""
        self.channel.close()
        said = self._said.removeprefix(FAILED).decode(errors="replace")
        if self._is_over:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        was_running = self._process.poll() is None
        self._process.kill()
        code = self._process.wait()
        if said:
            return said
        if was_running:
            return f"it did not serve within {START_US // US} s"
        if code >= 0:
            return f"it ended with status {code}"
        return f"it was killed by {signal.Signals(-code).name}"


class Succession:
    """The place of this process among those that have replaced each other.

    Args:
        announcement: what it inherits.
        environment: the variables for its successor.
        manager: the service manager.

    Attributes:
        handover: the sockets that it inherits.
        predecessors: the ids of the processes that it replaces.
        manager: as given.
        notes: lines about inherited sockets, for the log.

    Raises:
        GatewayError: an inherited socket cannot be used.
    """

    def __init__(
        self,
        announcement: Announcement,
        environment: Mapping[str, str],
        manager: ServiceManager,
    ) -> None:
        self.predecessors = announcement.predecessors
        self.manager = manager
        number = announcement.channel
        self.handover = Handover(announcement.sockets, has_predecessor=number is not None)
        self.notes: list[str] = []
        self._environment = environment
        self._predecessor = None if number is None else socket(fileno=number)
        if self._predecessor is not None:
            self._predecessor.set_inheritable(False)

    @property
    def sharing(self) -> Sharing:
        """Return how the listeners of this process share addresses with those of others."""
        # Otherwise a library that binds by itself could not have its address beside this process.
        return SHARED._replace(predecessors=self.predecessors, handover=self.handover)

    def serving(self) -> None:
        """Report that this process serves: to its predecessor, or else to the service manager."""
        # First: the predecessor closes its sockets when it is told.
        self.handover.adopt()
        if self._predecessor is None:
            self.manager.started()
        else:
            # It reports it to the service manager, which may not heed this process yet.
            self._tell(SERVES)

    def enter_child(self, *, keeps_sockets: bool) -> Handover:
        """Close what a new child of this process does not need; return its handover."""
        if self._predecessor is not None:
            self._predecessor.close()
        self.handover.forget_retiring()
        if not keeps_sockets:
            self.handover.close()
        return self.handover

    def use_for(self, config: GatewayConfig) -> None:
        """Close the inherited sockets that no listener of the first configuration will use.

        Raises:
            StartError: the service manager keeps such a socket open. After an upgrade this is no
                error: a reload may have removed the listener from the gateway that is replaced.
        """
        unwanted = self._drop_unwanted(config)
        if unwanted.open and self._predecessor is None:
            hint = "add such a listener, or remove the socket from the service manager's unit"
            names = ", ".join(unwanted.open)
            message = f"no listener has the address of the inherited socket {names}"
            raise StartError("listen", message, hint)
        self.notes = _lines(unwanted)

    def drop_unwanted(self, config: GatewayConfig) -> list[str]:
        """Close inherited sockets that no listener of another configuration uses; blocks.

        Returns:
            A line for the log about each of them, and about each that a service manager keeps open.
        """
        return _lines(self._drop_unwanted(config))

    def _drop_unwanted(self, config: GatewayConfig) -> Unwanted:
        if not self.handover.left:
            return Unwanted((), ())
        addresses: list[Address | UnixAddress] = [listener.address for listener in config.listen]
        # The libraries of other protocols bind by themselves.
        addresses += [one.address for one in config.listeners if one.throttr is not None]
        if config.admin is not None:
            addresses.append(config.admin.listen)
        return self.handover.drop_unwanted(places_of(addresses))

    @contextmanager
    def telling_failures(self) -> Iterator[None]:
        """Report an error that prevents the start to the predecessor as well."""
        try:
            yield
        except GatewayError as error:
            self._tell(FAILED + str(error).encode())
            raise

    def _tell(self, message: bytes) -> None:
        if self._predecessor is not None:
            with suppress(OSError), self._predecessor:
                self._predecessor.sendall(message)
            self._predecessor = None

    def start_successor(
        self, sockets: Iterable[HasNumber], family: Collection[int], now_us: int
    ) -> Successor:
        """Start the program anew.

        Args:
            sockets: those that it inherits.
            family: the ids of the processes that it replaces.
            now_us: the current time.

        Raises:
            OSError: it cannot be started.
        """
        announced = tuple(self.handover.announced([*sockets, *self.handover.left]))
        ours, theirs = socketpair()
        ours.setblocking(False)
        with theirs:
            channel = theirs.fileno()
            said = Announcement(announced, channel, frozenset(family))
            numbers = {channel, *(one.number for one in announced), *_inheritable()}
            try:
                # Until it can note them, which takes an interpreter some time, signals wait.
                with signals_blocked(NOTED):
                    process = subprocess.Popen(
                        [sys.executable, *sys.orig_argv[1:]],
                        env={**self._environment, UPGRADE: said.to_text()},
                        pass_fds=tuple(numbers),
                    )
            except OSError:
                ours.close()
                raise
        return Successor(process, ours, now_us + START_US)


def _lines(unwanted: Unwanted) -> list[str]:
    return [*(CLOSED % one for one in unwanted.closed), *(UNUSED % one for one in unwanted.open)]


def _inheritable() -> list[int]:
    """Return further descriptors that this process was started with: the log may go to one."""
    numbers = (int(one.name) for one in Path("/dev/fd").iterdir())
    found = []
    for number in numbers:
        with suppress(OSError):
            if number >= STANDARD_FILES and os.get_inheritable(number):
                found.append(number)
    return found


def succession_of(environment: MutableMapping[str, str]) -> Succession:
    """Return the place of this process; the variables that say it are removed.

    Raises:
        GatewayError: they cannot be understood, or name a socket that cannot be used.
    """
    announced = announcement(environment, os.getpid())
    for name in VARIABLES:
        environment.pop(name, None)
    manager = ServiceManager(environment.get(NOTIFY_SOCKET, ""))
    return Succession(announced, environment, manager)


class Upgrade:
    """Upgrades of this process, one at a time.

    Args:
        succession: of this process.

    Attributes:
        successor: the process that is being started, or that has replaced this one.
        is_done: whether it has replaced this one.
        admin_due_us: when this process stops at the latest, once it is replaced.
    """

    def __init__(self, succession: Succession) -> None:
        self._succession = succession
        self.successor: Successor | None = None
        self.is_done = False
        self.admin_due_us = 0

    def begin(
        self, sockets: Iterable[HasNumber], family: Collection[int], now_us: int
    ) -> Successor:
        """Start a successor; arguments as in `Succession.start_successor`.

        Raises:
            GatewayError: it cannot be started.
        """
        if self.successor is not None:
            raise GatewayError(UNDER_WAY)
        if os.getpid() == FIRST_PID:
            message = (
                "this is the first process of a container, which would end with it; "
                "replace the container instead"
            )
            raise GatewayError(message)
        try:
            self.successor = self._succession.start_successor(sockets, family, now_us)
        except OSError as error:
            raise GatewayError(f"the program cannot be started: {error}") from error
        self._succession.manager.reloading()
        return self.successor

    @property
    def is_waiting(self) -> bool:
        """Return whether a successor is being started."""
        return self.successor is not None and not self.is_done

    def next_us(self) -> int | None:
        """Return when a successor must serve, or this process stops for it; None if neither."""
        if self.is_done:
            return self.admin_due_us
        return self.successor.due_us if self.successor is not None else None

    def check(self, now_us: int) -> bool | None:
        """Return whether the successor serves; None while that is not known.

        Once it does, everything that was handed over belongs to it. If it does not, `failure` must
        follow.
        """
        serves = None if self.successor is None else self.successor.serves(now_us)
        if serves and self.successor is not None:
            self.is_done = True
            self.admin_due_us = now_us + ADMIN_US
            self._succession.handover.leave()
            self._succession.manager.replaced_by(self.successor.pid)
        return serves

    def may_stop(self, now_us: int, *, is_closed: bool) -> bool:
        """Return whether this process may drain: the successor serves.

        Args:
            now_us: the time.
            is_closed: whether the admin listener is closed. Its socket is also the successor's,
                whose state is the one to report.
        """
        return self.is_done and (is_closed or now_us >= self.admin_due_us)

    def failure(self) -> str:
        """End the successor, and return why it does not serve; blocks for up to a second."""
        reason = self.successor.end() if self.successor is not None else ""
        self.successor = None
        self._succession.manager.started()
        return reason

    def abandon(self) -> None:
        """End a successor that does not serve yet, if there is one: this process is ending."""
        if self.is_waiting and self.successor is not None:
            self.successor.end()
            self.successor = None
