"""The process that keeps the counts of all workers and serves the admin listener for them.

With a store outside the gateway it keeps no counts, and only serves the admin listener.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from functools import partial
from socket import socket
from typing import Final, NamedTuple, cast

from gateway.admin import AdminServer, FailedUpgrade, Phase, ReloadState
from gateway.base.tasks import Tasks
from gateway.config.models.gateway import Address, GatewayConfig
from gateway.net.start_errors import cannot_log
from gateway.observe.logs import Output, open_output, setup_logging
from gateway.observe.metrics import MemoryMetrics
from gateway.stores.opening import open_memory, reconfigure_memory
from gateway.stores.shared.server import SharedServer
from gateway.wiring.client_listeners import BoundSocket
from gateway.wiring.limiter import limits_by_policy, memory_url
from gateway.wiring.reloading import ConfigSource
from gateway.wiring.running import shown_names
from gateway.wiring.watching import Watcher
from gateway.workers import orders
from gateway.workers.fleet import Fleet
from gateway.workers.parcels import unpack
from gateway.workers.preparing import Preparing
from gateway.workers.reload_requests import ReloadRequests
from gateway.workers.upgrade import NOT_UPGRADED
from gateway.workers.worker import Post

log = logging.getLogger(__name__)

LOOKS: Final = 1_000
LOOK_S: Final = 0.005
"""How often, and how frequently, a successor's limiter checks whether the workers serve already."""


async def serve(
    config: GatewayConfig,
    workers: int,
    post: Post,
    source: ConfigSource,
    state: ReloadState,
) -> int:
    """Serve until the supervisor stops it or is gone; returns the exit status.

    Args:
        config: the configuration of the gateway.
        workers: how many workers there are.
        post: its channel, name and the sockets of the admin listener.
        source: where the configuration comes from.
        state: what came of reloads so far.

    Raises:
        StartError: the log's file cannot be opened.
    """
    running = _LimiterProcess(config, workers, post, source, state)
    await running.serve()
    return 0


def _log_text(files: list[int]) -> None:
    level, text = cast("tuple[int, str]", unpack(files[0]))
    log.log(level, "%s", text)


class _PreparedLimiter(NamedTuple):
    """Another configuration, and what was opened for it."""

    config: GatewayConfig
    output: Output
    sockets: list[socket]


