"""What both versions of Throttr's protocol share: operations, units of time, and buffering.

All numbers on the wire are little-endian. The bytes show neither the version nor the size of
values, so each parser is made for one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

NOTHING: Final = 0
"""Marks bytes that are not a request; the answer is one byte 00."""
INSERT: Final = 1
QUERY: Final = 2
UPDATE: Final = 3
PURGE: Final = 4
SET: Final = 5
GET: Final = 6
OPERATIONS: Final = ("unknown", "insert", "query", "update", "purge", "set", "get")
"""The names of the operations, by the byte that a request begins with."""

QUOTA: Final = 0
TTL: Final = 1
PATCH: Final = 0
INCREASE: Final = 1
DECREASE: Final = 2

NO: Final = b"\0"
YES: Final = b"\1"

NS_PER_SECOND: Final = 1_000_000_000

Request = tuple[int, bytes, int, int, int, int, Any]
"""Operation and key; the parser of the version documents the rest. A plain tuple, because there are
hundreds of thousands per second."""


def remaining(ends_ns: int, now_ns: int, unit_ns: int) -> int:
    """Return the whole units until a record expires, rounded down.

    At least a nanosecond has passed since the record was written, whatever the clock shows: a
    client that immediately queries a record of 60 s gets 59, as from Throttr itself.

    Args:
        ends_ns: when the record expires.
        now_ns: the current time, before that.
        unit_ns: nanoseconds of one unit.
    """
    return (ends_ns - now_ns - 1) // unit_ns


class Parser(ABC):
    """Splits the bytes of a client into requests, however they arrive.

    Feed it a read, then `take` until `has_more` is false, then feed the next. It keeps no more than
    the beginning of one incomplete request, and never more than `max_message`.

    Args:
        malformed: called with a short kind for everything that is not a request.

    Attributes:
        is_ended: whether parsing cannot continue: close the connection as soon as all requests
            that were taken are answered.
    """

    __slots__ = ("_at", "_buffer", "_malformed", "_needed", "_waiting", "is_ended")

    def __init__(self, malformed: Callable[[str], None] = lambda _: None) -> None:
        self.is_ended = False
        self._malformed = malformed
        self._buffer = b""
        self._at = 0
        self._waiting = bytearray()
        self._needed = 0

    @property
    def has_more(self) -> bool:
        """Whether `take` stopped at its limit before the end of the last read."""
        return self._at < len(self._buffer)

    @property
    def left(self) -> int:
        """How many bytes of the last read are left."""
        return len(self._buffer) - self._at

    @property
    def is_waiting(self) -> bool:
        """Whether a request is incomplete."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> None:
        """Accept one read; the previous one must be used up."""
        if self._waiting:
            self._waiting += data
            if len(self._waiting) < self._needed:
                return
            data = bytes(self._waiting)
            self._waiting.clear()
        self._buffer = data
        self._at = 0

    @abstractmethod
    def take(self, limit: int) -> list[Request]:
        """Return the next complete requests, at most `limit`."""

    def _keep(self, at: int, needed: int) -> None:
        """Keep the incomplete request at `at`, and wait for `needed` bytes."""
        self._waiting += self._buffer[at:]
        self._needed = needed
        self._drop()

    def _drop(self) -> None:
        """Drop the rest of this buffer."""
        self._buffer = b""
        self._at = 0
