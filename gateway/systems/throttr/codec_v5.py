"""Throttr's protocol v5 over one key: counters and buffers with values of 1, 2, 4 or 8 bytes.

Sizes of N bytes are those of the whole listener; numbers are little-endian::

    INSERT 01 | quota N | ttl_type 1 | ttl N | klen 1 | key              -> 00 or 01
    QUERY  02 | klen 1 | key                      -> 00, or 01 | quota N | ttl_type 1 | ttl N
    UPDATE 03 | attribute 1 | change 1 | value N | klen 1 | key          -> 00 or 01
    PURGE  04 | klen 1 | key                                             -> 00 or 01
    SET    05 | ttl_type 1 | ttl N | klen 1 | vlen N | key | value       -> 00 or 01
    GET    06 | klen 1 | key                      -> 00, or 01 | ttl_type 1 | ttl N | vlen N | value
    ttl_type 1 ns, 2 us, 3 ms, 4 s, 5 min, 6 h; attribute 0 quota, 1 ttl;
    change 0 patch, 1 increase, 2 decrease

Read from the v5 paper and the servers 4.0.12 to 4.0.17; where these differ, as 4.0.14 does.
Different on purpose: a type that is not one of these six is answered by 00 and the end of the
connection, where Throttr falls silent; numbers end at their greatest value instead of beginning
anew at 0; the ttl of a change is in the record's own unit, minutes and hours too.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

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
"""Nanoseconds of each unit, by its code."""
UNITS: Final = (SECONDS, 1, 2, 3, 4, 5, 6, *[SECONDS] * 249)
"""The unit that each code stands for: whatever is none means seconds."""
SIZES: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}
"""Bits of a value, and how `struct` calls a number of so many."""


class Parser5(Parser):
    """Requests of one connection.

    Each is operation, key, ttl_type or attribute, change, quota or value, ttl, and the value of a
    buffer.

    Args:
        size: bits of a value.
        max_message: bytes of a request; one that says it is longer ends the connection.
        malformed: as for `Parser`.
    """

    __slots__ = ("_insert", "_max_message", "_set", "_update")

    def __init__(
        self, size: int, max_message: int, malformed: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(malformed)
        number = SIZES[size]
        self._max_message = max_message
        self._insert = Struct(f"<x{number}B{number}B")
        self._update = Struct(f"<xBB{number}B")
        self._set = Struct(f"<xB{number}B{number}")

    def take(self, limit: int) -> list[Request]:  # noqa: C901, PLR0912, PLR0915
        """The next complete requests; one that cannot be is the last."""
        # One pass over locals: each call per request would cost a tenth of all.
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
        """Nobody can tell where the next request would begin."""
        self._malformed(kind)
        requests.append((NOTHING, b"", 0, 0, 0, 0, None))
        self.is_ended = True
        self._drop()


class Answers5:
    """What is answered of records, wherever they are.

    Args:
        size: bits of a value.
    """

    __slots__ = ("_get", "_query", "greatest")

    def __init__(self, size: int) -> None:
        number = SIZES[size]
        self.greatest = (1 << size) - 1
        self._query = Struct(f"<B{number}B{number}").pack
        self._get = Struct(f"<BB{number}{number}").pack

    def query(self, quota: int, unit: int, ends_ns: int, now_ns: int) -> bytes:
        """A counter that has not expired."""
        return self._query(1, quota, unit, self._ttl(unit, ends_ns, now_ns))

    def get(self, value: bytes, unit: int, ends_ns: int, now_ns: int) -> bytes:
        """A buffer that has not expired."""
        return self._get(1, unit, self._ttl(unit, ends_ns, now_ns), len(value)) + value

    def _ttl(self, unit: int, ends_ns: int, now_ns: int) -> int:
        ttl = (ends_ns - now_ns - 1) // UNITS_NS[unit]
        return ttl if ttl < self.greatest else self.greatest
