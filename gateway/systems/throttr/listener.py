"""A listener for the clients of Throttr, version 2 or 5: a server of records that expire.

Records are in memory, or in the Redis of the configuration's store, shared by all gateways that
use it. They are independent of this gateway's limits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.base.clock import US, Clock, monotonic_ns
from gateway.base.tasks import becomes
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.config.values.store_url import capabilities_of
from gateway.net.binding import Sharing, SocketFile, bound_everywhere, bound_file
from gateway.net.handover import HasNumber
from gateway.observe.metrics import FrontendMetrics
from gateway.systems.base import FrontendContext
from gateway.systems.throttr.client_connection import ThrottrClientConnection
from gateway.systems.throttr.codec import NO, Parser, Request
from gateway.systems.throttr.codec_v2 import Parser2, refusal
from gateway.systems.throttr.codec_v5 import Parser5
from gateway.systems.throttr.config import ThrottrConfig
from gateway.systems.throttr.memory_v2 import Memory2
from gateway.systems.throttr.memory_v5 import Memory5
from gateway.systems.throttr.records import Records
from gateway.systems.throttr.records_store import MemoryBook, RecordStore, SharedBook

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)
"""Clients may be idle for any time. Keepalive probes find clients that vanished without closing the
connection, such as machines that lost power, within two minutes."""
LONGEST_LOOK_S: Final = 0.5
SHORTEST_LOOK_S: Final = 0.01


class ThrottrFrontend:
    """A `Frontend`.

    Args:
        address: where to listen.
        mode: of a Unix socket's file; None for the default of the umask.
        config: the version of the protocol, and its bounds.
        book: keeps the records.
        metrics: counters.
        sharing: of its address.

    Attributes:
        made_from: what it cannot change while it serves, from its configuration.
        book, metrics, connections, watched, is_draining: see `ConnectionContext`.
    """

    def __init__(
        self,
        address: Address | UnixAddress,
        mode: int | None,
        config: ThrottrConfig,
        book: RecordStore,
        metrics: FrontendMetrics,
        sharing: Sharing,
    ) -> None:
        self.made_from: object = None
        self.book = book
        self.metrics = metrics
        self.connections: set[ThrottrClientConnection] = set()
        self.watched: set[ThrottrClientConnection] = set()
        self.is_draining = False
        self._address = address
        self._mode = mode
        self._sharing = sharing
        self._file: SocketFile | None = None
        self._config = config
        self._timeout_s = config.message_timeout / US
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_warned = False

    def reconfigured(
        self, name: str, listener: FrontendConfig, context: FrontendContext
    ) -> Callable[[], object] | None:
        """Prepare to serve as another configuration says; see `Frontend`."""
        config = listener.throttr
        is_same = context.metrics.frontend(name) is self.metrics
        if config is None or not is_same or self.made_from != _made_from(listener, context):
            return None
        return partial(self._use, config)

    def _use(self, config: ThrottrConfig) -> None:
        self._config = config
        self._timeout_s = config.message_timeout / US
        if isinstance(self.book, MemoryBook):
            self.book.resize(config.max_records, config.max_memory)

    @property
    def address(self) -> Address | UnixAddress:
        """The address that it listens on."""
        return self._address

    @property
    def is_full(self) -> bool:
        """Whether new clients are refused."""
        return len(self.connections) >= self._config.max_connections

    def parser(self) -> Parser:
        """Return a parser for a new client."""
        malformed = self.count_malformed
        if self._config.version == "v2":
            return Parser2(malformed)
        return Parser5(self._config.bits, self._config.max_message, malformed)

    async def start(self) -> None:
        """Listen and serve; see `Frontend`."""
        make, loop = partial(ThrottrClientConnection, self), asyncio.get_running_loop()
        try:
            for one in await self._bind():
                server = await loop.create_server(
                    make, sock=one, backlog=BACKLOG, start_serving=False
                )
                self._servers.append(server)
            await self.book.start()
            for server in self._servers:
                await server.start_serving()
        except BaseException:
            await self._close()
            raise
        if isinstance(self._address, Address):
            port = self._servers[0].sockets[0].getsockname()[1]
            self._address = Address(self._address.host, port)
        self._look()

    async def _bind(self) -> list[socket.socket]:
        address, sharing = self._address, self._sharing
        if isinstance(address, UnixAddress):
            one, self._file = await asyncio.to_thread(
                bound_file, address, self._mode, sharing.predecessors, sharing.handover
            )
            return [one]
        found = await bound_everywhere(address, sharing)
        for one in found:
            for option in KEEPALIVE:
                # Accepted sockets inherit the options of the listening one.
                one.setsockopt(*option)
        return found

    async def _close(self) -> None:
        if self._file is not None:
            await asyncio.to_thread(self._file.remove)
        for server in self._servers:
            server.close()

    @property
    def sockets(self) -> Sequence[HasNumber]:
        """The sockets that it listens on; see `Frontend`."""
        return [one for server in self._servers for one in server.sockets]

    @property
    def under_way(self) -> int:
        """How many requests wait for the book, or for their client to read answers."""
        return sum(connection.under_way for connection in self.connections)

    async def drain(self, seconds: float) -> int:
        """Refuse new clients, answer what was read, and close; see `Frontend`."""
        self.is_draining = True
        await self._close()
        for connection in list(self.connections):
            connection.drain()
        await becomes(self._are_gone, seconds)
        left = self.under_way
        for connection in list(self.connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        await self.book.aclose()
        return left

    def _are_gone(self) -> bool:
        """Return whether all clients are gone; close those that can be closed now."""
        for connection in list(self.connections):
            connection.close_when_acknowledged()
        return not self.connections

    def count_malformed(self, kind: str) -> None:
        """Count a malformed request, and log its likely cause once."""
        self.metrics.malformed[kind] += 1
        if self._is_warned:
            return
        self._is_warned = True
        config = self._config
        versions = f"v5 with values of {config.bits} bits" if config.version == "v5" else "v2"
        log.warning(
            "%s: a client sent a malformed request of Throttr %s (%s); its version or size may "
            "differ; further ones are only counted",
            self._address,
            versions,
            kind,
        )

    def _look(self) -> None:
        """End connections whose time limit has passed."""
        loop = asyncio.get_running_loop()
        since = loop.time() - self._timeout_s
        for connection in [each for each in self.watched if each.since <= since]:
            connection.expire()
        pause_s = max(min(self._timeout_s / 4, LONGEST_LOOK_S), SHORTEST_LOOK_S)
        self._timer = loop.call_later(pause_s, self._look)


def make_throttr(
    name: str, listener: FrontendConfig, context: FrontendContext, clock: Clock = monotonic_ns
) -> ThrottrFrontend:
    """Return the server of a listener; see `MakeFrontend`.

    `clock` gives nanoseconds, for records in memory.
    """
    config = listener.throttr
    assert config is not None, "it is a listener of this kind"
    metrics = context.metrics.frontend(name)
    if not capabilities_of(context.config.store.url).is_shared:
        book: RecordStore = _in_memory(config, metrics, clock)
    else:
        book = _in_redis(name, config, context.config, metrics)
    address, mode = listener.address, listener.mode
    frontend = ThrottrFrontend(address, mode, config, book, metrics, context.sharing)
    frontend.made_from = _made_from(listener, context)
    return frontend


def _made_from(listener: FrontendConfig, context: FrontendContext) -> object:
    """Return what a listener cannot change while it serves."""
    config, whole = listener.throttr, context.config
    assert config is not None, "it is a listener of this kind"
    fixed = (listener.address, listener.mode, config.version, config.bits)
    if not capabilities_of(whole.store.url).is_shared:
        return fixed
    return *fixed, whole.store.url, whole.domain, whole.store.deadline, config.max_message


def _in_memory(config: ThrottrConfig, metrics: FrontendMetrics, clock: Clock) -> MemoryBook:
    records = Records(config.max_records, config.max_memory)
    memory = Memory2(records) if config.version == "v2" else Memory5(records, config.bits)
    return MemoryBook(memory, records, metrics, clock)


def _in_redis(
    name: str, config: ThrottrConfig, whole: GatewayConfig, metrics: FrontendMetrics
) -> SharedBook:
    from gateway.stores.redis.records import open_records
    from gateway.stores.redis.records_codec import RecordCodec, RecordCodec2, RecordCodec5

    domain, store = whole.domain, whole.store
    words: RecordCodec = (
        RecordCodec2(domain) if config.version == "v2" else RecordCodec5(domain, config.bits)
    )
    return SharedBook(
        open_records(store.url, words, deadline_us=store.deadline),
        refusal if config.version == "v2" else _no,
        name,
        metrics,
        deadline_us=store.deadline,
        longest=config.max_message,
    )


def _no(request: Request) -> bytes:  # noqa: ARG001
    """Return the refusal of version 5, which is the same for every request."""
    return NO
