"""Throttr's protocol v2 over a consumer and a resource: an INSERT consumes a quota.

Numbers are little-endian::

    INSERT 01 | quota 8 | usage 8 | ttl_type 1 | ttl 8 | clen 1 | rlen 1 | consumer | resource
    QUERY  02 | clen 1 | rlen 1 | consumer | resource
    UPDATE 03 | attribute 1 | change 1 | value 8 | clen 1 | rlen 1 | consumer | resource
    PURGE  04 | clen 1 | rlen 1 | consumer | resource
    INSERT, QUERY -> can 1 | quota_remaining 8 | ttl_type 1 | ttl_remaining 8 (signed)
    UPDATE, PURGE -> 00 or 01
    ttl_type 0 ns, 1 ms, anything else s; attribute 0 quota, 1 ttl; change 0 patch, 1 increase,
    2 decrease

Sources: the v2 paper and the servers 2.0.1 and 2.1.3, which take precedence: the answer has 18
bytes, and an INSERT on a record that has not expired consumes from it and neither creates nor
resets it. Deliberate differences: a first usage above the quota is refused instead of leaving a
quota of almost 2^64; increasing a quota stops at the greatest value; a request that arrives in
pieces is reassembled.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.systems.throttr.codec import (
    INSERT,
    NO,
    NOTHING,
    NS_PER_SECOND,
    PURGE,
    QUERY,
    UPDATE,
    Parser,
    Request,
)

UNITS_NS: Final = (1, 10**6, *[NS_PER_SECOND] * 254)
"""Nanoseconds per unit, by ttl_type."""
MILLISECONDS: Final = 1
GREATEST: Final = (1 << 64) - 1
LONGEST: Final = (1 << 63) - 1
GRACE_NS: Final = 60 * NS_PER_SECOND
"""How long a record that has expired is kept: until then UPDATE and PURGE still find it, and a new
ttl revives it. Throttr keeps it until the next INSERT, however late."""

_INSERT: Final = Struct("<xQQBQBB")
_UPDATE: Final = Struct("<xBBQBB")
_answer: Final = Struct("<BQBq").pack

NOT_THERE: Final = _answer(0, 0, MILLISECONDS, 0)
"""The answer to a QUERY of a record that does not exist, or has expired."""


class Parser2(Parser):
    """Requests of one connection.

    Each is operation, key, ttl_type or attribute, change, quota or value, ttl, usage. The key is
    the pair as sent, with its lengths, so two pairs never have the same key.
    """

    __slots__ = ()

    def take(self, limit: int) -> list[Request]:
        """Return the next complete requests; drop the rest of the read after a malformed one."""
        buffer, at = self._buffer, self._at
        end = len(buffer)
        requests: list[Request] = []
        add = requests.append
        while at < end and limit:
            limit -= 1
            operation = buffer[at]
            if operation == INSERT:
                body = at + 28
            elif operation == QUERY or operation == PURGE:  # noqa: SIM109 - quicker than a tuple
                body = at + 3
            elif operation == UPDATE:
                body = at + 13
            else:
                self._malformed("unknown")
                add((NOTHING, b"", 0, 0, 0, 0, 0))
                self._drop()
                return requests
            stop = body
            if stop <= end:
                stop += buffer[body - 2] + buffer[body - 1]
            if stop > end:
                self._keep(at, stop - at)
                return requests
            key = buffer[body - 2 : stop]
            if operation == INSERT:
                quota, usage, unit, ttl, _, _ = _INSERT.unpack_from(buffer, at)
                add((INSERT, key, unit, 0, quota, ttl, usage))
            elif operation == UPDATE:
                attribute, change, value, _, _ = _UPDATE.unpack_from(buffer, at)
                add((UPDATE, key, attribute, change, value, 0, 0))
            else:
                add((operation, key, 0, 0, 0, 0, 0))
            at = stop
        self._at = at
        return requests


def answer(can: bool, quota: int, ttl_type: int, ends_ns: int, now_ns: int) -> bytes:  # noqa: FBT001
    """Return the answer to INSERT and QUERY; its ttl in the unit of `ttl_type`."""
    if ends_ns <= now_ns:
        return _answer(can, quota, ttl_type, 0)
    ttl = (ends_ns - now_ns - 1) // UNITS_NS[ttl_type]
    return _answer(can, quota, ttl_type, ttl if ttl < LONGEST else LONGEST)


def refusal(request: Request) -> bytes:
    """Return the answer to a request that could not be carried out."""
    if request[0] == INSERT:
        return _answer(0, 0, request[2], 0)
    return NOT_THERE if request[0] == QUERY else NO
