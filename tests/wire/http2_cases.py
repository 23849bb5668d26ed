"""What clients of HTTP/2 may send, and what must become of it: one line a case.

The numbers in the names are sections of RFC 9113, unless another document is named; those of h2spec
have its numbers where it has the case.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.http2 import block, data, frame, head, headers, rst, update
from tests.wire.requests import Asked

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        sent: what the client sends after the preface and its SETTINGS.
        status: of the response on stream 1; 0 for none.
        reset: the error code of its RST_STREAM; -1 for none.
        goaway: the error code that the connection ends with; -1 if it goes on.
        seen: the requests that the origin sees.
        may_begin: whether the origin may see the beginning of a request that is broken off.
        also: other error codes that the RFC allows.
    """

    sent: bytes
    status: int = 0
    reset: int = -1
    goaway: int = -1
    seen: tuple[Asked, ...] = ()
    may_begin: bool = False
    also: tuple[int, ...] = ()


def served(sent: bytes, *seen: Asked) -> Case:
    """A request that is forwarded."""
    return Case(sent, 200, seen=seen or (Asked(),))


def answered(sent: bytes, status: int) -> Case:
    """A request that can be read but not served here; the next on the connection is."""
    return Case(sent, status)


def malformed(sent: bytes, *, may_begin: bool = False) -> Case:
    """A request that is none: a stream error, and nothing whole at the origin (8.1.1)."""
    return Case(sent, reset=PROTOCOL_ERROR, may_begin=may_begin)


def broken(sent: bytes, code: int = PROTOCOL_ERROR, *also: int) -> Case:
    """The end of the connection (5.4.1)."""
    return Case(sent, goaway=code, also=also, may_begin=True)


def get(*more: tuple[str, str | bytes], path: str = "/", method: str = "GET") -> bytes:
    """A request without a body, with more fields."""
    return headers(1, head(method, path, *more))


def only(*fields: tuple[str, str | bytes], ends: bool = True) -> bytes:
    """A request with these fields and no others."""
    return headers(1, fields, ends=ends)


def post(*more: tuple[str, str | bytes], body: bytes = b"hello", ends: bool = True) -> bytes:
    """A request with a body in one frame."""
    return headers(1, head("POST", "/", *more), ends=False) + data(1, body, ends=ends)


def settings(*pairs: tuple[int, int], flags: int = 0, stream: int = 0) -> bytes:
    """A SETTINGS frame."""
    return frame(4, flags, stream, b"".join(struct.pack(">HI", *pair) for pair in pairs))


