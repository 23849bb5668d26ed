"""Throttr's protocols as small models, and random programs of requests for them.

Written from the notes on both versions and from nothing else: a dictionary, whole numbers, and
one function for each version that takes a request apart field by field.
"""

from __future__ import annotations

from itertools import pairwise
from struct import calcsize, pack, unpack_from
from typing import Final

from hypothesis import strategies as st

SECOND: Final = 10**9
GRACE: Final = 60 * SECOND
FORMATS: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}


class Model2:
    """Version 2, with no bound on anything; nanoseconds."""

    def __init__(self) -> None:
        self.records: dict[tuple[bytes, bytes], list[int]] = {}

    @staticmethod
    def unit(code: int) -> int:
        """What one unit is."""
        return {0: 1, 1: 10**6}.get(code, SECOND)

    def full(self, can: int, quota: int, code: int, ends: int, now: int) -> bytes:
        """An answer of 18 bytes."""
        left = max(ends - now - 1, 0) // self.unit(code)
        return pack("<BQBq", can, quota, code, min(left, 2**63 - 1))

    def read(self, data: bytes, now: int) -> tuple[bytes, bytes]:
        """What a read is answered after what was left of the one before, and what is left of it."""
        answers = b""
        while data:
            sizes = {1: 28, 2: 3, 3: 13, 4: 3}
            if data[0] not in sizes:
                return answers + b"\0", b""
            head = sizes[data[0]]
            if len(data) < head or len(data) < head + data[head - 2] + data[head - 1]:
                break
            middle = head + data[head - 2]
            stop = middle + data[head - 1]
            answers += self.do(data[:head], (data[head:middle], data[middle:stop]), now)
            data = data[stop:]
        return answers, data

    def do(self, head: bytes, key: tuple[bytes, bytes], now: int) -> bytes:
        """One request."""
        record = self.records.get(key)
        if record is not None and record[3] <= now:
            record = None
        if head[0] == 1:
            quota, usage, code, ttl = unpack_from("<QQBQ", head, 1)
            if record is None or record[1] <= now:
                can = usage <= quota
                ends = now + ttl * self.unit(code)
                record = [quota - usage if can else quota, ends, code, max(ends, now) + GRACE]
                self.records[key] = record
            else:
                can = usage <= record[0]
                record[0] -= usage if can else 0
            return self.full(can, record[0], code, record[1], now)
        if head[0] == 2:
            if record is None or record[1] <= now:
                return bytes.fromhex("00 0000000000000000 01 0000000000000000")
            return self.full(1, record[0], record[2], record[1], now)
        if record is None:
            return b"\0"
        if head[0] == 4:
            del self.records[key]
            return b"\1"
        attribute, change, value = unpack_from("<BBQ", head, 1)
        if attribute == 0:
            results = {0: value, 1: record[0] + value, 2: record[0] - value}
            record[0] = min(max(results.get(change, record[0]), 0), 2**64 - 1)
        elif attribute == 1:
            span = value * self.unit(record[2])
            record[1] = {0: now + span, 1: record[1] + span, 2: record[1] - span}.get(
                change, record[1]
            )
            record[3] = max(record[1], now) + GRACE
        return b"\1"


