"""Throttr's protocol v5, for servers and for clients: bytes and values.

Counters and buffers have values of 1, 2, 4 or 8 bytes. The listener reads requests (`Parser5`) and
writes answers (`Answers5`); the store writes requests about counters and reads the answers
(`AnswerStream`). Both use the same layouts.

N is the size of values of the whole listener; numbers are little-endian::

    INSERT 01 | quota N | ttl_type 1 | ttl N | klen 1 | key              -> 00 or 01
    QUERY  02 | klen 1 | key                      -> 00, or 01 | quota N | ttl_type 1 | ttl N
    UPDATE 03 | attribute 1 | change 1 | value N | klen 1 | key          -> 00 or 01
    PURGE  04 | klen 1 | key                                             -> 00 or 01
    SET    05 | ttl_type 1 | ttl N | klen 1 | vlen N | key | value       -> 00 or 01
    GET    06 | klen 1 | key                      -> 00, or 01 | ttl_type 1 | ttl N | vlen N | value
    ttl_type 1 ns, 2 us, 3 ms, 4 s, 5 min, 6 h; attribute 0 quota, 1 ttl;
    change 0 patch, 1 increase, 2 decrease

Sources: the v5 paper and the servers 4.0.12 to 4.0.17; where these differ, 4.0.14. Deliberate
differences: the answer to an unknown type is 00 and the end of the connection, where Throttr stops
answering; numbers stop at their greatest value instead of wrapping to 0; the ttl of a change is in
the record's own unit, including minutes and hours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from gateway.systems.throttr.codec import (
    GET,
    INSERT,
    NOTHING,
    NS_PER_SECOND,
    PURGE,
    QUERY,
    SET,
    UPDATE,
    Parser,
    Request,
)

SECONDS: Final = 4
UNITS_NS: Final = (0, 1, 10**3, 10**6, NS_PER_SECOND, 60 * NS_PER_SECOND, 3600 * NS_PER_SECOND)
"""Nanoseconds per unit, by its code."""
UNITS: Final = (SECONDS, 1, 2, 3, 4, 5, 6, *[SECONDS] * 249)
"""The unit of each code; unknown codes mean seconds."""
SIZES: Final = (8, 16, 32, 64)
"""Bits of a value; a server is built for one of them, and the protocol does not show which."""
USUAL_SIZE: Final = 16
"""The default size of a server."""
MAX_KEY: Final = 255
"""Bytes of a key."""
OK: Final = 1
REFUSED: Final = 0


class _Layouts(NamedTuple):
    """The layout of each message after its first byte, for `struct`; the key follows it."""

    insert: str
    update: str
    set: str
    counter: str
    buffer: str


def _layouts_of(number: str) -> _Layouts:
    return _Layouts(
        insert=f"{number}B{number}B",
        update=f"BB{number}B",
        set=f"B{number}B{number}",
        counter=f"{number}B{number}",
        buffer=f"B{number}{number}",
    )


_LAYOUTS: Final = {size: _layouts_of(number) for size, number in zip(SIZES, "BHIQ", strict=True)}


class Parser5(Parser):
    """Requests of one connection.

    Each is operation, key, ttl_type or attribute, change, quota or value, ttl, and the value of a
    buffer.

    Args:
        size: bits of a value.
        max_message: most bytes of a request; a longer one ends the connection.
        malformed: as for `Parser`.
    """

    __slots__ = ("_insert", "_max_message", "_set", "_update")

    def __init__(
        self, size: int, max_message: int, malformed: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(malformed)
        layouts = _LAYOUTS[size]
        self._max_message = max_message
        self._insert = Struct(f"<x{layouts.insert}")
        self._update = Struct(f"<x{layouts.update}")
        self._set = Struct(f"<x{layouts.set}")

    def take(self, limit: int) -> list[Request]:  # noqa: C901, PLR0912, PLR0915
        """Return the next complete requests; a malformed one is the last."""
        # One pass over locals: a call per request would cost a tenth of the time.
        buffer, at = self._buffer, self._at
        end = len(buffer)
        insert_size, update_size = self._insert.size, self._update.size
        read_insert, read_update = self._insert.unpack_from, self._update.unpack_from
        requests: list[Request] = []
        add = requests.append
        while at < end and limit:
            limit -= 1
            operation = buffer[at]
            if operation == UPDATE:
                stop = body = at + update_size
                if stop <= end:
                    attribute, change, value, size = read_update(buffer, at)
                    stop += size
                    if stop <= end:
                        add((UPDATE, buffer[body:stop], attribute, change, value, 0, None))
                        at = stop
                        continue
            elif operation == QUERY or operation == GET or operation == PURGE:  # noqa: SIM109 - quicker
                stop = body = at + 2
                if stop <= end:
                    stop += buffer[at + 1]
                    if stop <= end:
                        add((operation, buffer[body:stop], 0, 0, 0, 0, None))
                        at = stop
                        continue
            elif operation == INSERT:
                stop = body = at + insert_size
                if stop <= end:
                    quota, unit, ttl, size = read_insert(buffer, at)
                    stop += size
                    if stop <= end:
                        add((INSERT, buffer[body:stop], unit, 0, quota, ttl, None))
                        at = stop
                        continue
            elif operation == SET:
                stop = body = at + self._set.size
                if stop <= end:
                    unit, ttl, size, length = self._set.unpack_from(buffer, at)
                    value_at = body + size
                    stop = value_at + length
                    if stop - at > self._max_message:
                        self._end("too_long", requests)
                        return requests
                    if stop <= end:
                        value = buffer[value_at:stop]
                        add((SET, buffer[body:value_at], unit, 0, 0, ttl, value))
                        at = stop
                        continue
            else:
                self._end("unknown", requests)
                return requests
            self._keep(at, stop - at)
            return requests
        self._at = at
        return requests

    def _end(self, kind: str, requests: list[Request]) -> None:
        """End the connection: where the next request begins is unknown."""
        self._malformed(kind)
        requests.append((NOTHING, b"", 0, 0, 0, 0, None))
        self.is_ended = True
        self._drop()


class Answers5:
    """Writes the answers about records.

    Args:
        size: bits of a value.
    """

    __slots__ = ("_get", "_query", "greatest")

    def __init__(self, size: int) -> None:
        self.greatest = largest(size)
        self._query = Struct(f"<B{_LAYOUTS[size].counter}").pack
        self._get = Struct(f"<B{_LAYOUTS[size].buffer}").pack

    def query(self, quota: int, unit: int, ends_ns: int, now_ns: int) -> bytes:
        """Return the answer about a counter that has not expired."""
        return self._query(1, quota, unit, self._ttl(unit, ends_ns, now_ns))

    def get(self, value: bytes, unit: int, ends_ns: int, now_ns: int) -> bytes:
        """Return the answer about a buffer that has not expired."""
        return self._get(1, unit, self._ttl(unit, ends_ns, now_ns), len(value)) + value

    def _ttl(self, unit: int, ends_ns: int, now_ns: int) -> int:
        ttl = (ends_ns - now_ns - 1) // UNITS_NS[unit]
        return ttl if ttl < self.greatest else self.greatest


class Ttl(NamedTuple):
    """A time in one of the units.

    Attributes:
        unit: its code.
        value: how many.
    """

    unit: int
    value: int

    @property
    def us(self) -> int:
        """The time in microseconds, rounded down."""
        return self.value * UNITS_NS[self.unit] // 1_000

    @property
    def step_us(self) -> int:
        """One unit in microseconds, rounded up."""
        return -(-UNITS_NS[self.unit] // 1_000)


class Counter(NamedTuple):
    """The answer to `QUERY`: what is left of a counter, and for how long.

    The time is rounded down by less than one unit.
    """

    quota: int
    ttl: Ttl


Answer = int | Counter
"""A status, or the counter of a `QUERY`; `REFUSED` if there is no counter."""


class ThrottrRequest(NamedTuple):
    """The bytes of a request, and whether it is a `QUERY`, whose answer is longer."""

    data: bytes
    is_query: bool = False


def largest(size: int) -> int:
    """Return the largest number of so many bits."""
    return (1 << size) - 1


def ttl_of(period_us: int, size: int) -> Ttl | None:
    """Return a period in the finest unit in which it is a whole number that fits, or None.

    Nanoseconds are left out: limits are no finer than microseconds.
    """
    for unit in range(2, len(UNITS_NS)):
        value, rest = divmod(period_us * 1_000, UNITS_NS[unit])
        if not rest and value <= largest(size):
            return Ttl(unit, value)
    return None


_INSERTS: Final = {size: Struct(f"<B{_LAYOUTS[size].insert}").pack for size in SIZES}
_UPDATES: Final = {size: Struct(f"<B{_LAYOUTS[size].update}").pack for size in SIZES}


def insert(size: int, quota: int, ttl: Ttl, key: bytes) -> bytes:
    """Return the request to create a counter if there is none; the answer is a status."""
    return _INSERTS[size](INSERT, quota, ttl.unit, ttl.value, len(key)) + key


def query(key: bytes) -> bytes:
    """Return the request to read a counter; the answer is `REFUSED`, or `OK` and a `Counter`."""
    return bytes((QUERY, len(key))) + key


def update(size: int, attribute: int, change: int, value: int, key: bytes) -> bytes:
    """Return the request to change a counter; the answer is `REFUSED` if there is none.

    Args:
        size: bits of a number.
        attribute: `QUOTA`, or `TTL` in the unit that the counter was created with.
        change: `PATCH`, `INCREASE` or `DECREASE`; the last is refused if less is left.
        value: the new value, or the difference.
        key: the counter.
    """
    return _UPDATES[size](UPDATE, attribute, change, value, len(key)) + key


def purge(key: bytes) -> bytes:
    """Return the request to forget a counter; the answer is a status."""
    return bytes((PURGE, len(key))) + key


class AnswerStream:
    """Splits a stream of bytes into answers, in the order of the requests.

    Args:
        size: bits of a number.
    """

    __slots__ = ("_counter", "_data")

    def __init__(self, size: int) -> None:
        self._counter = Struct(f"<x{_LAYOUTS[size].counter}")
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def read(self, is_query: Sequence[bool], answers: list[Answer]) -> bool:
        """Add the answers to some requests, as far as they have arrived.

        Args:
            is_query: for each request, whether it is a `QUERY`.
            answers: the earlier answers to these requests; the next ones are added.

        Returns:
            Whether all of them have arrived.

        Raises:
            ValueError: no Throttr server of this size sends such an answer.
        """
        data, length = self._data, self._counter.size
        at, end = 0, len(data)
        for query_here in is_query[len(answers) :]:
            if at == end:
                break
            status = data[at]
            if status > OK:
                raise ValueError(f"{status} is no status")
            if not query_here or not status:
                at += 1
                answers.append(status)
                continue
            if at + length > end:
                break
            quota, unit, value = self._counter.unpack_from(data, at)
            if not 0 < unit < len(UNITS_NS):
                raise ValueError(f"there is no unit of time {unit}")
            at += length
            answers.append(Counter(quota, Ttl(unit, value)))
        del data[:at]
        return len(answers) == len(is_query)
