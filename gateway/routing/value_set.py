"""Tables and sets of texts, of up to a million, in little more memory than their text.

A frozen hash table: the texts stand one after the other, each after a number, and a flat array of
slots says where each of them begins (open addressing, at most half full).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final
from zlib import crc32

from gateway.routing.networks import no_pause

_BATCH: Final = 512
_SIZE_BYTES: Final = 2
MAX_VALUE: Final = 0xFFFF
"""The longest text in bytes."""
MAX_NUMBER: Final = 0xFF
"""The highest number of a text."""
MISSING: Final = -1


class ValueTable:
    """A number for each of some texts. Immutable.

    Args:
        rows: the texts, each of at most `MAX_VALUE` bytes in UTF-8, with their numbers, at most
            `MAX_NUMBER`.
        pause: called again and again while the table is made, so that other threads get their turn.

    Raises:
        ValueError: a text, which is the error's argument, has two numbers.
    """

    __slots__ = ("_mask", "_slots", "_texts")

    def __init__(
        self, rows: Iterable[tuple[str, int]], pause: Callable[[], None] = no_pause
    ) -> None:
        # The first byte stands for "no text".
        texts = bytearray(1)
        begins: list[int] = []
        iterator = iter(rows)
        while batch := list(islice(iterator, _BATCH)):
            for value, number in batch:
                text = _encoded(value)
                begins.append(len(texts))
                texts.append(number)
                texts += len(text).to_bytes(_SIZE_BYTES, "big") + text
            pause()
        size = 2
        while size < 2 * len(begins):
            size *= 2
        self._mask = size - 1
        self._texts = bytes(texts)
        self._slots = array("Q", bytes(8 * size))
        for begin in range(0, len(begins), _BATCH):
            for at in begins[begin : begin + _BATCH]:
                self._insert(at)
            pause()

    def _insert(self, at: int) -> None:
        text = self._text(at)
        slot = crc32(text) & self._mask
        while found := self._slots[slot]:
            if self._text(found) == text:
                if self._texts[found] != self._texts[at]:
                    raise ValueError(text.decode("utf-8", "replace"))
                return
            slot = slot + 1 & self._mask
        self._slots[slot] = at

    def _text(self, at: int) -> bytes:
        begin = at + 1 + _SIZE_BYTES
        return self._texts[begin : begin + int.from_bytes(self._texts[at + 1 : begin], "big")]

    def find(self, value: str) -> int:
        """Return the number of a text; `MISSING` if it is none of them."""
        text = _encoded(value)
        slot = crc32(text) & self._mask
        while found := self._slots[slot]:
            if self._text(found) == text:
                return self._texts[found]
            slot = slot + 1 & self._mask
        return MISSING


class ValueSet:
    """A set of texts. Immutable; arguments as in `ValueTable`."""

    __slots__ = ("_find",)

    def __init__(self, values: Iterable[str], pause: Callable[[], None] = no_pause) -> None:
        self._find = ValueTable(((value, 0) for value in values), pause).find

    def __contains__(self, value: str) -> bool:
        """Return whether a text is one of them."""
        return self._find(value) != MISSING


def _encoded(value: str) -> bytes:
    # Bytes of a request that are not UTF-8 arrive as lone surrogates.
    return value.encode("utf-8", "surrogatepass")
