"""Memory of a process that is killed at any word that it writes."""

from __future__ import annotations

from array import array
from typing import overload

from gateway.board.ledger import Words

CHUNK = 64
"""Words of a part of the memory: few, so that tests need several."""


class Killed(Exception):
    """The process is killed before it writes the next word."""


class Memory:
    """What is left when a process was killed, and what the next one finds.

    Args:
        chunks: how many parts there are.

    Attributes:
        writes: how many more words the process may write.
    """

    def __init__(self, chunks: int = 40) -> None:
        self.words = array("Q", bytes(8 * CHUNK * chunks))
        self.writes = 1 << 30

    def chunk(self, number: int) -> Words:
        """A part of the memory; see `Ledger`."""
        begin = number * CHUNK
        if begin >= len(self.words):
            raise OSError(28, "full")
        return CutWords(self, range(begin, begin + CHUNK))

    def __bytes__(self) -> bytes:
        return self.words.tobytes()


class CutWords:
    """Words of a memory."""

    def __init__(self, memory: Memory, places: range) -> None:
        self._memory = memory
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int, /) -> int: ...

    @overload
    def __getitem__(self, at: slice, /) -> CutWords: ...

    def __getitem__(self, at: int | slice, /) -> int | CutWords:
        if isinstance(at, slice):
            return CutWords(self._memory, self._places[at])
        return self._memory.words[self._places[at]]

    def __setitem__(self, at: int, value: int, /) -> None:
        if not self._memory.writes:
            raise Killed
        self._memory.writes -= 1
        self._memory.words[self._places[at]] = value
