"""Named counts in memory that one process writes and others read, also after its death; pure.

The memory is words of 64 bits: a head, then entries without gaps. An entry never moves and never
changes its size. It has a name, which its reader understands, and some counts; its state is one
word, which says whether it is shown. The process that writes may be killed between any two words
that it writes, so the order is always such that readers, and the next process that writes here,
find the memory as it was before a change or as it is after it:

- A new entry is written behind the last one, where nobody reads. Then one word, `USED`, admits it.
- An entry that is used again for another name is not shown before it is complete. `CHANGES` is odd
  meanwhile, so that a reader that copied half of it knows, and copies again.
- A count is one word.

The next process continues the counts that it finds, so those of the dead need no other place.
"""

from __future__ import annotations

import errno
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast, overload
from weakref import ref

WORD_BYTES: Final = 8
HEAD: Final = 8
"""Words of the head; some are unused."""
USED: Final = 0
"""The word with the end of the last entry; 0 at the beginning."""
CHANGES: Final = 1
"""The word that changes before and after an entry is used again; odd in between."""
CPU_US: Final = 2
"""The word with the CPU time of all processes that have written here, in microseconds."""
STEP: Final = 8
"""Sizes of entries are multiples of this: then another name fits more often."""
SIZE: Final = 0
"""The word of an entry with its size."""
STATE: Final = 1
"""The word of an entry with the length of its name, and how many counts follow the name; 0 if it
is not shown.
"""
NAME: Final = 2
"""The first word of the name; the counts are the last words."""
COUNTS_SHIFT: Final = 32


