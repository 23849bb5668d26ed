"""The board itself, and the seat of one worker at it."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Final

from gateway.board.bell import Bell
from gateway.board.table import WORDS, BoardTable, Spot, spot_of

SEATS_EACH: Final = 4
"""Seats for each worker: those that were replaced keep their own until they have ended."""
WORD_BYTES: Final = 8
IN_USE: Final = 0
"""The cell that is not 0 while a process has the seat."""
CONNECTIONS: Final = 1
"""The cell with the number of client connections."""
WAITING: Final = 2
"""The cell with the number of requests that wait for their turn."""
CELLS: Final = 8
"""Words before the table of a seat; some are unused."""
STRIDE: Final = CELLS + WORDS


class Board:
    """The memory that the workers of a gateway share; made by the supervisor before it forks.

    Args:
        workers: how many there are.

    Attributes:
        seats: how many seats it has.

    Raises:
        OSError: no memory or no descriptor is available.
    """

    def __init__(self, workers: int) -> None:
        self.seats = SEATS_EACH * workers
        self._memory = mmap.mmap(-1, self.seats * STRIDE * WORD_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self._secret = os.urandom(16)
        self._bells = [Bell() for _ in range(self.seats)]

    def take(self) -> int:
        """Return the number of a free seat, which is in use from now on.

        Raises:
            OSError: all are in use, because workers that were replaced have not ended.
        """
        for number in range(self.seats):
            if not self._words[number * STRIDE + IN_USE]:
                self._words[number * STRIDE + IN_USE] = 1
                return number
        raise OSError(errno.EAGAIN, "too many workers that were replaced have not ended yet")

    def free(self, number: int) -> None:
        """Clear the seat of a process that has ended."""
        begin = number * STRIDE * WORD_BYTES
        self._memory[begin : begin + STRIDE * WORD_BYTES] = bytes(STRIDE * WORD_BYTES)

    def seat(self, number: int) -> Seat:
        """Return a seat, for the process that has it."""
        return Seat(self._words, number, self._secret, self._bells)

    def close(self) -> None:
        """Close its descriptors in this process."""
        for bell in self._bells:
            bell.close()


class Seat:
    """One worker's part of the board: it alone writes there, and reads those of all.

    Args:
        words: the board.
        number: of the seat.
        secret: as in `spot_of`.
        bells: of all seats.
    """

    def __init__(self, words: memoryview, number: int, secret: bytes, bells: list[Bell]) -> None:
        self._words = words
        self._number = number
        self._begin = number * STRIDE
        self._secret = secret
        self._bells = bells
        seats = range(0, len(words), STRIDE)
        self._tables = [BoardTable(words[begin + CELLS : begin + STRIDE]) for begin in seats]
        self._own = self._tables[number]
        self._cells = [words[cell::STRIDE] for cell in range(CELLS)]

    def __repr__(self) -> str:
        return f"<Seat {self._number} of {len(self._bells)}>"

    # Numbers that every worker has.

    def set(self, cell: int, number: int) -> None:
        """Set this worker's number in a cell."""
        self._words[self._begin + cell] = number

    def add(self, cell: int, change: int) -> None:
        """Change this worker's number in a cell."""
        self._words[self._begin + cell] += change

    def total(self, cell: int) -> int:
        """Return the sum of a cell over all workers."""
        return sum(self._cells[cell])

    def largest(self, cell: int) -> int:
        """Return the seat of another worker, the one with the largest number in a cell."""
        numbers = self._cells[cell].tolist()
        numbers[self._number] = -1
        return numbers.index(max(numbers))

    # Numbers by name.

    def spot(self, name: str) -> Spot:
        """Return where the number of a name is kept."""
        return spot_of(name, self._secret)

    def write(self, spot: Spot, number: int) -> None:
        """Set this worker's number for a name.

        If there is no room for more names, others do not see it.
        """
        self._own.write(spot, number)

    def add_to(self, spot: Spot, change: int) -> None:
        """Change this worker's number for a name, as `write` does."""
        # One that had no room may be taken away from nothing.
        self._own.write(spot, max(self._own.read(spot) + change, 0))

    def others(self, spot: Spot) -> list[int]:
        """Return the numbers of the other workers for a name, but for those that are 0."""
        return [number for table in self._others() if (number := table.read(spot))]

    def _others(self) -> Iterator[BoardTable]:
        for number, is_in_use in enumerate(self._cells[IN_USE].tolist()):
            if is_in_use and number != self._number:
                yield self._tables[number]

    # Bells.

    @property
    def heard(self) -> int:
        """The descriptor that can be read once another worker has rung."""
        return self._bells[self._number].heard

    def silence(self) -> None:
        """Note that this worker has heard its bell."""
        self._bells[self._number].silence()

    def ring(self, number: int) -> None:
        """Wake the worker at a seat."""
        self._bells[number].ring()

    def ring_others(self) -> None:
        """Wake all other workers."""
        for number, is_in_use in enumerate(self._cells[IN_USE].tolist()):
            if is_in_use and number != self._number:
                self._bells[number].ring()
