"""Heads from fields to messages and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.base.errors import BadRequestError
from gateway.proxy.client.http2.message import read_request
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.http2.lines import response_fields, trailer_fields

BASE = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/a?b"), (b":authority", b"a.b"))


def read(
    *fields: tuple[bytes, bytes], is_whole: bool = True, limits: Mapping[str, int] | None = None
) -> Any:
    """What becomes of the fields."""
    most = {"one": 8192, "count": 100, "all": 65_536, **(limits or {})}
    parser = RequestParser(most["one"], most["count"])
    return read_request(fields, parser, most["all"], (b"http",), is_whole=is_whole)


def test_a_request_is_what_the_parser_of_http_1_makes_of_it() -> None:
    """Method, target, fields in both forms, and whether the body's length is known."""
    got = read(*BASE, (b"x", b"y"), (b"x", b"\xff"))
    want = RequestParser(8192, 100).parse(
        b"GET /a?b HTTP/1.1\r\nHost: a.b\r\nx: y\r\nx: \xff\r\n\r\n"
    )
    assert (got.method, got.path, got.raw_headers) == (want.method, want.path, want.raw_headers)
    assert sorted(got.headers.items()) == sorted(want.headers.items())
    assert (got.should_close, got.upgrade, got.chunked) == (False, False, False)
    assert tuple(got.version) == (2, 0)


def test_bodies() -> None:
    """Without a length the upstream gets chunks."""
    assert read(*BASE, is_whole=False).chunked
    assert not read(*BASE, (b"content-length", b"5"), is_whole=False).chunked


def test_cookies_are_joined() -> None:
    """RFC 9113, section 8.2.3."""
    got = read(*BASE, (b"cookie", b"a=b"), (b"x", b"y"), (b"cookie", b"c=d"))
    assert got.headers.getall("cookie") == ["a=b; c=d"]
    assert got.raw_headers[-1] == (b"cookie", b"a=b; c=d")


@pytest.mark.parametrize(
    ("fields", "limits", "status", "kind"),
    [
        ([*BASE, (b"x", b"y" * 100)], {"one": 50}, 431, "too_large"),
        ([*BASE, (b"cookie", b"y" * 30), (b"cookie", b"y" * 30)], {"one": 50}, 431, "too_large"),
        ([*BASE, *[(b"x", b"")] * 9], {"count": 8}, 431, "too_large"),
        ([*BASE, (b"x", b"y" * 100)], {"all": 200}, 431, "too_large"),
        ([BASE[0], BASE[1], (b":path", b"/" * 99), BASE[3]], {"one": 50}, 414, "too_large"),
        ([(b":method", b"BREW"), *BASE[1:]], {}, 501, "method"),
        ([(b":method", b"G" * 50), *BASE[1:]], {}, 501, "method"),
        ([BASE[0], (b":scheme", b"https"), *BASE[2:]], {}, 400, "target"),
        ([BASE[0], BASE[1], (b":path", b"/\xff"), BASE[3]], {}, 400, "target"),
        ([BASE[0], BASE[1], (b":path", b"a"), BASE[3]], {}, 400, "target"),
        ([*BASE, (b"host", b"b.b")], {}, 400, "host"),
    ],
)
def test_what_is_refused(
    fields: list[tuple[bytes, bytes]], limits: dict[str, int], status: int, kind: str
) -> None:
    """Limits and errors are those of HTTP/1.1."""
    got = read(*fields, limits=limits)
    assert isinstance(got, BadRequestError)
    assert (got.status, got.kind) == (status, kind)


def test_responses() -> None:
    """Names in lower case, values without spaces, nothing that concerns one connection."""
    for _ in range(2):
        assert response_fields(
            b"HTTP/1.1 200 OK\r\nX-A:  b \r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
            b"Keep-Alive: x\r\nUpgrade: x\r\nProxy-Connection: x\r\nX:\r\nBad Name: x\r\nnone"
        ) == (200, [(b":status", b"200"), (b"x-a", b"b"), (b"x", b"")])


def test_many_lines_are_forgotten() -> None:
    """Lines are remembered up to a number, and only short ones."""
    for number in range(5000):
        line = b"X: %d" % number
        assert response_fields(b"HTTP/1.1 204\r\n" + line)[1][1] == (b"x", b"%d" % number)
    assert response_fields(b"HTTP/1.1 204\r\nX: " + b"y" * 500)[1][1] == (b"x", b"y" * 500)


def test_trailers() -> None:
    """Lines with their ends become fields."""
    assert trailer_fields(b"X-Sum: 1\r\nY: 2\r\n") == [(b"x-sum", b"1"), (b"y", b"2")]