class _LimiterProcess:
    """The limiter of a gateway; arguments as in `serve`."""

    def __init__(
        self,
        config: GatewayConfig,
        workers: int,
        post: Post,
        source: ConfigSource,
        state: ReloadState,
    ) -> None:
        self._config = config
        self._post = post
        self._metrics = post.place.counters()
        self._output = self._open_output(config)
        self._log_as(config)
        if post.reason:
            log.warning("%s", post.reason)
        # Kept while the counts are elsewhere: what was counted here still counts on a return.
        url, deadline_us = memory_url(config), config.store.deadline
        self._store = open_memory(
            url,
            domain=config.domain,
            deadline_us=deadline_us,
            new_counters=partial(self._metrics.new, MemoryMetrics),
        )
        self._use_store(config)
        # A restarted limiter does not wait for all workers: one may be missing by now.
        phase = Phase.SERVING if post.reason else Phase.STARTING
        self._fleet = Fleet(
            workers,
            self._metrics,
            post.place.ledgers,
            shown_names(config),
            phase,
            lambda: self._store.warning,
        )
        self._fleet.reloads.restore(state)
        self._ended, self._may_serve = asyncio.Event(), asyncio.Event()
        if not post.handover.is_pending:
            self._may_serve.set()
        self._tasks = Tasks()
        preparing = Preparing(self)
        self._supervisor = orders.Orders(
            post.channel,
            {
                **preparing.acts,
                orders.LINK: lambda files: self._tasks.start(self._link(files)),
                orders.SERVE: lambda _: self._may_serve.set(),
                orders.STOP: lambda _: self._end(),
                orders.YIELD: lambda _: self._tasks.start(self._yield()),
                orders.DRAIN: lambda _: self._drain(),
                orders.REOPEN: lambda _: self._reopen_log(),
                orders.LOG: _log_text,
                orders.OUTCOME: self._take_outcome,
                orders.NOT_UPGRADED: self._take_failed_upgrade,
            },
        )
        self._preparing = preparing
        self._requests = ReloadRequests(
            source.name, self._supervisor.ask_for_reload, self._fleet.reloads
        )
        self._watcher = Watcher(source.digest, self._requests.reload, source.loaded)
        self._sockets = [one.socket for one in post.sockets]
        self._admin: AdminServer | None = None
        self._old_admins: list[AdminServer] = []

    async def serve(self) -> None:
        """Serve until the supervisor stops it or is gone."""
        self._supervisor.report_started()
        if not self._may_serve.is_set():
            await self._may_serve.wait()
            await self._wait_for_workers()
        await self._start_admin()
        self._watcher.start(self._config.server.watch)
        self._preparing.start(self._supervisor)
        gc.collect()
        gc.freeze()
        await self._ended.wait()
        await self._watcher.end()
        await self._preparing.close()
        await self._close_admins()
        self._tasks.cancel()
        self._output.close()

    async def _wait_for_workers(self) -> None:
        """Wait until the workers serve: /readyz would say "starting" for a moment.

        Requests wait meanwhile.
        """
        for _ in range(LOOKS):
            if (await self._fleet.readiness()).phase is not Phase.STARTING:
                return
            await asyncio.sleep(LOOK_S)

    def _end(self) -> None:
        self._may_serve.set()
        self._ended.set()

    async def _yield(self) -> None:
        await self._close_admins()
        self._supervisor.report_yielded()

    async def _close_admins(self) -> None:
        for admin in (self._admin, *self._old_admins):
            if admin is not None:
                await admin.close()

    # Another configuration.

    async def prepare(
        self, config: GatewayConfig, sockets: Sequence[BoundSocket]
    ) -> _PreparedLimiter:
        """Open what another configuration needs.

        Raises:
            StartError: the log's file cannot be opened.
        """
        is_same = config.log.output == self._config.log.output
        output = self._output if is_same else self._open_output(config)
        return _PreparedLimiter(config, output, [one.socket for one in sockets])

    async def commit(self, prepared: _PreparedLimiter) -> None:
        """Use it; counts are kept."""
        before, self._config = self._config, prepared.config
        left, self._output = self._output, prepared.output
        self._log_as(self._config)
        if left is not self._output:
            left.close()
        self._use_store(self._config)
        self._fleet.names = shown_names(self._config)
        self._watcher.look_every(self._config.server.watch)
        if self._config.admin == before.admin:
            return
        if self._admin is not None:
            # Somebody there may have asked for this reload.
            self._old_admins.append(self._admin)
        is_moved = prepared.sockets or self._config.admin is None
        if is_moved:
            for one in self._sockets:
                one.close()
            self._sockets = prepared.sockets
        await self._start_admin()

    async def discard(self, prepared: _PreparedLimiter) -> None:
        """Close what was opened."""
        if prepared.output is not self._output:
            prepared.output.close()
        for one in prepared.sockets:
            one.close()

    def _use_store(self, config: GatewayConfig) -> None:
        url = memory_url(config)
        self._store.expect(limits_by_policy(config))
        if url:
            reconfigure_memory(self._store, url)
            self._metrics.memory = self._store.memory

    # The log.

    def _open_output(self, config: GatewayConfig) -> Output:
        try:
            return open_output(config.log.output, self._metrics.log, self._post.log_lock)
        except OSError as error:
            raise cannot_log(config.log.output, error) from error

    def _log_as(self, config: GatewayConfig) -> None:
        setup_logging(self._output, config.log.format, config.log.level, self._post.name)

    def _reopen_log(self) -> None:
        try:
            self._output.reopen()
        except OSError:
            log.exception("the log file cannot be reopened; logging continues to the old one")

    # The admin listener.

    async def _start_admin(self) -> None:
        self._admin = None
        if self._config.admin is None:
            return
        address, names = self._config.admin.listen, self._config.admin.hosts
        admin = AdminServer(
            address.host, address.port, self._fleet, reloadable=self._requests, names=names
        )
        # Copies: another configuration may have other options for the same address.
        await admin.start([one.dup() for one in self._sockets])
        self._admin = admin
        log.info("health and metrics on http://%s", Address(address.host, admin.port))

    def _take_outcome(self, files: list[int]) -> None:
        report = self._requests.take(files)
        self._watcher.note(report.digest)
        for admin in self._old_admins:
            self._tasks.start(admin.close())
        self._old_admins = []

    def _take_failed_upgrade(self, files: list[int]) -> None:
        failed = cast("FailedUpgrade", unpack(files[0]))
        log.error(NOT_UPGRADED, failed.reason)
        self._fleet.reloads.note_upgrade(failed)

    def _drain(self) -> None:
        self._fleet.drain()
        self._requests.stop()

    async def _link(self, files: list[int]) -> None:
        """Serve one more worker."""
        asking, reporting = (socket(fileno=number) for number in files)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: SharedServer(self._store), sock=asking)
        await self._fleet.join(reporting)
