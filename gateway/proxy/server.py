"""The clients of a gateway: admission, time limits and draining.

`Proxy` is the handler of all client connections (`client/handler.py`). Their requests are served by
`driver.py`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gateway.base.clock import US
from gateway.base.deadlines import Watch
from gateway.base.errors import BadRequestError
from gateway.base.refusal_log import Refusals
from gateway.base.tasks import Portions
from gateway.config.models.gateway import ServerConfig
from gateway.http import answer
from gateway.observe.logs import AccessEntry, AccessLog
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.acceptor import ProxyServer
from gateway.proxy.client.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP, Admission
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.proxy.direct_responses import ErrorPages, response_head
from gateway.proxy.driver import Driver
from gateway.proxy.gate import Gate

if TYPE_CHECKING:
    from gateway.proxy.client.handler import ServedRequest
    from gateway.routing.spelling import Reserved

log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""How long a client that is still sending has to read its answer (nginx: 5 s)."""


class Proxy:
    """The handler of all client connections.

    Args:
        gate: decides which requests go where.
        config: the limits of clients.
        metrics: of the gateway.
        access_log: takes one line for each request; None without a log.
        max_connections: how many clients there may be.
        reserved: as in `ClientConnection`.
        pages: the formats of errors where no route is known; None for problem documents.

    Attributes:
        server: creates a connection object for each client, for `loop.create_server`.
        crowd: defers the work of many clients that leave at the same moment.
        serve: starts serving a request; see `Driver.serve`.
    """

    def __init__(
        self,
        gate: Gate,
        config: ServerConfig,
        metrics: GatewayMetrics,
        access_log: AccessLog | None,
        max_connections: int,
        reserved: Reserved,
        pages: ErrorPages | None = None,
    ) -> None:
        self._gate = gate
        self._metrics = metrics
        self._clients: set[ClientConnection] = set()
        self._all_gone = asyncio.Event()
        self.crowd = Portions()
        self._driver = Driver(gate, metrics, access_log, pages)
        # Saves a call per request.
        self.serve = self._driver.serve
        timeouts = ClientTimeouts(
            head=config.header_timeout / US,
            body=config.body_timeout / US,
            idle=config.keepalive_timeout / US,
            linger=LINGER_S,
            rate=float(config.min_rate or 0),
        )
        self._admission = Admission(self._clients, max_connections, config.max_connections_per_ip)
        self._refusals = {
            limit: Refusals(log, f"clients are refused: server.{limit} is reached")
            for limit in (MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP)
        }
        self._watch = Watch(self._clients, min(timeouts[:-1]))
        self.server = ProxyServer(
            self,
            timeouts,
            parser=RequestParser(config.max_header_size, config.max_headers, config.methods),
            max_head=config.max_head_size,
            reserved=reserved,
        )

    def __repr__(self) -> str:
        return f"<Proxy {len(self._clients)} clients, {len(self._driver)} tasks>"

    @property
    def under_way(self) -> int:
        """Return how many requests are being served."""
        return sum(client.is_busy for client in self._clients)

    def recognise(self, peer: str) -> tuple[str, bool]:
        """Return the key that a peer is counted under, and whether it is a trusted proxy."""
        return self._gate.recognise(peer)

    def connected(self, connection: ClientConnection, transport: asyncio.Transport) -> bool:
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
            self._metrics.connections_evicted += 1
            leaver.make_room()
        self._metrics.connections += 1
        self._clients.add(connection)
        self._all_gone.clear()
        self._watch.start()
        return True

    def disconnected(self, connection: ClientConnection) -> None:
        """Note that a client is gone."""
        self._metrics.connections -= 1
        self._admission.release(connection)
        self._clients.discard(connection)
        if not self._clients:
            self._all_gone.set()

    def head_is_late(self) -> None:
        """Count a client that took too long to send the head of a request."""
        self._metrics.client_errors["header_timeout"] += 1

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count a client that took too long to read a response or the rest of the last one."""
        self._metrics.client_errors["send_timeout"] += 1
        if served is not None:
            served.error = "send_timeout"

    def reject(self, connection: ClientConnection, error: BadRequestError) -> None:
        """Answer a request that could not be parsed; the connection ends with it."""
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
