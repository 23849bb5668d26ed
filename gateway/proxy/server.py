"""The clients of a gateway: admission, time limits and draining.

`Proxy` is the handler of all client connections (`client/handler.py`). Their requests are served by
`driver.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.clock import US
from gateway.base.deadlines import Watch
from gateway.base.errors import BadRequestError
from gateway.base.refusal_log import Refusals
from gateway.base.tasks import Portions
from gateway.board.board import Seat
from gateway.config.models.gateway import ServerConfig
from gateway.http import answer
from gateway.observe.logs import AccessEntry, AccessLog
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.acceptor import Acceptor
from gateway.proxy.client.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    Admission,
    Client,
    ClientBounds,
)
from gateway.proxy.client.handler import Configured, ConnectionSettings, ListenerRules
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.proxy.direct_responses import response_head
from gateway.proxy.driver import Driver
from gateway.proxy.gate import Gate
from gateway.proxy.response import Unrouted
from gateway.routing.spelling import Reserved

if TYPE_CHECKING:
    from gateway.proxy.client.handler import OpenConnection, ServedConnection, ServedRequest

log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""How long a client that is still sending has to read its answer (nginx: 5 s)."""


class ProxySettings(NamedTuple):
    """What a configuration says of all clients.

    Attributes:
        gate: decides which requests go where.
        config: the limits of clients.
        access_log: takes one line for each request; None without a log.
        bounds: how many clients there may be.
        reserved: as in `ConnectionSettings`.
        unrouted: how requests are answered where no route is known.
    """

    gate: Gate
    config: ServerConfig
    access_log: AccessLog | None
    bounds: ClientBounds
    reserved: Reserved
    unrouted: Unrouted = Unrouted()


