"""One worker: a gateway on sockets that it receives."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Sequence
from socket import socket
from typing import Final, NamedTuple

from gateway.base.tasks import Tasks
from gateway.config.models.gateway import GatewayConfig
from gateway.net.binding import Sharing
from gateway.net.handover import Handover
from gateway.stores.shared.store import SharedStore
from gateway.wiring.client_listeners import BoundSocket
from gateway.wiring.gateway import Gateway, Prepared
from gateway.wiring.limiter import memory_url
from gateway.wiring.worker_resources import WorkerResources
from gateway.workers import orders
from gateway.workers.places import Place
from gateway.workers.preparing import Preparing
from gateway.workers.reports import Reporter

log = logging.getLogger(__name__)

REPLACED_S: Final = 10.0
"""How long a stopped worker continues to serve if no other replaces it."""


class Post(NamedTuple):
    """What a child of the supervisor receives.

    Attributes:
        name: its name, for the log.
        channel: the channel to the supervisor.
        sockets: the sockets that it serves.
        log_lock: as in `gateway.observe.logs.open_output`.
        place: what it has in shared memory.
        reason: why it was restarted; empty for the first start.
        is_first: as in `WorkerResources`.
        predecessors: the ids of the processes that it replaces: they serve until it does.
        handover: inherited sockets for the listeners of other systems. While it is pending,
            connections are accepted only on the order: the gateway that is replaced serves until
            all processes of its successor are ready.
    """

    name: str
    channel: socket
    sockets: list[BoundSocket]
    log_lock: int
    place: Place
    reason: str
    is_first: bool
    predecessors: frozenset[int]
    handover: Handover


async def serve(config: GatewayConfig, workers: int, post: Post) -> int:
    """Serve until the supervisor stops it or is gone; returns the exit status.

    Args:
        config: the configuration of the gateway.
        workers: how many workers there are.
        post: what it receives.

    Raises:
        GatewayError: as `Gateway`.
    """
    loop = asyncio.get_running_loop()
    handover = post.handover
    ended, may_serve = asyncio.Event(), asyncio.Event()
    if not handover.is_pending:
        may_serve.set()
    is_replaced = False
    own = _of_worker(config)
    memory = SharedStore(workers, own.store.deadline)
    sharing = Sharing(is_on=True, predecessors=post.predecessors, handover=handover)
    metrics = post.place.counters()
    resources = WorkerResources(
        post.name,
        post.sockets,
        workers,
        memory,
        post.log_lock,
        post.is_first,
        sharing,
        post.place.seat(),
        metrics,
    )
    running = Gateway(own, resources)
    if post.reason:
        log.warning("%s", post.reason)
    tasks = Tasks()

    def link(files: list[int]) -> None:
        tasks.start(_link(Reporter(running, metrics), memory, files))

    preparing = Preparing(_Reconfigured(running))
    supervisor = orders.Orders(
        post.channel,
        {
            **preparing.acts,
            orders.LINK: link,
            orders.SERVE: lambda _: may_serve.set(),
            orders.STOP: lambda _: end(),
            orders.YIELD: lambda _: leave_when_replaced(),
            orders.REOPEN: lambda _: running.reopen_log(),
            orders.RENEW: lambda _: running.renew_certificates(),
        },
    )

    def leave_when_replaced() -> None:
        nonlocal is_replaced
        is_replaced = True
        handover.leave()
        end()

    def end() -> None:
        may_serve.set()
        ended.set()

    async def wait_for_order() -> None:
        supervisor.report_started()
        await may_serve.wait()

    def leave() -> None:
        # Without this, clients would find no server until the successor is there.
        supervisor.report_leaving()
        loop.call_later(REPLACED_S, ended.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        # A process that stops a whole process group signals each member; once is enough.
        loop.add_signal_handler(number, leave)
    await running.start(wait_for_order)
    handover.adopt()
    preparing.start(supervisor)
    # Everything made so far lives as long as the process; collections can skip it.
    gc.collect()
    gc.freeze()
    await ended.wait()
    await preparing.close()
    await running.stop(is_replaced=is_replaced)
    memory.close()
    tasks.cancel()
    return 0


def _of_worker(config: GatewayConfig) -> GatewayConfig:
    """Return the configuration of a worker, which has no admin listener of its own."""
    store = config.store
    if memory_url(config) == store.url:
        store = store.model_copy(update={"deadline": store.deadline_of_workers})
    return config.model_copy(update={"admin": None, "store": store})


class _Reconfigured:
    """A worker whose configuration changes; see `Reconfigurable`."""

    def __init__(self, running: Gateway) -> None:
        self._running = running
        self.commit = running.commit
        self.discard = running.discard

    async def prepare(self, config: GatewayConfig, sockets: Sequence[BoundSocket]) -> Prepared:
        return await self._running.prepare(_of_worker(config), sockets)


async def _link(reporter: Reporter, memory: SharedStore, files: list[int]) -> None:
    """Connect to a new limiter."""
    asking, reporting = (socket(fileno=number) for number in files)
    await memory.attach(asking)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: reporter, sock=reporting)
