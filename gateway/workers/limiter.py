"""The process that keeps the counts of all workers and serves the admin listener for them.

With a store outside the gateway it keeps no counts, and only serves the admin listener.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from socket import socket
from typing import Final

import gateway
from gateway.admin import AdminServer, Phase
from gateway.base.tasks import Tasks
from gateway.config.models.gateway import Address, GatewayConfig
from gateway.net.start_errors import cannot_log
from gateway.observe.logs import open_output, setup_logging
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.memory.store import MemoryStore
from gateway.stores.opening import open_memory
from gateway.stores.shared.server import SharedServer
from gateway.wiring.limiter import limits_by_policy
from gateway.workers import orders
from gateway.workers.fleet import Fleet
from gateway.workers.retired_counters import RetiredCounters
from gateway.workers.worker import Post

log = logging.getLogger(__name__)

MAX_TEXT: Final = 1 << 16
"""The longest text of `orders.LOG`, in bytes."""


async def serve(
    config: GatewayConfig, workers: int, memory_url: str, past_file: int, post: Post
) -> int:
    """Serve until the supervisor stops it or is gone; returns the exit status.

    Args:
        config: the configuration of the gateway.
        workers: how many workers there are.
        memory_url: the URL of the memory store; empty if counts are elsewhere.
        past_file: the file of `RetiredCounters`.
        post: its channel, name and the sockets of the admin listener.

    Raises:
        StartError: the log's file cannot be opened.
    """
    metrics = GatewayMetrics(gateway.__version__)
    try:
        output = open_output(config.log.output, metrics.log, post.log_lock)
    except OSError as error:
        raise cannot_log(config.log.output, error) from error
    setup_logging(output, config.log.format, config.log.level, post.name)
    if post.reason:
        log.warning("%s", post.reason)
    store = open_memory(memory_url, domain=config.domain, deadline_us=config.store.deadline)
    store.expect(limits_by_policy(config))
    if memory_url:
        metrics.memory = store.memory
    # A restarted limiter does not wait for all workers: one may be missing by now.
    retired = RetiredCounters(past_file, metrics.started_us)
    phase = Phase.SERVING if post.reason else Phase.STARTING
    fleet = Fleet(workers, metrics, retired, phase, lambda: store.warning)
    ended, may_serve = asyncio.Event(), asyncio.Event()
    if not post.handover.is_pending:
        may_serve.set()
    tasks = Tasks()
    admin: AdminServer | None = None

    def reopen(_: list[socket]) -> None:
        try:
            output.reopen()
        except OSError:
            log.exception("the log file cannot be reopened; logging continues to the old one")

    def end() -> None:
        may_serve.set()
        ended.set()

    def log_text(sockets: list[socket]) -> None:
        with sockets[0] as source:
            log.error("%s", source.recv(MAX_TEXT).decode(errors="replace"))

    async def close_admin() -> None:
        # Its socket is also the successor's, whose state is the one to report.
        if admin is not None:
            await admin.close()

    supervisor = orders.Orders(
        post.channel,
        {
            orders.LINK: lambda connections: tasks.start(_link(fleet, store, connections)),
            orders.SERVE: lambda _: may_serve.set(),
            orders.STOP: lambda _: end(),
            orders.DRAIN: lambda _: fleet.drain(),
            orders.REOPEN: reopen,
            orders.LOG: log_text,
            orders.YIELD: lambda _: tasks.start(close_admin()),
            orders.REFUSE: lambda _: log.warning(
                "SIGHUP reloads only certificates: a changed configuration needs a restart"
            ),
        },
    )
    supervisor.report_started()
    await may_serve.wait()
    if config.admin is not None:
        address = config.admin.listen
        admin = AdminServer(address.host, address.port, fleet)
        await admin.start([one.socket for one in post.sockets])
        log.info("health and metrics on http://%s", Address(address.host, admin.port))
    gc.collect()
    gc.freeze()
    await ended.wait()
    await close_admin()
    tasks.cancel()
    output.close()
    return 0


async def _link(fleet: Fleet, store: MemoryStore, connections: list[socket]) -> None:
    """Serve one more worker."""
    asking, reporting = connections
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: SharedServer(store), sock=asking)
    await fleet.join(reporting)