class Proxy:
    """The handler of all client connections.

    Args:
        settings: of all clients.
        metrics: of the gateway.
        seat: as in `Admission`.

    Attributes:
        crowd: defers the work of many clients that leave at the same moment.
        serve: starts serving a request; see `Driver.serve`.
        refuse: answers one with an error; see `Driver.refuse`.
    """

    def __init__(
        self, settings: ProxySettings, metrics: GatewayMetrics, seat: Seat | None = None
    ) -> None:
        self._gate = settings.gate
        self._metrics = metrics
        self._clients: set[OpenConnection] = set()
        self._all_gone = asyncio.Event()
        self.crowd = Portions()
        self._driver = Driver(settings.gate, metrics, settings.access_log, settings.unrouted)
        # Saves a call per request.
        self.serve = self._driver.serve
        self.refuse = self._driver.refuse
        self._admission = Admission(self._clients, settings.bounds, seat)
        self._refusals = {
            limit: Refusals(log, f"clients are refused: server.{limit} is reached")
            for limit in (MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP)
        }
        self._of_connections = self._connection_settings(settings)
        self._watch = Watch(self._clients, self._of_connections.timeouts.shortest)

    def _connection_settings(self, settings: ProxySettings) -> ConnectionSettings:
        config = settings.config
        timeouts = ClientTimeouts(
            head=config.header_timeout / US,
            body=config.body_timeout / US,
            idle=config.keepalive_timeout / US,
            linger=LINGER_S,
            rate=float(config.min_rate or 0),
        )
        parser = RequestParser(config.max_header_size, config.max_headers, config.methods)
        return ConnectionSettings(self, timeouts, parser, config.max_head_size, settings.reserved)

    def acceptor(self, rules: ListenerRules | None = None) -> Acceptor:
        """Return what creates the connections of a listener."""
        return Acceptor(_with_rules(self._of_connections, rules or ListenerRules()))

    def reconfigure(
        self, settings: ProxySettings, listeners: Mapping[Configured, ListenerRules]
    ) -> None:
        """Serve as another configuration says, from the next request of each client on.

        Args:
            settings: of all clients.
            listeners: what creates the connections of each listener, and its rules; those that are
                missing keep theirs.
        """
        self._gate = settings.gate
        self._driver.reconfigure(settings.gate, settings.access_log, settings.unrouted)
        self._of_connections = self._connection_settings(settings)
        for acceptor in {*listeners, *(client.acceptor for client in self._clients)}:
            before = acceptor.settings
            kept = ListenerRules(before.https_port, before.http2, before.foreign_ports)
            acceptor.settings = _with_rules(self._of_connections, listeners.get(acceptor, kept))
        for client in self._clients:
            client.reconfigure()
        # After the clients, which may be others by what proxies are trusted now.
        self._admission.reconfigure(settings.bounds)
        self._watch.set(self._of_connections.timeouts.shortest)

    def close_when_idle(self, acceptors: Collection[Configured]) -> None:
        """End the connections of some listeners with their present requests."""
        for client in tuple(self._clients):
            if client.acceptor in acceptors:
                client.close_when_idle()

    def __repr__(self) -> str:
        return f"<Proxy {len(self._clients)} clients, {len(self._driver)} tasks>"

    @property
    def under_way(self) -> int:
        """Return how many requests are being served."""
        return sum(client.under_way for client in self._clients)

    def recognise(self, peer: str) -> tuple[str, bool]:
        """Return the key that a peer is counted under, and whether it is a trusted proxy."""
        return self._gate.recognise(peer)

    def connected(self, connection: OpenConnection, transport: asyncio.Transport) -> bool:
        """Admit a new client; return False, and close its transport, if there is no room."""
        now = asyncio.get_running_loop().time()
        limit, leaver = self._admission.judge(connection, now)
        if limit:
            self._metrics.connections_refused[limit] += 1
            self._refusals[limit].note()
            if connection.scheme == "https":
                # An orderly end of TLS would wait for the client.
                transport.abort()
            else:
                reply = answer.problem(503, "Too many connections")
                transport.write(response_head(reply, b"Connection: close\r\n") + reply.body)
                transport.close()
            return False
        if leaver is not None:
            self._evict(leaver)
        self._metrics.connections += 1
        self._clients.add(connection)
        self._all_gone.clear()
        self._watch.start()
        return True

    def disconnected(self, connection: OpenConnection) -> None:
        """Note that a client is gone."""
        self._metrics.connections -= 1
        self._clients.discard(connection)
        self._admission.release(connection)
        if not self._clients:
            self._all_gone.set()

    def make_room(self) -> None:
        """Close a client that is not busy, if another worker needs its place."""
        leaver = self._admission.make_room(asyncio.get_running_loop().time())
        if leaver is not None:
            self._evict(leaver)

    def _evict(self, leaver: Client) -> None:
        self._metrics.connections_evicted += 1
        leaver.make_room()

    def head_is_late(self) -> None:
        """Count a client that took too long to send the head of a request."""
        self._metrics.client_errors["header_timeout"] += 1

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count a client that took too long to read a response or the rest of the last one."""
        self._metrics.client_errors["send_timeout"] += 1
        if served is not None:
            served.error = "send_timeout"

    def misbehaved(self, kind: str) -> None:
        """Count an error of a client that has no request to be answered."""
        self._metrics.client_errors[kind] += 1

    def reject(self, connection: ServedConnection, error: BadRequestError) -> None:
        """Answer a request that could not be parsed; nothing follows."""
        self._metrics.client_errors[error.kind] += 1
        reply = answer.problem(error.status, error.title)
        connection.send(response_head(reply, b"Connection: close\r\n") + reply.body)
        access_log = self._driver.access_log
        if access_log is not None:
            access_log.log(
                AccessEntry(
                    client=connection.peer,
                    status=error.status,
                    body_bytes=len(reply.body),
                    error=error.kind,
                )
            )

    async def drain(self, seconds: float) -> int:
        """Let requests in progress end, for at most `seconds`; close idle connections immediately.

        Returns:
            How many requests were cut off.
        """
        self._driver.is_draining = True
        for connection in tuple(self._clients):
            connection.close_when_idle()
        if self._clients:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
        cut_off = self.under_way
        for connection in tuple(self._clients):
            connection.break_off()
        await self._driver.finish(1)
        self._watch.stop()
        for refusals in self._refusals.values():
            refusals.stop()
        return cut_off


def _with_rules(settings: ConnectionSettings, rules: ListenerRules) -> ConnectionSettings:
    return settings._replace(
        https_port=rules.https_port, http2=rules.http2, foreign_ports=rules.foreign_ports
    )
