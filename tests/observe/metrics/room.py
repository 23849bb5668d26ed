"""Memory of one place in a gateway of several processes."""

from __future__ import annotations

import errno
from mmap import mmap
from typing import Final

from gateway.base.clock import ManualClock
from gateway.board.ledger import USED, Ledger, entries
from gateway.observe.metrics import GatewayMetrics, add_counts
from gateway.observe.metrics.shared import SharedMetrics, metrics_in

SIZE: Final = 1 << 20


class Room:
    """Memory of one place, for one process after the other."""

    def __init__(self) -> None:
        self.memory = mmap(-1, SIZE)

    def process(self) -> SharedMetrics:
        """A new process at this place."""
        return metrics_in(Ledger(self._chunk), "1", ManualClock(1))

    def _chunk(self, number: int) -> memoryview:
        if number:
            raise OSError(errno.ENOSPC, "full")
        return memoryview(self.memory).cast("Q")

    def total(self) -> GatewayMetrics:
        """What others read."""
        total = GatewayMetrics("1", ManualClock(1))
        self.add_to(total)
        return total

    def add_to(self, total: GatewayMetrics) -> None:
        """Add what others read to a sum."""
        for name, counts in entries(bytes(self.memory)):
            add_counts(total, name, counts)

    @property
    def used(self) -> int:
        """The end of its entries."""
        return memoryview(self.memory).cast("Q")[USED]
