"""What was counted by processes that are gone, kept over the end of the limiter as well.

A counter that goes back and comes again looks to Prometheus as if all of it had happened twice.
So the sum is in a file without a name, which the supervisor holds open. It begins with a block of
what the limiter itself last showed; nobody else is left to tell of that when it dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from gateway.observe.metrics import GatewayMetrics, Piece, add, pieces

BLOCK_BYTES: Final = 4096
"""Of the limiter: it has no routes, so this is more than it needs. If keys of many policies had no
room, what is counted of that begins anew with it, as the keys do."""
MAX_BYTES: Final = 1 << 30
"""Of all that are gone: far more than the counters of any configuration are."""


class Past:
    """The sum; what a limiter wrote before this one is found again.

    Args:
        file: open for reading and writing.
        started_us: now, as microseconds since 1970.

    Attributes:
        started_us: when the first limiter began, and so the gateway.
        counted: by all processes that are gone, and
        pieces: the same as plain data, which stays as it is until one more is gone.
        cpu_seconds: that they used.
    """

    def __init__(self, file: int, started_us: int) -> None:
        self._file = file
        self.counted = GatewayMetrics()
        self.pieces: list[Piece] = []
        self.started_us, self.cpu_seconds, every = self._read(
            MAX_BYTES, BLOCK_BYTES, [started_us, 0.0, []]
        )
        self._add(every)
        cpu_seconds, counted = self._read(BLOCK_BYTES, 0, [0.0, []])
        self.show(0.0, [])
        self.bury(cpu_seconds, counted)

    def bury(self, cpu_seconds: float, counted: Sequence[Piece]) -> None:
        """One more process is gone."""
        self._add(counted)
        self.cpu_seconds += cpu_seconds
        self.pieces = list(pieces(self.counted))
        every = [self.started_us, self.cpu_seconds, self.pieces]
        os.ftruncate(self._file, BLOCK_BYTES)
        os.pwrite(self._file, json.dumps(every).encode(), BLOCK_BYTES)

    def show(self, cpu_seconds: float, counted: Sequence[Piece]) -> None:
        """The limiter itself has shown this; if it dies, so much is buried."""
        others = [piece for piece in counted if piece[0] != "memory"]
        # Of a policy, what happened to its keys for want of room: as a rule nothing.
        crowded = [piece for piece in counted if piece[0] == "memory" and any(piece[3:])]
        for shown in ([*others, *crowded], others):
            block = json.dumps([cpu_seconds, shown]).encode()
            if len(block) <= BLOCK_BYTES:
                os.pwrite(self._file, block.ljust(BLOCK_BYTES), 0)
                return

    def _add(self, counted: Sequence[Piece]) -> None:
        for piece in counted:
            add(self.counted, piece, gauges=False)

    def _read(self, size: int, begin: int, default: list[Any]) -> list[Any]:
        """What is there; nothing for the first limiter, or if one was killed while it wrote."""
        try:
            found = json.loads(os.pread(self._file, size, begin))
        except ValueError:
            return default
        return found if isinstance(found, list) and len(found) == len(default) else default
