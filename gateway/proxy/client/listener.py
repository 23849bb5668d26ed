"""A listener whose connections need a step before they are served.

The steps are reading a PROXY header and the TLS handshake. Each connection takes them in a task of
its own and in bounded time; only then is a `ClientConnection` created, so that a client that never
completes them costs the proxy nothing. Plain TCP listeners use the event loop's own server.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from gateway.base.tasks import Tasks
from gateway.net.binding import BACKLOG
from gateway.net.tls.handshake import Handshake, handshake_under_way
from gateway.net.tls.peer import ClientCertificate, client_certificate
from gateway.net.tls.server import ServerTls
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.acceptor import Acceptor
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.handler import Identified
from gateway.proxy.client.protocol_choice import ProtocolChoice, as_protocol
from gateway.proxy.client.proxy_header import LONGEST, ProxyHeaderError, ProxyHeaderReader
from gateway.routing.client_address import ClientAddress

log = logging.getLogger(__name__)

ACCEPTS: Final = 100
"""Connections accepted in one turn of the event loop."""
PAUSE_S: Final = 1.0
"""Pause in accepting when the process is out of files (as asyncio does)."""
SPARE: Final = 64
"""Connections that may be in a handshake when the number of clients is at its limit."""
ALERT_READ_S: Final = 1.0
"""How long a client whose handshake failed has to read the alert."""
ALERT_READ_BYTES: Final = 65_536
"""Bytes read from such a client meanwhile."""
TRANSIENT: Final = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.EPROTO, errno.EPERM),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    }
)
"""Errors that concern one connection, which is gone by now (accept(2))."""


class AcceptPlan(NamedTuple):
    """What a listener does with new connections.

    Attributes:
        tls: the TLS settings; None for plain connections.
        senders: peers whose connections begin with a PROXY header; None for none.
        is_local: whether peers are processes of this machine, which have no addresses; if there
            are senders, all of them are.
        fields: details of client certificates, and the names of the fields that carry them.
    """

    tls: ServerTls | None = None
    senders: ClientAddress | None = None
    is_local: bool = False
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether new connections need no step."""
        return self.tls is None and self.senders is None and not self.is_local


class HandshakeTimeouts(NamedTuple):
    """How long a client may take, in seconds.

    Attributes:
        step: for each step before it is served.
        end: to read what was sent and to end TLS in order; no less than it would have without
            TLS, or the last answer would be cut off.
    """

    step: float
    end: float


