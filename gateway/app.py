"""The one place where objects are put together: a configuration becomes a running gateway."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from aiohttp import http_parser

import gateway
from gateway.admin.api import AdminServer
from gateway.admin.readiness import Phase, Readiness, StoreState, judge
from gateway.config.consistency import parts
from gateway.config.models import Address, GatewayConfig
from gateway.decider import Decider
from gateway.errors import GatewayError
from gateway.logs import AccessLog, LineWriter, open_output, setup_logging
from gateway.metrics import GatewayMetrics
from gateway.proxy.gate import Gate
from gateway.proxy.pool import Upstream
from gateway.proxy.routes import compile_routes
from gateway.proxy.server import Proxy
from gateway.routing.client_address import ClientAddress
from gateway.stores import open_store
from gateway.stores.base import Store
from gateway.stores.moving import MovingStore, chosen

log = logging.getLogger(__name__)

US = 1_000_000
LOG_DELAY_S = 0.05
"""How long lines of requests are gathered before they are written: one system call for many."""
BACKLOG = 4096
MAX_ANSWER_HEAD = 128 * 1024
"""Bytes of header fields that an answer may have."""


class Gateway:
    """A gateway made from a configuration; to be used inside a running event loop.

    Args:
        config: checked and complete.

    Raises:
        OSError: the log's file cannot be opened.
        GatewayError: this machine's aiohttp must not be used at the edge.
    """

    def __init__(self, config: GatewayConfig) -> None:
        _require_strict_parser()
        loop = asyncio.get_running_loop()
        self.config = config
        self.metrics = GatewayMetrics(gateway.__version__)
        self._phase = Phase.STARTING
        self._output = open_output(config.log.output, self.metrics.log)
        setup_logging(self._output, config.log.format, config.log.level)
        self._lines = LineWriter(self._output, partial(loop.call_later, LOG_DELAY_S))
        access_log = AccessLog(self._lines.write, config.log.format) if config.log.access else None
        store = _open_store(config)
        self._decider = Decider(
            store,
            deadline_us=config.store.deadline,
            share=None if config.store.share == "auto" else config.store.share,
            max_waiting=config.server.max_waiting,
            metrics=self.metrics.store("main"),
            terms=[policy.terms for policy in config.policies.values() if policy.terms],
        )
        self._upstreams = {
            name: Upstream(name, upstream, self.metrics.upstream(name), MAX_ANSWER_HEAD)
            for name, upstream in config.upstreams.items()
        }
        routes = compile_routes(config, self._upstreams, self.metrics)
        gate = Gate(
            routes,
            ClientAddress(config.trusted_proxies, config.ipv6_prefix),
            self._decider,
        )
        self._proxy = Proxy(gate, config.server, self.metrics, access_log)
        self._listeners: list[asyncio.Server] = []
        self._admin: AdminServer | None = None

    @property
    def addresses(self) -> list[Address]:
        """Where clients may connect, with the ports that were really taken."""
        return [
            Address(*socket.getsockname()[:2])
            for listener in self._listeners
            for socket in listener.sockets
        ]

    @property
    def readiness(self) -> Readiness:
        """Whether this gateway should get traffic."""
        is_required = any(
            policy.on_store_error == "closed" for policy in self.config.policies.values()
        )
        state = StoreState("main", self._decider.is_ready, is_required)
        return judge(self._phase, [state])

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            OSError: an address cannot be listened on; what was started is stopped again.
        """
        try:
            await self._start()
        except OSError:
            await self.stop(0)
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        await self._decider.start()
        admin = self.config.admin
        if admin is not None:
            server = AdminServer(
                admin.listen.host, admin.listen.port, self.metrics, lambda: self.readiness
            )
            await server.start()
            self._admin = server
            log.info("health and metrics on http://%s", Address(admin.listen.host, server.port))
        for address in self.config.listen:
            listener = await loop.create_server(
                self._proxy.server, address.host, address.port, backlog=BACKLOG
            )
            self._listeners.append(listener)
        self._phase = Phase.SERVING
        for address in self.addresses:
            log.info("listening on http://%s", address)

    async def stop(self, seconds: float | None = None) -> None:
        """Take no more connections, let requests under way end, then close everything.

        Args:
            seconds: how long requests may take; by default `server.shutdown_timeout`.
        """
        self._phase = Phase.DRAINING
        for listener in self._listeners:
            listener.close()
        if seconds is None:
            seconds = self.config.server.shutdown_timeout / US
        await self._proxy.drain(seconds)
        for upstream in self._upstreams.values():
            upstream.close()
        await self._decider.aclose()
        if self._admin is not None:
            await self._admin.close()
        log.info("stopped")
        self._lines.flush()
        self._output.close()

    def reopen_log(self) -> None:
        """Go on in a new file of the same name, after the old one was renamed."""
        self._lines.flush()
        try:
            self._output.reopen()
        except OSError:
            log.exception("the log cannot be opened again; it goes on where it was")


def _open_store(config: GatewayConfig) -> Store:
    """The store that counts are kept in; both, while they move."""
    deadline_us, migrate = config.store.deadline, config.store.migrate
    store = open_store(config.store.url, domain=config.domain, deadline_us=deadline_us)
    if migrate is None:
        return store
    new = open_store(migrate.to, domain=config.domain, deadline_us=deadline_us)
    is_moving = chosen(parts(migrate.share), migrate.policies)
    return MovingStore(store, new, is_moving, deadline_us=deadline_us)


def _require_strict_parser() -> None:
    """Aiohttp's parser in Python has been open to request smuggling more than once."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise GatewayError(
            "aiohttp runs without its C parser (AIOHTTP_NO_EXTENSIONS is set, or no wheel was"
            " installed); the gateway needs it, because the other one is not safe at the edge"
        )
