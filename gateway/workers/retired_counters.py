"""The counters of processes that have ended, which also survive a restart of the limiter.

To Prometheus, a counter that drops and returns looks as if everything had happened twice. So the
sum is in an unnamed file, which the supervisor keeps open. It begins with a block of the counters
that the limiter itself last showed, because they would otherwise be lost when it dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from gateway.observe.metrics import GatewayMetrics, Piece, add, pieces

BLOCK_BYTES: Final = 4096
"""The size of the limiter's own block: it has no routes, so this is more than enough. If many
policies lack room for keys, those counters restart with the limiter, as the keys do.
"""
MAX_BYTES: Final = 1 << 30
"""The size for all processes that have ended: far more than the counters of any configuration need.
"""


class RetiredCounters:
    """The sum, continued from a previous limiter.

    Args:
        file: open for reading and writing.
        started_us: now, as microseconds since 1970.

    Attributes:
        started_us: when the first limiter began, and so the gateway.
        counted: the counters of all processes that have ended.
        pieces: the same as plain data, unchanged until another process ends.
        cpu_seconds: the CPU time that they used.
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
        self.add_ended(cpu_seconds, counted)

    def add_ended(self, cpu_seconds: float, counted: Sequence[Piece]) -> None:
        """Add the counters of another process that has ended."""
        self._add(counted)
        self.cpu_seconds += cpu_seconds
        self.pieces = list(pieces(self.counted))
        every = [self.started_us, self.cpu_seconds, self.pieces]
        os.ftruncate(self._file, BLOCK_BYTES)
        os.pwrite(self._file, json.dumps(every).encode(), BLOCK_BYTES)

    def show(self, cpu_seconds: float, counted: Sequence[Piece]) -> None:
        """Record what the limiter itself has shown, in case it dies."""
        others = [piece for piece in counted if piece[0] != "memory"]
        # For each policy, how its keys fared for lack of room: usually nothing.
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
        """Return the content; nothing for the first limiter, or if one was killed while writing."""
        try:
            found = json.loads(os.pread(self._file, size, begin))
        except ValueError:
            return default
        return found if isinstance(found, list) and len(found) == len(default) else default
