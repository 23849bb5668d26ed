"""What each process of a gateway has in memory that all of them share: a seat, and a ledger.

The supervisor makes the memory before it forks, and gives out the places. The seat of a process
that has ended is cleared: what it held is free. Its ledger is not: what it counted has happened,
and the next process at this place goes on from there.
"""

from __future__ import annotations

from typing import NamedTuple

import gateway
from gateway.base.clock import wall_us
from gateway.base.errors import GatewayError
from gateway.board.board import Board, Seat
from gateway.board.ledger_file import LedgerFile
from gateway.observe.metrics.shared import SharedMetrics, metrics_in


class Place(NamedTuple):
    """The place of one process.

    Attributes:
        number: its number.
        board: where it has a seat; None for the limiter.
        ledgers: of all processes.
        cpu_us: the CPU time of those that have had the place before.
    """

    number: int
    board: Board | None
    ledgers: LedgerFile
    cpu_us: int

    @property
    def is_limiters(self) -> bool:
        """Return whether it is the limiter's."""
        return self.board is None

    def seat(self) -> Seat | None:
        """Return its seat, for the process that has it; None for the limiter."""
        return None if self.board is None else self.board.seat(self.number)

    def counters(self) -> SharedMetrics:
        """Return the counters of this process.

        Raises:
            GatewayError: there is no memory for them.
        """
        try:
            return metrics_in(self.ledgers.ledger(self.number), gateway.__version__)
        except OSError as error:
            message = f"there is no memory for counters: {error.strerror}"
            raise GatewayError(message) from error


class Places:
    """All places.

    Args:
        workers: how many workers there are.
        file: an empty file for the ledgers.

    Raises:
        OSError: no memory or no descriptor is available.
    """

    def __init__(self, workers: int, file: int) -> None:
        self._board = Board(workers)
        self._ledgers = LedgerFile(file, self._board.seats + 1, wall_us())

    def take(self, *, is_limiter: bool) -> Place:
        """Return a free place, which is in use from now on.

        Raises:
            OSError: all are in use, because workers that were replaced have not ended.
        """
        number = self._board.seats if is_limiter else self._board.take()
        board = None if is_limiter else self._board
        return Place(number, board, self._ledgers, self._ledgers.cpu_us(number))

    def free(self, place: Place, cpu_us: int) -> None:
        """Free the place of a process that has ended, and used this much CPU time."""
        self._ledgers.end(place.number, place.cpu_us + cpu_us)
        if not place.is_limiters:
            self._board.free(place.number)

    def close(self) -> None:
        """Close its descriptors in this process."""
        self._board.close()