class Model5:
    """Version 5 with values of so many bits, and no bound on anything; nanoseconds."""

    def __init__(self, size: int) -> None:
        self.records: dict[bytes, tuple[int | bytes, int, int]] = {}
        self.format = FORMATS[size]
        self.most = 2**size - 1
        self.is_over = False

    @staticmethod
    def unit(code: int) -> int:
        """What one unit is."""
        return {1: 1, 2: 10**3, 3: 10**6, 5: 60 * SECOND, 6: 3600 * SECOND}.get(code, SECOND)

    def read(self, data: bytes, now: int) -> tuple[bytes, bytes]:
        """What a read is answered after what was left of the one before, and what is left of it."""
        answers = b""
        number = self.format
        heads = {
            1: f"<B{number}B{number}B",
            2: "<BB",
            3: f"<BBB{number}B",
            4: "<BB",
            5: f"<BB{number}B{number}",
            6: "<BB",
        }
        while data and not self.is_over:
            if data[0] not in heads:
                self.is_over = True
                return answers + b"\0", b""
            head = heads[data[0]]
            at = calcsize(head)
            if len(data) < at:
                break
            fields = unpack_from(head, data)
            length = fields[-1] if data[0] == 5 else 0
            stop = at + (fields[-2] if data[0] == 5 else fields[-1])
            if len(data) < stop + length:
                break
            answers += self.do(fields, data[at:stop], data[stop : stop + length], now)
            data = data[stop + length :]
        return answers, data

    def do(self, fields: tuple[int, ...], key: bytes, value: bytes, now: int) -> bytes:  # noqa: PLR0911
        """One request."""
        record = self.records.get(key)
        if record is not None and record[2] <= now:
            record = None
        if fields[0] in {1, 5}:
            code, ttl = fields[2:4] if fields[0] == 1 else fields[1:3]
            if record is not None:
                return b"\0"
            content = fields[1] if fields[0] == 1 else value
            kept = code if 1 <= code <= 6 else 4
            self.records[key] = (content, kept, now + ttl * self.unit(code))
            return b"\1"
        if record is None:
            return b"\0"
        content, code, ends = record
        left = min((ends - now - 1) // self.unit(code), self.most)
        if fields[0] == 2:
            if isinstance(content, bytes):
                return b"\0"
            return pack(f"<B{self.format}B{self.format}", 1, content, code, left)
        if fields[0] == 6:
            if not isinstance(content, bytes):
                return b"\0"
            return pack(f"<BB{self.format}{self.format}", 1, code, left, len(content)) + content
        if fields[0] == 4:
            del self.records[key]
            return b"\1"
        return self.update(fields, key, record, now)

    def update(
        self, fields: tuple[int, ...], key: bytes, record: tuple[int | bytes, int, int], now: int
    ) -> bytes:
        """An UPDATE of a record that is there."""
        _, attribute, change, value, _ = fields
        content, code, ends = record
        if attribute == 1:
            span = value * self.unit(code)
            ends = {0: now + span, 1: ends + span, 2: ends - span}.get(change, ends)
        elif attribute == 0 and not isinstance(content, bytes):
            if change == 2 and value > content:
                return b"\0"
            results = {0: value, 1: content + value, 2: content - value}
            content = min(results.get(change, content), self.most)
        else:
            return b"\0"
        self.records[key] = (content, code, ends)
        return b"\1"


KEYS: Final = (b"", b"k", b"{k}", b"k}", b"%", b"\0\xff", b"user:1" * 40)
PAIRS: Final = ((b"", b""), (b"a", b"bc"), (b"ab", b"c"), (b"c" * 255, b"r" * 255), (b"%", b"{}"))


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Numbers of so many bits: small ones, those around powers of two, and any."""
    most = 2**bits - 1
    edges = {
        edge
        for power in (0, 1, 8, 16, 31, 32, 33, 53, 54, 63, 64)
        for edge in (2**power - 1, 2**power, 2**power + 1)
        if edge <= most
    }
    return st.one_of(st.integers(0, 9), st.sampled_from(sorted(edges)), st.integers(0, most))


CODES: Final = st.one_of(st.integers(0, 7), st.integers(0, 255))
CHANGES: Final = st.one_of(st.integers(0, 2), st.integers(0, 255))
ATTRIBUTES: Final = st.one_of(st.integers(0, 1), st.integers(0, 255))


@st.composite
def requests2(draw: st.DrawFn) -> bytes:
    """A valid request of version 2."""
    consumer, resource = draw(st.sampled_from(PAIRS))
    operation = draw(st.sampled_from((1, 1, 1, 2, 2, 3, 3, 3, 4)))
    number = numbers(64)
    head = bytes([operation])
    if operation == 1:
        head = pack("<BQQBQ", 1, draw(number), draw(number), draw(CODES), draw(number))
    elif operation == 3:
        head = pack("<BBBQ", 3, draw(ATTRIBUTES), draw(CHANGES), draw(number))
    return head + bytes([len(consumer), len(resource)]) + consumer + resource


@st.composite
def requests5(draw: st.DrawFn, size: int) -> bytes:
    """A valid request of version 5."""
    key = draw(st.sampled_from(KEYS))
    operation = draw(st.sampled_from((1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5, 6)))
    letter, number = FORMATS[size], numbers(size)
    if operation == 1:
        return (
            pack(f"<B{letter}B{letter}B", 1, draw(number), draw(CODES), draw(number), len(key))
            + key
        )
    if operation == 3:
        return (
            pack(f"<BBB{letter}B", 3, draw(ATTRIBUTES), draw(CHANGES), draw(number), len(key)) + key
        )
    if operation == 5:
        value = draw(st.one_of(st.binary(max_size=20), st.just(b"v" * 255)))
        return (
            pack(f"<BB{letter}B{letter}", 5, draw(CODES), draw(number), len(key), len(value))
            + key
            + value
        )
    return bytes([operation, len(key)]) + key


def times() -> st.SearchStrategy[int]:
    """How many nanoseconds pass between two reads: none, few, and units of every kind."""
    edges = [
        edge
        for unit in (1, 10**3, 10**6, SECOND, 60 * SECOND, 3600 * SECOND)
        for edge in (unit - 1, unit, unit + 1, 7 * unit)
    ]
    return st.one_of(st.just(0), st.sampled_from(edges), st.integers(0, 100 * SECOND))


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in any pieces."""
    places = draw(st.sets(st.integers(0, len(data)), max_size=6))
    bounds = [0, *sorted(places), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds)]