class Words(Protocol):
    """Words that can be changed: a `memoryview`, and what tests put in its place."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, at: int, /) -> int: ...

    @overload
    def __getitem__(self, at: slice, /) -> Words: ...

    def __setitem__(self, at: int, value: int, /) -> None: ...


class LedgerEntry:
    """An entry of this process.

    Its place is used again when it is not shown and nothing refers to this object any more.

    Attributes:
        begin: its first word in the ledger.
        counts: its counts.
    """

    __slots__ = ("__weakref__", "begin", "counts")

    def __init__(self, begin: int, counts: Words) -> None:
        self.begin = begin
        self.counts = counts


class _Ref(ref[LedgerEntry]):
    """A reference to an entry that tells where it was."""

    __slots__ = ("begin",)

    begin: int


class Ledger:
    """The writer's side.

    Args:
        chunk: returns the memory in parts of equal size, the first one first; raises `OSError` if
            there is no more.

    Raises:
        OSError: there is no memory.
    """

    def __init__(self, chunk: Callable[[int], Words]) -> None:
        self._chunk = chunk
        self._chunks = [chunk(0)]
        self._head = self._chunks[0]
        self._each = len(self._head)
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._shown: dict[bytes, int] = {}
        self._entries: dict[int, _Ref] = {}
        if not self._head[USED]:
            self._head[USED] = HEAD
        if self._head[CHANGES] % 2:
            # The last process was killed meanwhile; the entry is not shown.
            self._head[CHANGES] += 1
        self._find()
        self._cpu_before_us = self._head[CPU_US]

    def _find(self) -> None:
        begin, end = HEAD, self._head[USED]
        while begin < end:
            words = self._words(begin)
            if words[STATE]:
                self._shown[_name(words)] = begin
            else:
                self._free[words[SIZE]].append(begin)
            begin += words[SIZE]

    def _words(self, begin: int) -> Words:
        """Return the words of an entry, or more."""
        number, at = divmod(begin, self._each)
        while number >= len(self._chunks):
            self._chunks.append(self._chunk(len(self._chunks)))
        return self._chunks[number][at:]

    @property
    def names(self) -> list[bytes]:
        """The names of all entries that are shown."""
        return list(self._shown)

    def used_cpu(self, us: int) -> None:
        """Record the CPU time of this process, in microseconds."""
        self._head[CPU_US] = self._cpu_before_us + us

    def open(self, name: bytes, count: int, *, is_shown: bool = True) -> LedgerEntry:
        """Return the entry of this name that is shown, or a new one whose counts are 0.

        Args:
            name: at least one byte.
            count: how many counts it has.
            is_shown: whether a new one is shown immediately.

        Raises:
            OSError: there is no room for it.
        """
        state = count << COUNTS_SHIFT | len(name)
        shown = self._shown.get(name)
        if shown is not None and shown not in self._entries and self._words(shown)[STATE] == state:
            return self._entry(shown, count)
        size = NAME + _name_words(len(name)) + count
        size += -size % STEP
        begin = self._place(name, size, state if is_shown else 0)
        if is_shown:
            self._shown[name] = begin
        return self._entry(begin, count)

    def _entry(self, begin: int, count: int) -> LedgerEntry:
        words = self._words(begin)
        size = words[SIZE]
        entry = LedgerEntry(begin, words[size - count : size])
        reference = self._entries[begin] = _Ref(entry, self._ended)
        reference.begin = begin
        return entry

    def _ended(self, reference: ref[LedgerEntry]) -> None:
        begin = cast("_Ref", reference).begin
        del self._entries[begin]
        words = self._words(begin)
        if not words[STATE]:
            self._free[words[SIZE]].append(begin)

    def show(self, entry: LedgerEntry, name: bytes) -> None:
        """Show an entry, which has this name, from now on."""
        self._words(entry.begin)[STATE] = len(entry.counts) << COUNTS_SHIFT | len(name)
        self._shown[name] = entry.begin

    def hide(self, entry: LedgerEntry, name: bytes) -> None:
        """Do not show an entry, which has this name, any more."""
        self._words(entry.begin)[STATE] = 0
        if self._shown.get(name) == entry.begin:
            del self._shown[name]

    def forget(self, name: bytes) -> None:
        """Do not show the entry of this name any more, unless this process has opened it."""
        begin = self._shown.get(name)
        if begin is not None and begin not in self._entries:
            del self._shown[name]
            words = self._words(begin)
            words[STATE] = 0
            self._free[words[SIZE]].append(begin)

    def _place(self, name: bytes, size: int, state: int) -> int:
        """Write an entry, and return where it begins."""
        if free := self._free.get(size):
            begin = free.pop()
            self._head[CHANGES] += 1
            self._write(self._words(begin), name, size, state)
            self._head[CHANGES] += 1
            return begin
        begin = self._head[USED]
        left = self._each - begin % self._each
        if size > self._each - HEAD:
            raise OSError(errno.ENOSPC, "the name is too long")
        if size > left:
            # No entry extends over two parts of the memory: others may fit here later.
            gap = self._words(begin)
            gap[STATE] = 0
            gap[SIZE] = left
            begin += left
            words = self._words(begin)
            self._head[USED] = begin
            self._free[left].append(begin - left)
        else:
            words = self._words(begin)
        self._write(words, name, size, state)
        self._head[USED] = begin + size
        return begin

    def _write(self, words: Words, name: bytes, size: int, state: int) -> None:
        words[SIZE] = size
        padded = name.ljust(size * WORD_BYTES, b"\0")
        # Over all of it: what was there before is not a count.
        for at in range(NAME, size):
            begin = (at - NAME) * WORD_BYTES
            words[at] = int.from_bytes(padded[begin : begin + WORD_BYTES], sys.byteorder)
        words[STATE] = state


def _name_words(length: int) -> int:
    return -(-length // WORD_BYTES)


def _name(words: Words) -> bytes:
    length = words[STATE] & (1 << COUNTS_SHIFT) - 1
    end = NAME + _name_words(length)
    return b"".join(words[at].to_bytes(WORD_BYTES, sys.byteorder) for at in range(NAME, end))[
        :length
    ]


def cpu_us(copy: bytes) -> int:
    """Return the CPU time of all processes that have written a ledger, from a copy of it."""
    return memoryview(copy).cast("Q")[CPU_US]


def entries(copy: bytes) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the names and counts of all entries that are shown in a copy of the memory."""
    words = memoryview(copy).cast("Q")
    begin, end = HEAD, min(words[USED], len(words))
    while begin + NAME <= end:
        size, state = words[begin + SIZE], words[begin + STATE]
        count = state >> COUNTS_SHIFT
        length = state & (1 << COUNTS_SHIFT) - 1
        after = begin + size
        if size < NAME or after > end or NAME + _name_words(length) + count > size:
            # Not all that was written before `USED` can be seen yet, on some processors.
            return
        if state:
            at = (begin + NAME) * WORD_BYTES
            yield copy[at : at + length], words[after - count : after].tolist()
        begin = after
