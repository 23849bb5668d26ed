"""The ledgers of all processes of a gateway, in one unnamed file that they share.

Each process has a seat, whose part of the file it alone writes while it lives; the limiter reads
all parts. The file is large and nearly empty: only what is written takes memory.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from typing import Final

from gateway.board.ledger import CHANGES, CPU_US, HEAD, USED, WORD_BYTES, Ledger, Words

CHUNK_BYTES: Final = 1 << 22
"""What a ledger grows by."""
CHUNKS: Final = 64
"""Of how many parts a ledger may consist: 256 MiB, room for about half a million label sets."""
SEAT_BYTES: Final = CHUNKS * CHUNK_BYTES
TRIES: Final = 100
"""How often a ledger is copied until it did not change meanwhile. If it always does, its process
was stopped while it changed an entry, which is not shown.
"""
_HEAD: Final = struct.Struct(f"={HEAD}Q")
_WORD: Final = struct.Struct("=Q")


class LedgerFile:
    """The file.

    Args:
        file: its descriptor.
        seats: how many processes it has room for.
        started_us: when the gateway started, in microseconds since 1970.

    Attributes:
        seats: as given.
        started_us: as given.

    Raises:
        OSError: it cannot be made large enough.
    """

    def __init__(self, file: int, seats: int, started_us: int) -> None:
        self.seats = seats
        self.started_us = started_us
        self._file = file
        os.ftruncate(file, seats * SEAT_BYTES)

    def ledger(self, seat: int) -> Ledger:
        """Return the ledger of a seat, for the process that has it.

        Raises:
            OSError: no memory or no descriptor is available.
        """

        def chunk(number: int) -> Words:
            if number >= CHUNKS:
                raise OSError(errno.ENOSPC, "the memory for counters is full")
            begin = seat * SEAT_BYTES + number * CHUNK_BYTES
            return memoryview(mmap.mmap(self._file, CHUNK_BYTES, offset=begin)).cast("Q")

        return Ledger(chunk)

    def copies(self) -> list[bytes]:
        """Return copies of all ledgers that were ever used, for `entries`; reads megabytes."""
        return [self._copy(seat) for seat in range(self.seats) if self._head(seat)[USED]]

    def _copy(self, seat: int) -> bytes:
        copy = b""
        for _ in range(TRIES):
            head = self._head(seat)
            copy = os.pread(self._file, head[USED] * WORD_BYTES, seat * SEAT_BYTES)
            if head[CHANGES] % 2 == 0 and head[CHANGES] == self._head(seat)[CHANGES]:
                break
        return copy

    def cpu_us(self, seat: int) -> int:
        """Return the CPU time of all processes that have had a seat, as they have recorded it."""
        return self._head(seat)[CPU_US]

    def end(self, seat: int, cpu_us: int) -> None:
        """Note that the process of a seat has ended; its counts stay.

        Args:
            seat: of the process.
            cpu_us: the CPU time of all that have had the seat, at least.
        """
        head = self._head(seat)
        if cpu_us > head[CPU_US]:
            self._write(seat, CPU_US, cpu_us)
        if head[CHANGES] % 2:
            # It was killed while it changed an entry, which is not shown.
            self._write(seat, CHANGES, head[CHANGES] + 1)

    def _head(self, seat: int) -> tuple[int, ...]:
        return _HEAD.unpack(os.pread(self._file, _HEAD.size, seat * SEAT_BYTES))

    def _write(self, seat: int, word: int, value: int) -> None:
        os.pwrite(self._file, _WORD.pack(value), seat * SEAT_BYTES + word * WORD_BYTES)
