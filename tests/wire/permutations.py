"""Requests whose end can be told in two ways: framing headers, in all their spellings and pairs.

Behind each stands a request that only those see who take it for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

HIDDEN: Final = b"GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"

LENGTHS: Final = (
    *(b"5", b"0", b"05", b"+5", b"-5", b"5 ", b"5,", b"5, 5", b"5, 6", b"5;", b"0x5", b"5e0"),
    *(b"", b'"5"', b"5 5", b"5_0", b"\xb2", b"18446744073709551621", b"%d" % (5 + len(HIDDEN))),
)
CODINGS: Final = (
    *(b"chunked", b"Chunked", b"CHUNKED", b"xchunked", b"chunke", b"identity", b"gzip", b""),
    *(
        b"chunked, identity",
        b"identity, chunked",
        b"chunked, chunked",
        b"gzip, chunked",
        b"chunk\ned",
    ),
    *(b"chunked;q=1", b'"chunked"', b", chunked", b"chunked,", b"chunked ", b"\x0bchunked"),
)
SPELLINGS: Final = (
    *(b"%b: %b", b"%b:%b", b"%b:\t%b", b"%b:  %b \t", b"%b : %b", b"%b\t: %b", b" %b: %b"),
    *(b"\t%b: %b", b"X: y\r\n %b: %b", b"%b:\r\n %b", b"%b:\n %b", b"%b: \x0b%b", b"%b: \x00%b"),
    *(b"%b\x00: %b", b"%b\x0b: %b", b"\x00%b: %b", b"X%b: %b", b"%b-: %b", b"%b: %b\x00"),
    *(b"%b: %b\r", b"X: y\r%b: %b", b"X: y\n%b: %b", b"%b:: %b", b"%b: x\r\n%b: 5", b"%b %b"),
)
LINE_ENDS: Final = (b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\n")
VERSIONS: Final = (b"1.1", b"1.0")
BODIES: Final = (b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"0\n\n", b"0;a\r\nX: y\r\n\r\n")
"""Ends of a body for who reads chunks, and five bytes or more of it for who counts."""

_LENGTH: Final = b"Content-Length"
_CODING: Final = b"Transfer-Encoding"


def permutations(version: bytes) -> Iterator[bytes]:
    """All requests of a version, the hidden one behind each."""
    for length, coding in product(LENGTHS, CODINGS):
        pair = (b"%b: %b" % (_LENGTH, length), b"%b: %b" % (_CODING, coding))
        for fields in (pair, pair[::-1]):
            yield _request(version, fields, b"\r\n", BODIES[0])
    for name, value in ((_LENGTH, b"5"), (_CODING, b"chunked")):
        others = (_LENGTH + b": 5", _LENGTH + b": 7", _CODING + b": chunked", b"X: y")
        for spelling, other, body in product(SPELLINGS, others, BODIES[:2]):
            fields = (spelling.replace(b"%b", name, 1).replace(b"%b", value, 1), other)
            yield _request(version, fields, b"\r\n", body)
            yield _request(version, fields[::-1], b"\r\n", body)
        for end, other, body in product(LINE_ENDS, others, BODIES):
            fields = (b"%b: %b" % (name, value), other)
            yield _request(version, fields, end, body)


def _request(version: bytes, fields: tuple[bytes, ...], end: bytes, body: bytes) -> bytes:
    lines = (b"POST /first HTTP/%b\r\nHost: a.test\r\nConnection: keep-alive" % version, *fields)
    return end.join(lines) + b"\r\n\r\n" + body + HIDDEN