class Listener:
    """Accepts connections on one socket.

    Args:
        sock: bound to an address; owned by the listener from now on.
        acceptor: creates the connections.
        plan: what is done with new ones.
        patience: how long clients may take.
        metrics: counts failures.
        most: how many connections there may be at a time, including those that are served. One
            more, and the oldest unfinished handshake is dropped, so that clients that never
            finish it do not keep others out.
    """

    def __init__(
        self,
        sock: socket.socket,
        acceptor: Acceptor,
        plan: AcceptPlan,
        patience: HandshakeTimeouts,
        metrics: GatewayMetrics,
        most: int,
    ) -> None:
        self._socket = sock
        self._acceptor = acceptor
        self._metrics = metrics
        self._rules = 0
        self.reconfigure(plan, patience, most, is_changed=True)
        self._tasks = Tasks()
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Return the socket, as `asyncio.Server` does."""
        return () if self._is_closed else (self._socket,)

    async def start_serving(self) -> None:
        """Start accepting connections."""
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket, self._accept)

    def reconfigure(
        self, plan: AcceptPlan, patience: HandshakeTimeouts, most: int, *, is_changed: bool
    ) -> None:
        """Accept from now on as another configuration says; arguments as in the constructor.

        Args:
            plan: see there.
            patience: likewise.
            most: likewise.
            is_changed: whether the rules by which clients come in are others.
        """
        self._rules += is_changed
        self._plan = plan
        self._patience = patience
        self._most = most

    @property
    def is_busy(self) -> bool:
        """Return whether connections are not served yet."""
        return bool(self._under_way)

    def retire(self) -> None:
        """Accept what has connected by now, and no more; those that are not served yet go on."""
        if not self._is_closed and self._pause is None:
            self._accept(BACKLOG)
        self.stop()

    def close(self) -> None:
        """Accept no more; drop those that are not served yet."""
        self.stop()
        self._tasks.cancel()

    def stop(self) -> None:
        """Accept no more; those that are not served yet go on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self, most: int = ACCEPTS) -> None:
        for _ in range(most):
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if error.errno in TRANSIENT:
                    return
                log.error("no connection can be taken for %g s: %s", PAUSE_S, error)  # noqa: TRY400
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(PAUSE_S, self._go_on)
                return
            sock.setblocking(False)
            peer = "" if self._plan.is_local else address[0]
            self._start(sock, peer)

    def _start(self, sock: socket.socket, peer: str) -> None:
        # If clients have taken all places, one that completes its steps may replace an idle one.
        room = max(self._most - self._metrics.connections, min(self._most // 8, SPARE), 1)
        if len(self._under_way) >= room:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
            self._metrics.client_errors["handshake_timeout"] += 1
        task = self._tasks.start(self._receive(sock, peer))
        self._under_way[task] = None
        task.add_done_callback(self._is_over)

    def _is_over(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    async def _receive(self, sock: socket.socket, peer: str) -> None:
        """Take the steps, and let the connection be served."""
        rules = self._rules
        # uvloop does not return it if there is TLS.
        made: list[ClientConnection | ProtocolChoice] = []
        await self._connect(sock, peer, made)
        if self._is_closed or rules != self._rules:
            for connection in made:
                # It came in by other rules, like those that were open before.
                connection.close_when_idle()

    async def _connect(
        self, sock: socket.socket, peer: str, made: list[ClientConnection | ProtocolChoice]
    ) -> None:
        """Take the steps, and create the connection."""
        plan = self._plan
        client = ""
        senders = plan.senders
        if senders is not None and (plan.is_local or senders.is_trusted(peer)):
            try:
                async with asyncio.timeout(self._patience.step):
                    client = await _proxy_header(self._loop, sock)
            except (ProxyHeaderError, TimeoutError) as error:
                sock.close()
                self._failed("proxy_header", peer, error)
                return
            except OSError as error:
                sock.close()
                self._left(peer, error)
                return
            except BaseException:
                sock.close()
                raise
        make = partial(self._acceptor, client)
        if plan.tls is not None and plan.tls.asks_clients:
            make = partial(make, identify=partial(_identify, plan.fields))
        handshake = Handshake(sock)

        def noted() -> asyncio.Protocol:
            made.append(make())
            return as_protocol(made[0])

        try:
            if plan.tls is None:
                await self._loop.connect_accepted_socket(noted, sock)
            else:
                handshake_under_way.set(handshake)
                await self._loop.connect_accepted_socket(
                    noted,
                    sock,
                    ssl=plan.tls.context,
                    ssl_handshake_timeout=self._patience.step,
                    ssl_shutdown_timeout=self._patience.end,
                )
        except ssl.SSLError as error:
            self._failed("handshake", client or peer, error)
            if handshake.refused is not None:
                await self._read_to_end(handshake.refused)
        except ConnectionAbortedError as error:
            self._failed("handshake_timeout", client or peer, error)
        except OSError as error:
            self._left(client or peer, error)

    async def _read_to_end(self, sock: socket.socket) -> None:
        """Discard what a refused client still sends: a reset would lose the alert."""
        left = ALERT_READ_BYTES
        with sock, suppress(OSError, TimeoutError):
            async with asyncio.timeout(min(self._patience.step, ALERT_READ_S)):
                while left > 0 and (data := await self._loop.sock_recv(sock, left)):
                    left -= len(data)

    @staticmethod
    def _left(peer: str, error: OSError) -> None:
        """Note a client that left before it was served, such as a port check."""
        log.debug("%s left before it was served: %s", peer or "a local process", error)

    def _failed(self, kind: str, peer: str, error: BaseException) -> None:
        self._metrics.client_errors[kind] += 1
        log.debug("%s of %s: %s", kind, peer or "a local process", error)


def _identify(fields: Iterable[tuple[str, str]], connection: Identified, source: Any) -> None:
    """Record the identity of a client.

    Args:
        fields: as in `AcceptPlan`.
        connection: of the client.
        source: its transport.
    """
    connected = source.get_extra_info("ssl_object")
    der = connected.getpeercert(binary_form=True)
    if der is None:
        return
    certificate = client_certificate(connected.getpeercert(), der)
    connection.certificate = certificate
    connection.own_fields = own_fields(certificate, fields)


def own_fields(certificate: ClientCertificate, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the header lines that describe a client's certificate to an upstream."""
    told = ((name, getattr(certificate, detail)) for detail, name in fields)
    return b"".join(f"{name}: {value}\r\n".encode("ascii") for name, value in told if value)


async def _proxy_header(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> str:
    """Read a PROXY header from the start of a connection, and nothing after it."""
    reader = ProxyHeaderReader()
    while True:
        try:
            data = sock.recv(LONGEST, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(loop, sock)
            continue
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed before its PROXY header")
        size = reader.feed(data)
        sock.recv(size)
        if reader.source is not None:
            return reader.source


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    arrived = loop.create_future()

    def note() -> None:
        if not arrived.done():
            arrived.set_result(None)

    loop.add_reader(sock, note)
    try:
        await arrived
    finally:
        loop.remove_reader(sock)
