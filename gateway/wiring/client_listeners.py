"""The listeners for HTTP clients: bound, served, and changed while they serve."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from socket import socket
from typing import Final, NamedTuple

from gateway.base.clock import US
from gateway.base.tasks import becomes
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import BACKLOG, Sharing, SocketFile, bound_everywhere, bound_file
from gateway.net.handover import Handover
from gateway.net.start_errors import cannot_listen
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.acceptor import Acceptor
from gateway.proxy.client.handler import Configured, ListenerRules
from gateway.proxy.client.listener import AcceptPlan, HandshakeTimeouts, Listener
from gateway.proxy.client.plain_listener import PlainListener
from gateway.proxy.server import Proxy
from gateway.wiring.listeners import (
    Certificates,
    accept_plan_of,
    check_http2,
    rules_of,
)

SERVED_S: Final = 1.0
"""How long clients whose connections were accepted may take until they are served, at the end."""


class BoundSocket(NamedTuple):
    """A socket that was bound for a listener.

    Attributes:
        number: the number of the listener, in the order of the configuration.
        socket: bound to its address.
    """

    number: int
    socket: socket


@dataclass(slots=True)
class _ListenerGroup:
    """One listener, with a socket for each of its addresses.

    Attributes:
        config: what it was made from.
        acceptor: creates the connections of its clients.
        listeners: they own the sockets.
        file: the file of a Unix socket.
    """

    config: ListenerConfig
    acceptor: Acceptor
    listeners: list[Listener | PlainListener]
    file: SocketFile | None = None


class ChangedListeners(NamedTuple):
    """The listeners of another configuration, not in use yet.

    Attributes:
        config: the configuration.
        plans: what each of its listeners does with new connections.
        bound: sockets of listeners that are new.
        files: the files of new Unix sockets, by the number of their listener.
        kept: the number of a listener, and its number before.
        handover: the inherited sockets; None if another process closes what is gone.
    """

    config: GatewayConfig
    plans: list[AcceptPlan]
    bound: list[BoundSocket]
    files: dict[int, SocketFile]
    kept: Mapping[int, int]
    handover: Handover | None

    def close(self) -> None:
        """Release what is new."""
        for file in self.files.values():
            file.remove()
        for one in self.bound:
            one.socket.close()


def kept_listeners(old: GatewayConfig, new: GatewayConfig) -> dict[int, int]:
    """Return which listeners keep their sockets: the number of each, and its number before."""
    numbers = {(one.address, one.mode): number for number, one in enumerate(old.listen)}
    return {
        number: numbers[one.address, one.mode]
        for number, one in enumerate(new.listen)
        if (one.address, one.mode) in numbers
    }


def listener_key(config: GatewayConfig, number: int) -> str:
    """Return the key of a listener, as problems name it."""
    return "listen" if len(config.listen) == 1 else f"listen[{number}]"


class ClientListeners:
    """All listeners of a gateway for HTTP clients.

    Args:
        proxy: serves the clients.
        metrics: counts failures.
    """

    def __init__(self, proxy: Proxy, metrics: GatewayMetrics) -> None:
        self._proxy = proxy
        self._metrics = metrics
        self._config: GatewayConfig | None = None
        self._groups: list[_ListenerGroup] = []
        self._retired: list[Listener | PlainListener] = []

    @property
    def sockets(self) -> list[socket]:
        """Return the sockets that it listens on."""
        return [one for group in self._groups for each in group.listeners for one in each.sockets]

    @property
    def addresses(self) -> list[tuple[ListenerConfig, Address | UnixAddress]]:
        """Return the addresses, with the actual ports."""
        found: list[tuple[ListenerConfig, Address | UnixAddress]] = []
        for group in self._groups:
            address = group.config.address
            for listener in group.listeners:
                for one in listener.sockets:
                    is_tcp = isinstance(address, Address)
                    actual = Address(*one.getsockname()[:2]) if is_tcp else address
                    found.append((group.config, actual))
        return found

    async def prepare(
        self,
        config: GatewayConfig,
        certificates: Certificates,
        sockets: Sequence[BoundSocket] | None,
        sharing: Sharing,
    ) -> ChangedListeners:
        """Bind what is new in a configuration, without serving there.

        Args:
            config: the configuration.
            certificates: those of its listeners.
            sockets: the sockets of listeners that are new; None to bind them.
            sharing: how addresses are shared with other processes.

        Raises:
            StartError: an address cannot be bound; nothing new is left open.
        """
        check_http2(config)
        kept = kept_listeners(self._config, config) if self._config is not None else {}
        plans = [
            accept_plan_of(listener, config, tls)
            for listener, tls in zip(config.listen, certificates.listeners, strict=True)
        ]
        handover = sharing.handover or Handover(has_predecessor=False)
        retires = handover if sockets is None else None
        changed = ChangedListeners(config, plans, list(sockets or ()), {}, kept, retires)
        if sockets is not None:
            return changed
        for number, listener in enumerate(config.listen):
            if number in kept:
                continue
            try:
                await self._bind(number, listener, changed, sharing)
            except OSError as error:
                changed.close()
                path = listener_key(config, number)
                raise cannot_listen(path, listener.address, error, sharing.ports) from error
        return changed

    async def _bind(
        self, number: int, listener: ListenerConfig, changed: ChangedListeners, sharing: Sharing
    ) -> None:
        address = listener.address
        if isinstance(address, UnixAddress):
            # The file may be that of a listener that is about to go.
            own = frozenset({os.getpid()} if self._config is not None else ())
            predecessors, handover = sharing.predecessors | own, sharing.handover
            one, file = await asyncio.to_thread(
                bound_file, address, listener.mode, predecessors, handover
            )
            changed.files[number] = file
            changed.bound.append(BoundSocket(number, one))
        else:
            found = await bound_everywhere(address, sharing)
            changed.bound.extend(BoundSocket(number, one) for one in found)
            if self._config is not None:
                # An error must be known before anything is changed.
                for one in found:
                    one.listen(BACKLOG)

    def acceptors(self, changed: ChangedListeners) -> dict[Configured, ListenerRules]:
        """Return what creates the connections of listeners that stay, and their rules."""
        config = changed.config
        return {
            self._groups[before].acceptor: rules_of(config.listen[number], config)
            for number, before in changed.kept.items()
        }

    async def commit(self, changed: ChangedListeners, most: int) -> None:
        """Serve at the listeners of another configuration, and no longer at those before.

        Args:
            changed: as prepared.
            most: as in `Listener`.
        """
        config = changed.config
        times = config.server
        patience = HandshakeTimeouts(times.header_timeout / US, times.body_timeout / US)
        before, groups = self._groups, []
        retired = [
            group for number, group in enumerate(before) if number not in changed.kept.values()
        ]
        ended: set[Configured] = {group.acceptor for group in retired}
        for number, (listener, plan) in enumerate(zip(config.listen, changed.plans, strict=True)):
            old = before[changed.kept[number]] if number in changed.kept else None
            if old is None:
                sockets = [one.socket for one in changed.bound if one.number == number]
                acceptor = self._proxy.acceptor(rules_of(listener, config))
                group = _ListenerGroup(listener, acceptor, [], changed.files.get(number))
            else:
                group = old
                is_changed = old.config != listener
                if is_changed:
                    # Its clients came in by other rules.
                    ended.add(old.acceptor)
                old.config = listener
                sockets = self._keep(old, plan, patience, most, is_changed=is_changed)
            for one in sockets:
                group.listeners.append(self._listener(one, group.acceptor, plan, patience, most))
                await group.listeners[-1].start_serving()
            groups.append(group)
        self._groups = groups
        self._config = config
        for group in retired:
            if group.file is not None:
                await asyncio.to_thread(group.file.remove)
            if changed.handover is not None:
                for one in (each for listener in group.listeners for each in listener.sockets):
                    changed.handover.retire(one)
            self._retire(group.listeners)
        self._proxy.close_when_idle(ended)

    def _keep(
        self,
        group: _ListenerGroup,
        plan: AcceptPlan,
        patience: HandshakeTimeouts,
        most: int,
        *,
        is_changed: bool,
    ) -> list[socket]:
        """Change a listener; return copies of its sockets if it needs listeners of another kind."""
        others = [one for one in group.listeners if isinstance(one, PlainListener) != plan.is_plain]
        if not others:
            for one in group.listeners:
                if isinstance(one, Listener):
                    one.reconfigure(plan, patience, most, is_changed=is_changed)
            return []
        copies = [one.dup() for listener in others for one in listener.sockets]
        group.listeners = []
        self._retire(others)
        return copies

    def _retire(self, listeners: Sequence[Listener | PlainListener]) -> None:
        for one in listeners:
            one.retire()
        self._retired = [one for one in (*self._retired, *listeners) if one.is_busy]

    def _listener(
        self,
        sock: socket,
        acceptor: Acceptor,
        plan: AcceptPlan,
        patience: HandshakeTimeouts,
        most: int,
    ) -> Listener | PlainListener:
        if plan.is_plain:
            return PlainListener(sock, acceptor)
        return Listener(sock, acceptor, plan, patience, self._metrics, most)

    async def stop(self, seconds: float) -> None:
        """Accept no more.

        Args:
            seconds: how long requests may take. Connections that are not served yet have no longer,
                and at most a second.
        """
        for group in self._groups:
            if group.file is not None:
                await asyncio.to_thread(group.file.remove)
        for group in self._groups:
            self._retired += group.listeners
        for listener in self._retired:
            # Nobody else accepts what waits at an address that a successor does not have.
            listener.retire()
        await becomes(lambda: not any(one.is_busy for one in self._retired), min(seconds, SERVED_S))
        for listener in self._retired:
            listener.close()
