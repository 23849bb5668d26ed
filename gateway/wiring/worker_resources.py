"""What one of several workers receives from the process that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.board.board import Seat
from gateway.net.binding import ALONE, Sharing
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.wiring.client_listeners import BoundSocket
from gateway.wiring.running import ProcessParts


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
        seat: its place at the board that it shares with the others; None for none.
        metrics: its counters, which others can read; None for its own.
    """

    name: str
    sockets: Sequence[BoundSocket]
    workers: int
    memory: Store
    log_lock: int
    is_first: bool = True
    sharing: Sharing = ALONE
    seat: Seat | None = None
    metrics: GatewayMetrics | None = None

    def parts(self, alone: ProcessParts) -> ProcessParts:
        """Return the parts of this worker, made from those of a process that is the only one."""
        return alone._replace(
            workers=self.workers,
            memory=self.memory,
            has_frontends=self.is_first,
            sharing=self.sharing._replace(is_on=True),
            seat=self.seat,
        )
