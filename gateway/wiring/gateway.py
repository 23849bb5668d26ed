"""Builds a running gateway from a checked configuration, and gives it others while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import gateway
from gateway.admin.api import AdminServer
from gateway.admin.readiness import Phase, Readiness, judge
from gateway.admin.reloading import Reloadable, ReloadRecord
from gateway.admin.resources import OneProcess
from gateway.base.build import BUILD
from gateway.base.clock import US
from gateway.base.errors import StartError
from gateway.base.renewal import Renewal
from gateway.base.tasks import Tasks, becomes
from gateway.board.board import Seat
from gateway.config.models.frontends import titles
from gateway.config.models.gateway import Address, GatewayConfig
from gateway.config.values.address import UnixAddress
from gateway.net.binding import SHARED, Sharing
from gateway.net.handover import HasNumber
from gateway.net.start_errors import cannot_change_workers, cannot_log
from gateway.observe.logs import AccessLog, LineWriter, Output, open_output, setup_logging
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.request_parser import require_strict_parser
from gateway.proxy.server import Proxy
from gateway.proxy.upstream.health import HealthChecks
from gateway.systems.base import Frontend
from gateway.systems.listeners import make_frontends
from gateway.wiring.admin import start_admin
from gateway.wiring.client_listeners import BoundSocket, ChangedListeners, ClientListeners
from gateway.wiring.frontends import FrontendChange, change_frontends, start_frontends
from gateway.wiring.limiter import load_stores, store_unavailable
from gateway.wiring.reading import read_in_time
from gateway.wiring.running import ProcessParts, RunningConfig, missing_files
from gateway.wiring.worker_resources import WorkerResources

log = logging.getLogger(__name__)

LOG_DELAY_S = 0.05
"""How long lines of requests are collected before they are written: one system call for many."""
STORE_S = 0.25
"""How long a start waits for its store; an unavailable store does not prevent a start."""
NEW_STORE_S = 2.0
"""How long a reload waits for another store: less than workers have for the whole reload."""


class Prepared(NamedTuple):
    """Another configuration, ready to be used.

    Attributes:
        running: what was made from it.
        listeners: its listeners for HTTP clients.
        frontends: its listeners for clients of other systems; those that are new have started.
        admin: its admin listener, started already if it is new; None for none.
        output: where it logs.
    """

    running: RunningConfig
    listeners: ChangedListeners
    frontends: FrontendChange
    admin: AdminServer | None
    output: Output


class Gateway:
    """A gateway made from a configuration; use it in a running event loop.

    Args:
        config: checked and complete.
        resources: its place among several workers; None if it is the only one.
        sharing: how the only one shares addresses with processes before and after it.

    Attributes:
        reloads: what came of its reloads.
        reloadable: reloads it for `POST /reload`; None without a file. Set it before the start.

    Raises:
        StartError: the log's file cannot be opened, or the store's URL cannot be used.
        GatewayError: the installed aiohttp is not safe to use.
    """

    def __init__(
        self,
        config: GatewayConfig,
        resources: WorkerResources | None = None,
        sharing: Sharing = SHARED,
    ) -> None:
        require_strict_parser()
        self._resources = resources
        shared = resources.metrics if resources is not None else None
        self.metrics = shared or GatewayMetrics(gateway.__version__)
        self.reloads = ReloadRecord(self.metrics)
        self.reloadable: Reloadable | None = None
        self._phase = Phase.STARTING
        self._output = self._open_output(config)
        self._log_as(config)
        self._around = ProcessParts(self.metrics, is_leaving=self._is_leaving, sharing=sharing)
        if resources is not None:
            self._around = resources.parts(self._around)
        self._running = RunningConfig(config, self._around)
        self._running.compile()
        self._frontends: list[Frontend] = []
        if self._around.has_frontends:
            self._frontends = make_frontends(self._running.frontend_context())
        self._seat = self._around.seat
        self._proxy = Proxy(self._running.settings(self._access_log), self.metrics, self._seat)
        self._listeners = ClientListeners(self._proxy, self.metrics)
        self._health = HealthChecks()
        self._renewal = Renewal(self._running.certificates.all, self._note_certificates)
        self._retiring = Tasks()
        self._admin: AdminServer | None = None
        if warning := missing_files(config, self._around.workers):
            log.warning("%s", warning)

    @property
    def config(self) -> GatewayConfig:
        """The configuration in use."""
        return self._running.config

    def _is_leaving(self) -> bool:
        return self._phase is Phase.DRAINING

    def _open_output(self, config: GatewayConfig) -> Output:
        lock = self._resources.log_lock if self._resources is not None else None
        try:
            return open_output(config.log.output, self.metrics.log, lock)
        except OSError as error:
            raise cannot_log(config.log.output, error) from error

    def _log_as(self, config: GatewayConfig) -> None:
        """Log as a configuration says from now on."""
        output, settings = self._output, config.log
        name = self._resources.name if self._resources is not None else ""
        setup_logging(output, settings.format, settings.level, name)
        later = partial(asyncio.get_running_loop().call_later, LOG_DELAY_S)
        self._lines = LineWriter(output, later)
        self._access_log: AccessLog | None = None
        if settings.access:
            self._access_log = AccessLog(self._lines.write, settings.format)

    @property
    def addresses(self) -> list[Address]:
        """The TCP addresses for clients, with the actual ports."""
        found = (address for _, address in self._listeners.addresses)
        return [address for address in found if isinstance(address, Address)]

    @property
    def frontend_addresses(self) -> list[Address | UnixAddress]:
        """The addresses for clients of other systems, in the order of the configuration."""
        return [frontend.address for frontend in self._frontends]

    @property
    def sockets(self) -> list[HasNumber]:
        """The sockets that another process can take over."""
        admin = self._admin.sockets if self._admin is not None else []
        frontends = [one for frontend in self._frontends for one in frontend.sockets]
        return [*self._listeners.sockets, *admin, *frontends]

    @property
    def _ports(self) -> frozenset[int]:
        """The TCP ports that this process has."""
        admin = [self._admin.port] if self._admin is not None else []
        of_frontends = [one.port for one in self.frontend_addresses if isinstance(one, Address)]
        return frozenset([*(one.port for one in self.addresses), *admin, *of_frontends])

    @property
    def readiness(self) -> Readiness:
        """Return whether this gateway should get traffic."""
        return judge(self._phase, *self._running.store_states())

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
        running, config = self._running, self.config
        sockets = self._resources.sockets if self._resources is not None else None
        try:
            await asyncio.to_thread(running.load)
            self._note_certificates()
            listeners = await self._listeners.prepare(
                config, running.certificates, sockets, self._around.sharing
            )
        except StartError:
            await self._close(0)
            raise
        try:
            self._admin = await self._start_admin(config, self._around.sharing)
            await running.start()
            # Otherwise the gateway would decide the first requests alone.
            await becomes(lambda: running.decider.is_ready, STORE_S)
            running.take_effect()
            self._health.watch(running.upstreams.values())
            await start_frontends(config, list(enumerate(self._frontends)))
        except StartError:
            listeners.close()
            await self._close(0)
            raise
        if ready is not None:
            await ready()
        await self._listeners.commit(listeners, running.max_connections)
        self._renewal.start()
        if self._seat is not None:
            asyncio.get_running_loop().add_reader(self._seat.heard, self._on_bell, self._seat)
        self._phase = Phase.SERVING
        self._say_where()

    async def serve_admin(self) -> None:
        """Let the admin listener report on this gateway, and no longer on its predecessor."""
        if self._admin is not None:
            await self._admin.serve()

    def _on_bell(self, seat: Seat) -> None:
        """Look at the board, where another worker has written something."""
        seat.silence()
        self._proxy.make_room()
        self._running.learn()

    def _say_where(self) -> None:
        log.info("sluice %s (%s)", gateway.__version__, BUILD)
        if self._admin is not None and self.config.admin is not None:
            admin = Address(self.config.admin.listen.host, self._admin.port)
            log.info("health and metrics on http://%s", admin)
        for listener, address in self._listeners.addresses:
            log.info("listening on %s://%s", listener.scheme, address)
        for name, frontend in zip(titles(self.config.listeners), self._frontends, strict=False):
            log.info("listening on %s for clients of %s", frontend.address, name)

    async def _start_admin(self, config: GatewayConfig, sharing: Sharing) -> AdminServer | None:
        """Return the admin listener of a configuration; None if it has none, or not here."""
        if self._resources is not None:
            return None
        subject = OneProcess(self.metrics, lambda: self.readiness, self.reloads)
        return await start_admin(config, subject, self.reloadable, sharing)

    # Another configuration.

    async def reload(self, config: GatewayConfig) -> None:
        """Serve as another configuration says; connections, waiting requests and counts are kept.

        Args:
            config: checked and complete.

        Raises:
            StartError: it cannot be used; the present one stays in use.
        """
        await self.commit(await self.prepare(config))

    async def prepare(self, config: GatewayConfig, sockets: Sequence[BoundSocket] = ()) -> Prepared:
        """Make all that another configuration needs, and leave the present one in use.

        Either `commit` or `discard` must follow.

        Args:
            config: checked and complete.
            sockets: sockets of listeners that are new; for one of several workers, which cannot
                bind them.

        Raises:
            StartError: it cannot be used; everything that was made is undone.
        """
        present = self._running
        if self._resources is None and config.server.workers != present.config.server.workers:
            raise cannot_change_workers()
        await asyncio.to_thread(load_stores, config)
        output = self._output
        if config.log.output != present.config.log.output:
            output = self._open_output(config)
        try:
            running = RunningConfig(config, self._around, present)
        except StartError:
            self._close_output(output)
            present.publish()
            raise
        bound = None if self._resources is None else sockets
        sharing = self._around.sharing._replace(ports=self._ports)
        listeners, admin = None, self._admin
        change = FrontendChange(self._frontends, [], [], [])
        try:
            await asyncio.to_thread(running.compile)
            await read_in_time(running.load, "certificates and lists")
            listeners = await self._listeners.prepare(config, running.certificates, bound, sharing)
            if config.admin != present.config.admin:
                admin = await self._start_admin(config, sharing)
            await running.start()
            await self._await_store(running)
            if self._around.has_frontends:
                context = running.frontend_context()._replace(sharing=sharing)
                change = change_frontends(context, present.config, self._frontends)
                await start_frontends(config, change.new)
        except BaseException:
            await self._undo(running, listeners, change.new, admin, output)
            raise
        return Prepared(running, listeners, change, admin, output)

    async def commit(self, prepared: Prepared) -> None:
        """Serve as the prepared configuration says, and end what it does not use.

        If the gateway is shutting down meanwhile, nothing is changed.
        """
        if self._phase is not Phase.SERVING:
            await self.discard(prepared)
            return
        running, listeners, frontends, admin, output = prepared
        config = running.config
        before, self._running = self._running, running
        self._frontends = frontends.running
        lines, old_output, self._output = self._lines, self._output, output
        if config.log != before.config.log:
            self._log_as(config)
        settings = running.settings(self._access_log)
        running.take_effect()
        self._proxy.reconfigure(settings, self._listeners.acceptors(listeners))
        await self._listeners.commit(listeners, running.max_connections)
        self._health.watch(running.upstreams.values())
        self._renewal.watch(running.certificates.all)
        self._renewal.look_now()
        self._note_certificates()
        for apply in frontends.changes:
            apply()
        for frontend in frontends.retired:
            self._retiring.start(self._drain(frontend, before.config))
        self._retiring.start(before.retire(running))
        if admin is not self._admin:
            left, self._admin = self._admin, admin
            if left is not None:
                self._retiring.start(left.close())
        lines.flush()
        if output is not old_output:
            old_output.close()
        if warning := missing_files(config, self._around.workers):
            log.warning("%s", warning)

    async def discard(self, prepared: Prepared) -> None:
        """Undo what was prepared; the present configuration stays in use."""
        running, listeners, frontends, admin, output = prepared
        await self._undo(running, listeners, frontends.new, admin, output)

    async def _await_store(self, running: RunningConfig) -> None:
        """Wait for the store of another configuration.

        Raises:
            StartError: it is not available. The present one is, and is not given up for that.
        """
        is_needed = self._running.decider.is_ready
        is_ready = await becomes(
            lambda: running.decider.is_ready, NEW_STORE_S if is_needed else STORE_S
        )
        if is_needed and not is_ready:
            raise store_unavailable(running.config)

    async def _undo(
        self,
        running: RunningConfig,
        listeners: ChangedListeners | None,
        frontends: Sequence[tuple[int, Frontend]],
        admin: AdminServer | None,
        output: Output,
    ) -> None:
        for _, frontend in frontends:
            await frontend.drain(0)
        if listeners is not None:
            listeners.close()
        if admin is not None and admin is not self._admin:
            await admin.close()
        await running.discard(self._running)
        self._close_output(output)

    def _close_output(self, output: Output) -> None:
        if output is not self._output:
            output.close()

    @staticmethod
    async def _drain(frontend: Frontend, config: GatewayConfig) -> None:
        await frontend.drain(config.server.shutdown_timeout / US)

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
        if self._seat is not None:
            asyncio.get_running_loop().remove_reader(self._seat.heard)
        await self._listeners.stop(seconds)
        await self._renewal.end()
        cut_off = await asyncio.gather(
            self._proxy.drain(seconds), *(one.drain(seconds) for one in self._frontends)
        )
        await self._health.stop()
        await self._retiring.finish(1)
        await self._running.aclose()
        if self._admin is not None:
            await self._admin.close()
        if self._phase is Phase.DRAINING:
            if any(cut_off):
                log.warning("%d requests took too long and were cut off", sum(cut_off))
            log.info("stopped")
        self._lines.flush()
        self._output.close()

    def renew_certificates(self) -> None:
        """Check immediately whether certificate files, or the keys of tokens, have changed."""
        self._renewal.look_now()
        self._running.look_at_keys()

    def _note_certificates(self) -> None:
        expiries: dict[str, int] = {}
        for tls in self._running.certificates.shown:
            expiries |= tls.expiries
        self.metrics.certificates = expiries

    def reopen_log(self) -> None:
        """Continue in a new file of the same name, after the old one was renamed."""
        self._lines.flush()
        try:
            self._output.reopen()
        except OSError:
            log.exception("the log file cannot be reopened; logging continues to the old one")