M, S, P, A = (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")
GET: Final = get()
OPEN: Final = headers(1, head("POST"), ends=False)
HELLO: Final = Asked("POST /", b"hello")

VALID: Final = {
    "a request": served(GET),
    "with a body": served(post(), HELLO),
    "with a length": served(
        post(("content-length", "5")), Asked("POST /", b"hello", {"content-length": ["5"]})
    ),
    "with a length of zeros": served(post(("content-length", "0000005")), HELLO),
    "with an empty body": served(post(body=b""), Asked("POST /", b"")),
    "an empty body in many frames": served(
        OPEN + data(1) * 20 + data(1, ends=True), Asked("POST /")
    ),
    "a body in pieces": served(
        OPEN + b"".join(data(1, b"%d" % i) for i in range(5)) + data(1, ends=True),
        Asked("POST /", b"01234"),
    ),
    "HEAD": served(get(method="HEAD"), Asked("HEAD /")),
    "QUERY": served(get(method="QUERY"), Asked("QUERY /")),
    "a query": served(get(path="/a?b=c%20d&e"), Asked("GET /a?b=c%20d&e")),
    "an empty query": served(get(path="/a?"), Asked("GET /a?")),
    "OPTIONS * (8.3.1)": served(get(method="OPTIONS", path="*"), Asked("OPTIONS *")),
    "host in place of :authority (8.3.1)": served(
        only(M, S, P, ("host", "b.test")), Asked(fields={"host": ["b.test"]})
    ),
    "host that agrees": served(get(("host", "A.test")), Asked(fields={"host": ["a.test"]})),
    "a port": served(
        only(M, S, P, (":authority", "a.test:80")), Asked(fields={"host": ["a.test:80"]})
    ),
    "an address": served(
        only(M, S, P, (":authority", "[::1]:80")), Asked(fields={"host": ["[::1]:80"]})
    ),
    "pseudo-header fields in another order": served(only(A, P, M, S)),
    "crumbs of a cookie (8.2.3)": served(
        get(("cookie", "a=b"), ("x", "y"), ("cookie", "c=d"), ("cookie", "e=f")),
        Asked(fields={"cookie": ["a=b; c=d; e=f"], "x": ["y"]}),
    ),
    "a field twice": served(get(("x", "1"), ("x", "2")), Asked(fields={"x": ["1", "2"]})),
    "an empty value": served(get(("x", "")), Asked(fields={"x": [""]})),
    "a tab in a value": served(get(("x", "a\tb")), Asked(fields={"x": ["a\tb"]})),
    "other octets in a value": served(get(("x", b"\xff\x80")), Asked(fields={"x": ["\xff\x80"]})),
    "te: trailers (8.2.2)": served(get(("te", "trailers")), Asked(fields={"te": ["trailers"]})),
    "told fields are not believed": served(
        get(("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=1.1.1.1"), ("x-real-ip", "1.1.1.1")),
        Asked(fields={"x-forwarded-for": ["127.0.0.1"], "x-real-ip": []}),
    ),
    "a scheme in capitals (RFC 9110, 4.2.3)": served(only(M, (":scheme", "HTTP"), P, A)),
    "told scheme is not believed": served(
        get(("x-forwarded-proto", "https")), Asked(fields={"x-forwarded-proto": ["http"]})
    ),
    "hop-by-hop fields are dropped": served(
        get(("proxy-authorization", "x"), ("trailer", "x"), ("http2-settings", "x")),
        Asked(fields={"proxy-authorization": [], "trailer": [], "http2-settings": []}),
    ),
    "Via has the version": served(GET, Asked(fields={"via": ["2.0 sluice"]})),
    "100-continue": served(post(("expect", "100-continue")), HELLO),
    "trailers are dropped": served(
        OPEN + data(1, b"hello") + headers(1, [("x", "y")]),
        Asked("POST /", b"hello", {"x": []}),
    ),
    "trailers with content-length are dropped": served(
        OPEN + data(1, b"hello") + headers(1, [("content-length", "5"), ("x", "y")]),
        Asked("POST /", b"hello", {"x": []}),
    ),
    "trailers without a body": served(OPEN + headers(1, [("x", "y")]), Asked("POST /")),
    "padding (6.1)": served(OPEN + frame(0, 9, 1, b"\x05hello" + bytes(5)), HELLO),
    "padding of a head (6.2)": served(frame(1, 0xD, 1, b"\x03" + block(head()) + bytes(3))),
    "a head in pieces (6.10)": served(
        frame(1, 1, 1, block(head())[:5]) + frame(9, 4, 1, block(head())[5:])
    ),
    "a head in eight pieces": served(
        frame(1, 1, 1, block(head())[:2])
        + b"".join(frame(9, 0, 1, block(head())[at : at + 2]) for at in range(2, 14, 2))
        + frame(9, 4, 1, block(head())[14:])
    ),
    "deprecated priority (5.3.2)": served(
        frame(1, 0x25, 1, b"\0\0\0\0\x0f" + block(head())) + frame(2, 0, 1, b"\0\0\0\0\x0f")
    ),
    "priority of an idle stream (5.1)": served(frame(2, 0, 7, b"\0\0\0\0\x0f") + GET),
    "priority field (RFC 9218)": served(get(("priority", "u=0, i"))),
    "PRIORITY_UPDATE (RFC 9218, 7.1)": served(frame(16, 0, 0, b"\0\0\0\x01u=1") + GET),
    "an unknown frame (4.1)": served(frame(0xFA, 0xFF, 0, b"abc") + GET + frame(0xFB, 0, 1, b"x")),
    "reserved bits (4.1)": served(headers(0x8000_0001, head())),
    "unknown flags (4.1)": served(frame(1, 0x95, 1, block(head()))),
    "an unknown setting (6.5.2)": served(settings((0xFAFA, 1)) + GET),
    "a larger window (6.9.2)": served(settings((4, 1 << 20)) + GET),
    "a small table (RFC 7541)": served(settings((1, 0)) + GET),
    "PING (6.7)": served(frame(6, 0, 0, bytes(8)) + GET),
    "PING with ACK (6.7)": served(frame(6, 1, 0, bytes(8)) + GET),
    "WINDOW_UPDATE (6.9)": served(update(0, 10) + GET + update(1, 10)),
    "WINDOW_UPDATE after the end (5.1)": served(GET + update(1, 10)),
    "numbers may be left out (5.1.1)": Case(headers(9, head()), seen=(Asked(),)),
    "a lower number is not served (5.1.1)": Case(
        headers(5, head()) + headers(3, head(path="/b")), seen=(Asked(),)
    ),
    "two at a time": Case(GET + headers(3, head(path="/b")), 200, seen=(Asked(), Asked("GET /b"))),
    "reset of a stream that is over (5.1)": Case(GET + rst(1), seen=(), may_begin=True),
}

REFUSED: Final = {
    "an unknown method": answered(get(method="BREW"), 501),
    "a method in lower case": answered(get(method="get"), 501),
    "TRACE": answered(get(method="TRACE"), 405),
    "CONNECT (8.5)": answered(only((":method", "CONNECT"), (":authority", "a.test:80")), 405),
    "a fragment": answered(get(path="/a?b#c"), 400),
    "dot segments above the root": answered(get(path="/../a"), 400),
    "an encoded slash and dots": answered(get(path="/%2e%2e/a"), 400),
    "another scheme (RFC 9110, 7.4)": answered(only(M, (":scheme", "https"), P, A), 400),
    "an unknown scheme": answered(only(M, (":scheme", "ftp"), P, A), 400),
    "host that disagrees (8.3.1)": answered(get(("host", "b.test")), 400),
    "an invalid host": answered(only(M, S, P, (":authority", "a..test")), 400),
    **{
        f"{name} twice": answered(get((name, "1"), (name, "1"), method="OPTIONS"), 400)
        for name in ("content-type", "user-agent", "max-forwards", "content-location", "etag")
    },
    "an unknown expectation": answered(get(("expect", "200-ok")), 417),
    "a loop": answered(get(("via", ", ".join(["1.1 sluice"] * 10))), 508),
    "a long field": answered(get(("x", "y" * 17_000)), 431),
    "a long target": answered(get(path="/" + "a" * 17_000), 414),
    "many fields": answered(get(*[(f"x{number}", "") for number in range(120)]), 431),
    "Max-Forwards that is not a number": answered(
        get(("max-forwards", "x"), method="OPTIONS"), 400
    ),
}

_NAMES: Final = {
    "in upper case (8.2.1)": "Upper",
    "one letter in upper case (8.2.1)": "uppeR",
    "that is empty (8.2.1)": "",
    "with a space (8.2.1)": "a b",
    "with a space behind it (8.2.1)": "a ",
    "with a colon (8.2.1)": "a:b",
    "with CR (8.2.1)": "a\rb",
    "with LF (8.2.1)": "a\nb",
    "with NUL (8.2.1)": "a\0b",
    "with DEL (8.2.1)": "a\x7fb",
    "with an octet above ASCII (8.2.1)": "a\xe9b",
    "with a whole line in it (8.2.1)": "a: b\r\ntransfer-encoding: chunked\r\nx",
}
_VALUES: Final = {
    "with CR (8.2.1)": "a\rb",
    "with LF (8.2.1)": "a\nb",
    "with CR LF (8.2.1)": "a\r\nb: c",
    "with a second request (8.2.1)": "a\r\n\r\nGET /hidden HTTP/1.1\r\nhost: b\r\n\r\n",
    "with NUL (8.2.1)": "a\0b",
    "with a space before it (8.2.1)": " a",
    "with a space behind it (8.2.1)": "a ",
    "with a tab before it (8.2.1)": "\ta",
    "with a tab behind it (8.2.1)": "a\t",
    "of a space (8.2.1)": " ",
}
_ONE_HOP: Final = {
    "connection": ("connection", "keep-alive"),
    "connection: close": ("connection", "close"),
    "connection that names a field": ("connection", "x-forwarded-for"),
    "keep-alive": ("keep-alive", "timeout=5"),
    "proxy-connection": ("proxy-connection", "keep-alive"),
    "transfer-encoding": ("transfer-encoding", "chunked"),
    "transfer-encoding: identity": ("transfer-encoding", "identity"),
    "upgrade": ("upgrade", "websocket"),
    "upgrade: h2c": ("upgrade", "h2c"),
    "te: gzip": ("te", "gzip"),
    "te: trailers, gzip": ("te", "trailers, gzip"),
}
_LENGTHS: Final = {
    "too short (8.1.1)": post(("content-length", "3")),
    "too long (8.1.1)": post(("content-length", "9")),
    "of a body that is not there": get(("content-length", "5")),
    "that a second one repeats": post(("content-length", "5"), ("content-length", "5")),
    "that a second one contradicts": post(("content-length", "5"), ("content-length", "6")),
    "in a list": post(("content-length", "5, 5")),
    "with a sign": post(("content-length", "+5")),
    "below zero": post(("content-length", "-5")),
    "in hexadecimal": post(("content-length", "0x5")),
    "that is empty": post(("content-length", "")),
    "with a space": post(("content-length", "5 ")),
    "in other digits": post(("content-length", b"\xd9\xa5")),
    "above 64 bits": post(("content-length", "99999999999999999999")),
    "of 0 with a body": post(("content-length", "0")),
}
_PSEUDO: Final = {
    "no :method (8.3.1)": only(S, P, A),
    "no :scheme (8.3.1)": only(M, P, A),
    "no :path (8.3.1)": only(M, S, A),
    "no pseudo-header fields": only(("x", "y")),
    "no fields": only(),
    ":method twice (8.3)": only(M, M, S, P, A),
    ":scheme twice (8.3)": only(M, S, S, P, A),
    ":path twice (8.3)": only(M, S, P, P, A),
    ":path twice, and not the same (8.3)": only(M, S, P, (":path", "/admin"), A),
    ":authority twice (8.3)": only(M, S, P, A, A),
    ":method that is empty": only((":method", ""), S, P, A),
    ":scheme that is empty": only(M, (":scheme", ""), P, A),
    ":path that is empty (8.3.1)": only(M, S, (":path", ""), A),
    ":authority that is empty": only(M, S, P, (":authority", "")),
    ":method after a field (8.3)": only(S, P, A, ("x", "y"), M),
    ":path after a field (8.3)": only(M, S, A, ("x", "y"), P),
    ":authority after a field (8.3)": only(M, S, P, ("x", "y"), A),
    "an unknown one (8.3)": get() and only(M, S, P, A, (":unknown", "x")),
    ":status in a request (8.3)": only(M, S, P, A, (":status", "200")),
    ":protocol, which was not offered (RFC 8441)": only(
        (":method", "CONNECT"), S, P, A, (":protocol", "websocket")
    ),
    ":path with a space": get(path="/a b"),
    ":path with a second line": get(path="/ HTTP/1.1\r\nhost: b.test\r\nx: "),
    ":path with CR": get(path="/a\rb"),
    ":path with NUL": get(path="/a\0"),
    ":path with a tab": get(path="/a\tb"),
    ":path without a slash (8.3.1)": get(path="a"),
    ":path that is absolute": get(path="http://b.test/"),
    "* with another method": get(path="*"),
    ":authority with userinfo (8.3.1)": only(M, S, P, (":authority", "u@a.test")),
    ":authority with a password": only(M, S, P, (":authority", "u:p@a.test")),
    ":authority with a space": only(M, S, P, (":authority", "a.test b")),
    ":authority with a second line": only(M, S, P, (":authority", "a.test\r\nx: y")),
    ":authority with NUL": only(M, S, P, (":authority", "a\0.test")),
    ":method with a space": only((":method", "GET /admin"), S, P, A),
    ":method with a second line": only((":method", "GET / HTTP/1.1\r\nx:"), S, P, A),
    ":scheme with a colon": only(M, (":scheme", "http:"), P, A),
    "CONNECT with a :path (8.5)": only((":method", "CONNECT"), P, A),
    "CONNECT with a :scheme (8.5)": only((":method", "CONNECT"), S, A),
    "CONNECT without :authority (8.5)": only((":method", "CONNECT")),
    "no :authority and no host": only(M, S, P),
    "host that is empty": get(("host", "")),
    ":authority with a path": only(M, S, P, (":authority", "a.test/b")),
    "host twice": get(("host", "a.test"), ("host", "a.test")),
}
_TRAILERS: Final = {
    "with :path (8.1)": [(":path", "/admin")],
    "with :status (8.1)": [(":status", "200")],
    "in upper case": [("Upper", "x")],
    "with a length that lies": [("content-length", "6")],
    "with transfer-encoding": [("transfer-encoding", "chunked")],
    "with connection": [("connection", "close")],
    "with CR LF": [("x", "a\r\nb")],
    "with host": [("host", "")],
}

MALFORMED: Final = {
    **{f"a name {what}": malformed(get((name, "x"))) for what, name in _NAMES.items()},
    **{f"a value {what}": malformed(get(("x", value))) for what, value in _VALUES.items()},
    **{
        f"a cookie {what}": malformed(get(("cookie", value)))
        for what, value in _VALUES.items()
        if "CR" in what or "NUL" in what
    },
    **{f"{what} (8.2.2)": malformed(get(field)) for what, field in _ONE_HOP.items()},
    **{f"a length {what}": malformed(sent, may_begin=True) for what, sent in _LENGTHS.items()},
    **{what: malformed(sent) for what, sent in _PSEUDO.items()},
    **{
        f"trailers {what}": malformed(OPEN + data(1, b"hello") + headers(1, fields), may_begin=True)
        for what, fields in _TRAILERS.items()
        if what != "with host"
    },
    "trailers that do not end the stream (8.1)": malformed(
        OPEN + data(1, b"hello") + headers(1, [("x", "y")], ends=False), may_begin=True
    ),
    "a length too long, before trailers": malformed(
        headers(1, head("POST", "/", ("content-length", "9")), ends=False)
        + data(1, b"hello")
        + headers(1, [("x", "y")]),
        may_begin=True,
    ),
}

BROKEN: Final = {
    "DATA on stream 0 (6.1)": broken(data(0, b"x")),
    "DATA on an idle stream (5.1)": broken(data(1, b"x")),
    "HEADERS on stream 0 (6.2)": broken(headers(0, head())),
    "HEADERS on an even stream (5.1.1)": broken(headers(2, head())),
    "RST_STREAM on stream 0 (6.4)": broken(rst(0)),
    "RST_STREAM on an idle stream (6.4)": broken(rst(1)),
    "RST_STREAM of three bytes (6.4)": broken(GET + frame(3, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "WINDOW_UPDATE on an idle stream (5.1)": broken(update(1, 1)),
    "WINDOW_UPDATE of 0 (6.9)": broken(update(0, 0)),
    "WINDOW_UPDATE of 0 on a stream (6.9)": broken(OPEN + update(1, 0)),
    "WINDOW_UPDATE of three bytes (6.9)": broken(frame(8, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "a window above 2^31-1 (6.9.1)": broken(update(0, 2**31 - 1), FLOW_CONTROL_ERROR),
    "PRIORITY on stream 0 (6.3)": broken(frame(2, 0, 0, bytes(5))),
    "PRIORITY of four bytes (6.3)": broken(GET + frame(2, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "HEADERS that depend on themselves (5.3.1)": broken(
        frame(1, 0x25, 1, b"\0\0\0\x01\x0f" + block(head()))
    ),
    "SETTINGS on a stream (6.5)": broken(settings(stream=1)),
    "SETTINGS of five bytes (6.5)": broken(frame(4, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "SETTINGS with ACK and more (6.5)": broken(frame(4, 1, 0, bytes(6)), FRAME_SIZE_ERROR),
    "SETTINGS: ENABLE_PUSH of 2 (6.5.2)": broken(settings((2, 2))),
    "SETTINGS: a window of 2^31 (6.5.2)": broken(settings((4, 2**31)), FLOW_CONTROL_ERROR),
    "SETTINGS: frames of 16,383 (6.5.2)": broken(settings((5, 16_383))),
    "SETTINGS: frames of 2^24 (6.5.2)": broken(settings((5, 2**24))),
    "SETTINGS: ENABLE_CONNECT_PROTOCOL of 2 (RFC 8441)": broken(settings((8, 2))),
    "PING on a stream (6.7)": broken(frame(6, 0, 1, bytes(8))),
    "PING of seven bytes (6.7)": broken(frame(6, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "GOAWAY on a stream (6.8)": broken(frame(7, 0, 1, bytes(8))),
    "PUSH_PROMISE (8.4)": broken(frame(5, 4, 1, b"\0\0\0\x02" + block(head()))),
    "CONTINUATION of nothing (6.10)": broken(frame(9, 4, 1, block(head()))),
    "CONTINUATION on stream 0 (6.10)": broken(headers(1, head(), whole=False) + frame(9, 4, 0)),
    "CONTINUATION on another stream (6.10)": broken(
        headers(1, head(), whole=False) + frame(9, 4, 3)
    ),
    "CONTINUATION after the end of the head (6.10)": broken(GET + frame(9, 4, 1, b"")),
    "PING amid a head (6.10)": broken(headers(1, head(), whole=False) + frame(6, 0, 0, bytes(8))),
    "DATA amid a head (6.10)": broken(OPEN + headers(3, head(), whole=False) + data(1, b"x")),
    "an unknown frame amid a head (5.5)": broken(
        headers(1, head(), whole=False) + frame(0xFA, 0, 0, b"x")
    ),
    "a frame that is too large (4.2)": broken(OPEN + data(1, bytes(16_385)), FRAME_SIZE_ERROR),
    "HEADERS that are too large (4.2)": broken(frame(1, 5, 1, bytes(16_385)), FRAME_SIZE_ERROR),
    "padding as long as the frame (6.1)": broken(OPEN + frame(0, 9, 1, b"\x05" + bytes(4))),
    "padding longer than a head (6.2)": broken(frame(1, 0xD, 1, b"\xff" + block(head()))),
    "an index of HPACK that is not there (RFC 7541, 2.3.3)": broken(
        frame(1, 5, 1, b"\xff\xff\x03"), COMPRESSION_ERROR
    ),
    "an index of 0 (RFC 7541, 6.1)": broken(frame(1, 5, 1, b"\x80"), COMPRESSION_ERROR),
    "a table larger than allowed (RFC 7541, 6.3)": broken(
        frame(1, 5, 1, b"\x3f\xe2\x7f" + block(head())), COMPRESSION_ERROR
    ),
    "a table update amid a head (RFC 7541, 4.2)": broken(
        frame(1, 5, 1, block(head()) + b"\x20"), COMPRESSION_ERROR
    ),
    "Huffman padding that is too long (RFC 7541, 5.2)": broken(
        frame(1, 5, 1, b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"), COMPRESSION_ERROR
    ),
    "Huffman with EOS (RFC 7541, 5.2)": broken(
        frame(1, 5, 1, b"\x00\x85\xf2\xb2\x4a\x87\xff\xff\xff\xfd\x25\x42\x7f"), COMPRESSION_ERROR
    ),
    "a string that ends too early (RFC 7541)": broken(
        frame(1, 5, 1, b"\x00\x7f\x00ab"), COMPRESSION_ERROR
    ),
    "more than the window of a stream (6.9.1)": broken(
        headers(1, head("POST", "/stalled"), ends=False) + data(1, bytes(16_384)) * 5,
        FLOW_CONTROL_ERROR,
    ),
    "more streams than allowed (5.1.2)": broken(
        # The acknowledgement makes the limit binding.
        frame(4, 1, 0)
        + b"".join(headers(number, head("POST"), ends=False) for number in range(1, 221, 2)),
        PROTOCOL_ERROR,
        REFUSED_STREAM,
    ),
}


def slices(sent: Iterable[bytes]) -> list[bytes]:
    """Fifty at a time: what is refused at once is not reset."""
    frames = list(sent)
    return [b"".join(frames[at : at + 50]) for at in range(0, len(frames), 50)]


FLOODS: Final[Mapping[str, tuple[bytes | list[bytes], str]]] = {
    # CVE-2023-44487: rapid reset.
    "rapid reset": (
        slices(headers(n, head()) + rst(n) for n in range(1, 1201, 2)),
        "http2_resets",
    ),
    # CVE-2025-8671: MadeYouReset, by frames that the server must answer with RST_STREAM.
    "made to reset, by names": (
        slices(headers(n, head("GET", "/", ("Upper", "x"))) for n in range(1, 1201, 2)),
        "http2_resets",
    ),
    "made to reset, by lengths": (
        slices(
            headers(n, head("POST", "/", ("content-length", "1")), ends=False) + data(n, b"abc")
            for n in range(1, 1201, 2)
        ),
        "http2_resets",
    ),
    "made to reset, by windows": (
        slices(
            headers(n, head("POST"), ends=False) + update(n, 2**31 - 1) for n in range(1, 1201, 2)
        ),
        "http2_protocol",
    ),
    "streams that are refused": (
        b"".join(headers(n, head("POST"), ends=False) for n in range(1, 5001, 2)),
        "http2_flood",
    ),
    # CVE-2024-27316, CVE-2024-28182, CVE-2023-45288: CONTINUATION without an end.
    "CONTINUATION": (
        frame(1, 1, 1, block(head())) + frame(9, 0, 1, block([("x", "y" * 100)])) * 500,
        "http2_flood",
    ),
    # CVE-2019-9518, for heads.
    "empty CONTINUATION": (frame(1, 1, 1, block(head())) + frame(9, 0, 1) * 3000, "http2_flood"),
    # CVE-2019-9512.
    "PING": (frame(6, 0, 0, bytes(8)) * 3000, "http2_flood"),
    # CVE-2019-9515.
    "SETTINGS": (settings((3, 1)) * 3000, "http2_flood"),
    "acknowledged SETTINGS": (frame(4, 1, 0) * 3000, "http2_flood"),
    # CVE-2020-11080.
    "large SETTINGS": (settings(*[(0xFAFA, 1)] * 2000), "http2_flood"),
    # CVE-2019-9518.
    "empty DATA": (OPEN + data(1) * 3000, "http2_flood"),
    "padding": (OPEN + frame(0, 8, 1, b"\x01\0") * 3000, "http2_flood"),
    # CVE-2019-9513.
    "PRIORITY": (frame(2, 0, 1, b"\0\0\0\x03\x0f") * 3000, "http2_flood"),
    "PRIORITY_UPDATE": (frame(16, 0, 0, b"\0\0\0\x01u=1") * 3000, "http2_flood"),
    "WINDOW_UPDATE": (OPEN + update(1, 1) * 5000, "http2_flood"),
    "unknown frames": (frame(0xFA, 0, 0, b"x") * 3000, "http2_flood"),
    # CVE-2016-6581: a small block whose fields are large.
    "HPACK bomb": (
        frame(1, 1, 1, block(head()) + b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000)
        + frame(9, 4, 1, b"\xbe" * 16_000),
        "http2_flood",
    ),
    # CVE-2019-9516: fields without a name, and without a value.
    "empty fields": (frame(1, 5, 1, block(head()) + b"\x00\x01x\x00" * 4000), "http2_flood"),
}

CASES: Final = {**VALID, **REFUSED, **MALFORMED, **BROKEN}
