"""Builds a running gateway from a checked configuration."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import socket
from typing import NamedTuple

from aiohttp import http_parser

import gateway
from gateway.admin.api import AdminServer
from gateway.admin.readiness import Phase, Readiness, StoreState, judge
from gateway.admin.resources import OneProcess
from gateway.base.clock import US
from gateway.base.errors import ConfigError, GatewayError, StartError
from gateway.base.tasks import becomes
from gateway.config.models.frontends import titles
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import (
    ALONE,
    BACKLOG,
    BindError,
    Sharing,
    SocketFile,
    bound_everywhere,
    bound_file,
)
from gateway.net.handover import HasNumber
from gateway.net.start_errors import ADMIN, cannot_listen, cannot_log
from gateway.net.tls.renewal import Renewal
from gateway.observe.logs import AccessLog, LineWriter, open_output, setup_logging
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.admission import affordable
from gateway.proxy.client.listener import HandshakeTimeouts, Listener
from gateway.proxy.gate import Gate
from gateway.proxy.server import Proxy
from gateway.proxy.upstream.health import HealthChecks
from gateway.proxy.upstream.targets import Upstream
from gateway.routing.client_address import ClientAddress
from gateway.stores.base import Store, WarningStore
from gateway.stores.migrating import MovingStore
from gateway.systems.base import Frontend, FrontendContext
from gateway.systems.listeners import make_frontends
from gateway.wiring.field_names import hidden_fields, reserved_fields
from gateway.wiring.limiter import decider_of, overrides_of, reader_of, store_of
from gateway.wiring.listeners import accept_plan_of, certificates_of
from gateway.wiring.policies import compile_policies, plans_of
from gateway.wiring.routes import compile_pages, compile_routes

log = logging.getLogger(__name__)

LOG_DELAY_S = 0.05
"""How long lines of requests are collected before they are written: one system call for many."""
STORE_S = 0.25
"""How long a start waits for its store; an unavailable store does not prevent a start."""
MAX_ANSWER_HEAD = 128 * 1024
"""Maximum size of the header fields of a response, in bytes."""


class BoundSocket(NamedTuple):
    """A socket that was bound for a listener.

    Attributes:
        number: the number of the listener, in the order of the configuration.
        socket: bound to its address.
    """

    number: int
    socket: socket


class WorkerResources(NamedTuple):
    """The resources that one of several workers receives instead of creating them.

    Attributes:
        name: the name of the worker, for the log.
        sockets: sockets that listen on the addresses of the configuration.
        workers: how many workers there are.
        memory: the store for `memory://`.
        log_lock: as in `gateway.observe.logs.open_output`.
        is_first: whether this worker serves the clients of other systems: their records are in one
            process, and some of their protocols allow one server per address.
        sharing: how these listeners share addresses with the worker that this one replaces.
    """

    name: str
    sockets: Sequence[BoundSocket]
    workers: int
    memory: Store
    log_lock: int
    is_first: bool = True
    sharing: Sharing = ALONE


class Gateway:
    """A gateway made from a configuration; use it in a running event loop.

    Args:
        config: checked and complete.
        resources: its place among several workers; None if it is the only one.
        sharing: how the only one shares addresses with processes before and after it.

    Raises:
        StartError: the log's file cannot be opened, or the store's URL cannot be used.
        GatewayError: the installed aiohttp is not safe to use.
    """

    def __init__(
        self,
        config: GatewayConfig,
        resources: WorkerResources | None = None,
        sharing: Sharing = ALONE,
    ) -> None:
        _require_strict_parser()
        loop = asyncio.get_running_loop()
        self.config = config
        self._resources = resources
        self._sharing = sharing if resources is None else resources.sharing
        self.metrics = GatewayMetrics(gateway.__version__)
        self._phase = Phase.STARTING
        try:
            lock = resources.log_lock if resources is not None else None
            self._output = open_output(config.log.output, self.metrics.log, lock)
        except OSError as error:
            raise cannot_log(config.log.output, error) from error
        name = resources.name if resources is not None else ""
        setup_logging(self._output, config.log.format, config.log.level, name)
        self._lines = LineWriter(self._output, partial(loop.call_later, LOG_DELAY_S))
        access_log = AccessLog(self._lines.write, config.log.format) if config.log.access else None
        try:
            memory = resources.memory if resources is not None else None
            store = store_of(config, self.metrics, memory)()
        except ConfigError as error:
            problem = error.problems[0]
            raise StartError(problem.path or "store.url", problem.message, problem.hint) from error
        self._store = store
        self._moving = store if isinstance(store, MovingStore) else None
        workers = resources.workers if resources is not None else 1
        self._decider = decider_of(config, store, self.metrics.store("main"), workers)
        has_frontends = resources is None or resources.is_first
        self._certificates = certificates_of(config, has_frontends=has_frontends)
        self._upstreams = {
            name: Upstream(
                name,
                upstream,
                self.metrics.upstream(name),
                max_head=MAX_ANSWER_HEAD,
                tls=self._certificates.upstreams.get(name),
            )
            for name, upstream in config.upstreams.items()
        }
        self._health = HealthChecks(self._upstreams.values())
        overrides = overrides_of(config)
        self._reader = reader_of(config, overrides)
        policies = compile_policies(config, self.metrics, overrides)
        routes = compile_routes(config, self._upstreams, policies, self.metrics)
        self._frontends: list[Frontend] = []
        if has_frontends:
            certificates = self._certificates.frontends
            context = FrontendContext(
                config=config,
                decider=self._decider,
                store=store,
                policies=policies,
                plan_of=plans_of(config.policies, policies),
                metrics=self.metrics,
                tls=dict(zip(titles(config.listeners), certificates, strict=True)),
                is_leaving=lambda: self._phase is Phase.DRAINING,
                sharing=self._sharing,
            )
            self._frontends = make_frontends(context)
        gate = Gate(
            routes,
            ClientAddress(config.trusted_proxies, config.ipv6_prefix),
            self._decider,
            hidden_fields(config),
        )
        self._max_connections = _max_connections(config)
        self._proxy = Proxy(
            gate,
            config.server,
            self.metrics,
            access_log=access_log,
            max_connections=self._max_connections,
            reserved=reserved_fields(config),
            pages=compile_pages(config),
        )
        self._renewal = Renewal(self._certificates.all, self._note_certificates)
        self._listeners: list[tuple[ListenerConfig, asyncio.Server | Listener]] = []
        self._files: list[SocketFile] = []
        self._admin: AdminServer | None = None

    @property
    def addresses(self) -> list[Address]:
        """The TCP addresses for clients, with the actual ports."""
        return [
            Address(*socket.getsockname()[:2])
            for config, listener in self._listeners
            for socket in listener.sockets
            if isinstance(config.address, Address)
        ]

    @property
    def frontend_addresses(self) -> list[Address | UnixAddress]:
        """The addresses for clients of other systems, in the order of the configuration."""
        return [frontend.address for frontend in self._frontends]

    @property
    def sockets(self) -> list[HasNumber]:
        """The sockets that another process can take over."""
        found: list[HasNumber] = [one for _, each in self._listeners for one in each.sockets]
        if self._admin is not None:
            found += self._admin.sockets
        return found + [one for frontend in self._frontends for one in frontend.sockets]

    @property
    def readiness(self) -> Readiness:
        """Return whether this gateway should get traffic."""
        states = [StoreState("main", self._decider.is_ready, self._reason_to_need_store())]
        if self._moving is not None:
            # Policies need the old store.
            states.append(StoreState("new", self._moving.is_new_ready, needed_by=""))
        warning = self._store.warning if isinstance(self._store, WarningStore) else ""
        return judge(self._phase, states, warning)

    def _reason_to_need_store(self) -> str:
        if any(policy.on_store_error == "closed" for policy in self.config.policies.values()):
            return "a policy"
        if any(listener.throttr is not None for listener in self.config.listeners):
            return "a Throttr listener"
        return ""

    async def start(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Listen and serve.

        Args:
            ready: called when it can serve, and serves only when that has returned.

        Nothing is logged before all addresses are bound: the log may belong to a gateway that is
        already running.

        Raises:
            StartError: it cannot listen on an address, or a certificate cannot be used; everything
                that was started is stopped again.
        """
        try:
            await asyncio.to_thread(self._certificates.load)
            self._note_certificates()
            await self._bind()
        except StartError:
            await self._close(0)
            raise
        await self._decider.start()
        if self._reader is not None:
            await self._reader.start()
        # Otherwise the gateway would decide the first requests alone.
        await becomes(lambda: self._decider.is_ready, STORE_S)
        for upstream in self._upstreams.values():
            upstream.start()
        self._health.start()
        try:
            await self._start_frontends()
        except StartError:
            await self._close(0)
            raise
        if ready is not None:
            await ready()
        for _, listener in self._listeners:
            await listener.start_serving()
        self._renewal.start()
        self._phase = Phase.SERVING
        if self._admin is not None and self.config.admin is not None:
            admin = Address(self.config.admin.listen.host, self._admin.port)
            log.info("health and metrics on http://%s", admin)
        for config, listener in self._listeners:
            for one in listener.sockets:
                where: object = config.address
                if isinstance(where, Address):
                    where = Address(*one.getsockname()[:2])
                log.info("listening on %s://%s", config.scheme, where)
        for name, frontend in zip(titles(self.config.listeners), self._frontends, strict=False):
            log.info("listening on %s for clients of %s", frontend.address, name)

    async def serve_admin(self) -> None:
        """Let the admin listener report on this gateway, and no longer on its predecessor."""
        if self._admin is not None:
            await self._admin.serve()

    async def _start_frontends(self) -> None:
        for index, frontend in enumerate(self._frontends):
            try:
                await frontend.start()
            except OSError as error:
                listener = self.config.listeners[index]
                address = error.address if isinstance(error, BindError) else listener.address
                raise cannot_listen(f"listeners[{index}].bind", address, error) from error

    async def _bind(self) -> None:
        if self._resources is not None:
            for taken in self._resources.sockets:
                await self._listen(taken)
            return
        for index, listener in enumerate(self.config.listen):
            try:
                for taken in await self._take(index, listener):
                    await self._listen(taken)
            except OSError as error:
                path = "listen" if len(self.config.listen) == 1 else f"listen[{index}]"
                raise cannot_listen(path, listener.address, error) from error
        if self.config.admin is not None:
            address = self.config.admin.listen
            subject = OneProcess(self.metrics, lambda: self.readiness)
            server = AdminServer(address.host, address.port, subject)
            try:
                sockets = await bound_everywhere(address, self._sharing)
                await server.start(sockets, waits=self._sharing.is_pending)
            except OSError as error:
                raise cannot_listen(ADMIN, address, error) from error
            self._admin = server

    async def _take(self, index: int, listener: ListenerConfig) -> list[BoundSocket]:
        """Return the sockets of a listener, bound to its address."""
        address = listener.address
        if isinstance(address, UnixAddress):
            predecessors, handover = self._sharing.predecessors, self._sharing.handover
            one, file = await asyncio.to_thread(
                bound_file, address, listener.mode, predecessors, handover
            )
            self._files.append(file)
            return [BoundSocket(index, one)]
        return [BoundSocket(index, one) for one in await bound_everywhere(address, self._sharing)]

    async def _listen(self, taken: BoundSocket) -> None:
        config = self.config.listen[taken.number]
        accept_plan = accept_plan_of(
            config, self.config, self._certificates.listeners[taken.number]
        )
        server = self._proxy.server
        listener: asyncio.Server | Listener
        if accept_plan.is_plain:
            make = partial(server.of_listener, accept_plan.https_port)
            listener = await asyncio.get_running_loop().create_server(
                make, sock=taken.socket, backlog=BACKLOG, start_serving=False
            )
        else:
            times = self.config.server
            patience = HandshakeTimeouts(times.header_timeout / US, times.body_timeout / US)
            listener = Listener(
                taken.socket,
                server,
                accept_plan,
                patience=patience,
                metrics=self.metrics,
                most=self._max_connections,
            )
        self._listeners.append((config, listener))

    async def stop(self, seconds: float | None = None, *, is_replaced: bool = False) -> None:
        """Shut down: report not ready, accept no connections, finish requests, and close.

        Args:
            seconds: how long requests may take; default: `server.shutdown_timeout`.
            is_replaced: whether another process already serves in its place, so that load balancers
                need no time to switch.
        """
        server = self.config.server
        if is_replaced and self._admin is not None:
            # Its socket is also the successor's, whose state is the one to report.
            await self._admin.close()
        self._phase = Phase.DRAINING
        if server.shutdown_delay and not is_replaced:
            delay = server.shutdown_delay / US
            log.info("no longer ready; accepting connections for another %g s", delay)
            await asyncio.sleep(delay)
        under_way = self._proxy.under_way + sum(one.under_way for one in self._frontends)
        log.info("draining: %d requests in flight", under_way)
        await self._close(server.shutdown_timeout / US if seconds is None else seconds)

    async def _close(self, seconds: float) -> None:
        """Close everything; requests in flight have this many seconds to end."""
        for file in self._files:
            await asyncio.to_thread(file.remove)
        for _, listener in self._listeners:
            listener.close()
        await self._renewal.end()
        cut_off = await asyncio.gather(
            self._proxy.drain(seconds), *(one.drain(seconds) for one in self._frontends)
        )
        await self._health.stop()
        for upstream in self._upstreams.values():
            upstream.close()
        if self._reader is not None:
            await self._reader.aclose()
        await self._decider.aclose()
        if self._admin is not None:
            await self._admin.close()
        if self._phase is Phase.DRAINING:
            if any(cut_off):
                log.warning("%d requests took too long and were cut off", sum(cut_off))
            log.info("stopped")
        self._lines.flush()
        self._output.close()

    def refuse_reload(self) -> None:
        """Check certificates; the rest of the configuration is not reloaded."""
        self.renew_certificates()
        log.warning("SIGHUP reloads only certificates: a changed configuration needs a restart")

    def renew_certificates(self) -> None:
        """Check immediately whether certificate files have changed."""
        self._renewal.look_now()

    def _note_certificates(self) -> None:
        for tls in self._certificates.shown:
            self.metrics.certificates.update(tls.expiries)

    def reopen_log(self) -> None:
        """Continue in a new file of the same name, after the old one was renamed."""
        self._lines.flush()
        try:
            self._output.reopen()
        except OSError:
            log.exception("the log file cannot be reopened; logging continues to the old one")


def _max_connections(config: GatewayConfig) -> int:
    """Return the maximum number of clients: the configured one, or what the open files allow."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.server.max_connections
    if wanted == "auto":
        upstreams = config.upstreams.values()
        return affordable(open_files, sum(u.max_connections * len(u.targets) for u in upstreams))
    most = affordable(open_files, 0)
    if wanted > most:
        log.warning(
            "server.max_connections is %d, but the limit of %d open files allows only "
            "%d; raise it with ulimit -n, or LimitNOFILE of systemd",
            wanted,
            open_files,
            most,
        )
    return min(wanted, most)


def _require_strict_parser() -> None:
    """Refuse aiohttp's parser in Python, which has had several smuggling vulnerabilities."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise GatewayError(
            "aiohttp runs without its C parser (AIOHTTP_NO_EXTENSIONS is set, or no "
            "wheel was installed); the gateway requires it, because the Python parser is "
            "not safe for untrusted clients"
        )
