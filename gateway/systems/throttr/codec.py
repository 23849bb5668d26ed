"""What both versions of Throttr's protocol share: operations, units of time, and how bytes wait.

All numbers on the wire are little-endian. Neither the version nor the size of values can be told
from the bytes, so a parser is made for one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

NOTHING: Final = 0
"""What cannot be a request; it is answered by one byte 00."""
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
"""Operation and key first; what follows is said by the version's parser. A plain tuple, since
there are hundreds of thousands in a second."""


def remaining(ends_ns: int, now_ns: int, unit_ns: int) -> int:
    """Whole units until a record expires, rounded down.

    At least a nanosecond has passed since the record was written, whatever the clock shows: a
    client that asks at once for a record of 60 s is told 59, as by Throttr itself.

    Args:
        ends_ns: when the record expires.
        now_ns: the present, before that.
        unit_ns: nanoseconds of one unit.
    """
    return (ends_ns - now_ns - 1) // unit_ns


class Parser(ABC):
    """Cuts what a client sends into requests, however it arrives.

    Feed it a read, then `take` until `has_more` is false, then feed the next. What is kept of an
    incomplete request is never more than the request, and never more than `max_message`.

    Args:
        malformed: told of everything that cannot be a request, by a short kind.

    Attributes:
        is_ended: whether what came cannot be read on: the connection is to be closed as soon as
            all requests that were taken are answered.
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
        """Whether `take` stopped at its limit, and something is left of the last read."""
        return self._at < len(self._buffer)

    @property
    def left(self) -> int:
        """How many bytes of the last read that is."""
        return len(self._buffer) - self._at

    @property
    def is_waiting(self) -> bool:
        """Whether the beginning of a request is there and its end is not."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> None:
        """Take in what was read; nothing may be left of the read before."""
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
        """The next complete requests, `limit` at most."""

    def _keep(self, at: int, needed: int) -> None:
        """What begins at `at` is incomplete: so many bytes are needed to know more."""
        self._waiting += self._buffer[at:]
        self._needed = needed
        self._drop()

    def _drop(self) -> None:
        """Nothing more is read of this buffer."""
        self._buffer = b""
        self._at = 0
