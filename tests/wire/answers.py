"""What upstreams may send, and what a client must then see: one line a case.

The names begin with the ids of the cases as the project counts them: D for answers, C for
fields, E for connections, P for reports about other proxies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.wire.scripted import End, Pause, Script

OK: Final = b"HTTP/1.1 200 OK\r\n"
EMPTY: Final = b"Content-Length: 0\r\n\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO: Final = b"Content-Length: 5\r\n\r\nhello"
HINT: Final = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"

GET: Final = b"GET %b HTTP/1.1\r\nHost: a.test\r\n\r\n"
GET_1_0: Final = b"GET %b HTTP/1.0\r\nHost: a.test\r\n\r\n"
KEPT_1_0: Final = b"GET %b HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n"
HEAD: Final = b"HEAD %b HTTP/1.1\r\nHost: a.test\r\n\r\n"
POST: Final = b"POST %b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody"
WITH_TE: Final = b"GET %b HTTP/1.1\r\nHost: a.test\r\nConnection: TE\r\nTE: trailers\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        script: what the upstream does.
        request: what the client sends; `%b` is the case's path.
        status, body, interim, is_whole: of the answer that the client hears; a status of 0 for
            none at all.
        fields: values of fields that it must have; none for those that it must not.
        trailers: likewise, all of them.
        reuses: whether the upstream's connection goes on.
        keeps_alive: whether the client's does.
        asked: how often the upstream may see the request.
        pieces: whether the script means the same however its bytes are cut.
    """

    script: Script
    request: bytes = GET
    status: int = 200
    body: bytes = b""
    interim: tuple[int, ...] = ()
    is_whole: bool = True
    fields: Mapping[bytes, list[bytes]] = field(default_factory=dict)
    trailers: tuple[tuple[bytes, bytes], ...] = ()
    reuses: bool = True
    keeps_alive: bool = True
    asked: int = 1
    pieces: bool = True


def bad(answer: bytes, *, request: bytes = GET, pieces: bool = True) -> Case:
    """An answer that is none: 502 for the client, whose connection goes on, and nobody else's."""
    return Case((answer,), request, 502, _PROTOCOL, reuses=False, pieces=pieces)


def broken(*script: bytes | Pause | End, request: bytes = GET) -> Case:
    """An answer that breaks off: never complete for the client either."""
    return Case(script, request, is_whole=False, reuses=False, keeps_alive=False)


def cut_off(*script: bytes | Pause | End, request: bytes = GET, asked: int = 1) -> Case:
    """An upstream that leaves before its answer has a head."""
    return Case(script, request, 502, _CLOSED, reuses=False, asked=asked)


_PROTOCOL: Final = b"protocol"
_CLOSED: Final = b"closed"
_FIRST_BYTE: Final = b"timeout_first_byte"

FRAMING: Final = {
    "D01 a length, then chunks": bad(
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "D01 chunks, then a length": bad(
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    ),
    "D02 a length in words": bad(OK + b"Content-Length: foo\r\n\r\n"),
    "D02 two lengths": bad(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    "D02 a list of lengths": bad(OK + b"Content-Length: 5, 6\r\n\r\nhello!"),
    "D02 a negative length": bad(OK + b"Content-Length: -1\r\n\r\n"),
    "D02 a signed length": bad(OK + b"Content-Length: +5\r\n\r\nhello"),
    "D02 an empty length": bad(OK + b"Content-Length: \r\n\r\n"),
    "D02 a hexadecimal length": bad(OK + b"Content-Length: 0x5\r\n\r\nhello"),
    "D02 a length in other digits": bad(OK + b"Content-Length: \xb2\r\n\r\nhi"),
    "D02 a length beyond all": bad(OK + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n"),
    "D03 one length twice": bad(OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "D03 one length in a list": bad(OK + b"Content-Length: 5, 5\r\n\r\nhello"),
    "D04 an unknown coding": bad(OK + b"Transfer-Encoding: foo\r\n\r\n"),
    "D04 two codings": bad(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "D04 chunked twice": bad(
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "D04 identity": bad(OK + b"Transfer-Encoding: identity\r\n\r\nhello"),
    "D04 an empty coding": bad(OK + b"Transfer-Encoding: \r\n\r\n0\r\n\r\n"),
    "D04 a coding with a control": bad(OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "D04 chunks in HTTP/1.0": bad(
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "D05 more than the length": Case(
        (OK + b"Content-Length: 5\r\n\r\nhelloEXTRA",), body=b"hello", reuses=False
    ),
    "D05 another answer": Case((OK + HELLO + OK + HELLO,), body=b"hello", reuses=False),
    "D06 more than the last chunk": Case(
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\nEXTRA",), body=b"hello", reuses=False
    ),
    "D06 another answer behind chunks": Case(
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + OK + HELLO,), body=b"hello", reuses=False
    ),
    "D07 a body of no length": Case((OK + EMPTY + b"EXTRA",), reuses=False),
    "D07 a body behind HEAD": Case((OK + HELLO,), HEAD, reuses=False),
    "D07 a body behind 204": Case(
        (b"HTTP/1.1 204 No Content\r\n\r\nhello",), status=204, reuses=False
    ),
    "D07 a body behind 304": Case(
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",),
        status=304,
        reuses=False,
    ),
    "D08 HEAD with a length": Case(
        (OK + b"Content-Length: 1000\r\n\r\n",), HEAD, fields={b"content-length": [b"1000"]}
    ),
    "D08 HEAD with chunks": Case((CHUNKED,), HEAD, fields={b"content-length": []}),
    "D08 HEAD with neither": Case((OK + b"X: y\r\n\r\n",), HEAD, fields={b"content-length": []}),
    "D09 204 with a length": Case(
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",),
        status=204,
        fields={b"content-length": [], b"transfer-encoding": []},
    ),
    "D09 204 with chunks": Case(
        (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",),
        status=204,
        fields={b"content-length": [], b"transfer-encoding": []},
    ),
    "D10 304 with a length": Case(
        (b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 1234\r\n\r\n',),
        status=304,
        fields={b"content-length": [b"1234"], b"etag": [b'"a"']},
    ),
    "P31 chunks of nothing": Case((CHUNKED + b"0\r\n\r\n",)),
    "P47 a last chunk behind HEAD": Case((CHUNKED + b"0\r\n\r\n",), HEAD, reuses=False),
    "chunks with extensions": Case(
        (CHUNKED + b'5;a="b;c"\r\nhello\r\n0;x\r\n\r\n',), body=b"hello"
    ),
    "chunks with extensions and blanks": Case(
        (CHUNKED + b'5 ; a = "b\\"c" ;d\r\nhello\r\n0\t;\tx\r\n\r\n',), body=b"hello"
    ),
    **{
        f"a chunk extension that is none: {line.decode()}": broken(
            CHUNKED + b"3\r\nabc\r\n", Pause(0.02), line + b"\r\nhe\r\n0\r\n\r\n"
        )
        for line in (b"2;", b"2;;a", b"2;a=", b"2;=b", b'2;a="b', b"2;a=b c", b"2;(a)", b"2;a ")
    },
    "a hundred thousand chunks": Case(
        (CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n",), body=b"x" * 100_000, pieces=False
    ),
    "a chunk whose end is something else": broken(
        CHUNKED + b"3\r\nabc\r\n", Pause(0.02), b"5\r\nhello??0\r\n\r\n"
    ),
    "a chunk longer than its size": broken(CHUNKED + b"3\r\nabc", Pause(0.02), b"def\r\n"),
    "a chunk size in words": broken(CHUNKED + b"3\r\nabc\r\n", Pause(0.02), b"xyz\r\n"),
    "a chunk size beyond 64 bits": broken(
        CHUNKED + b"3\r\nabc\r\n", Pause(0.02), b"1" + b"0" * 16 + b"\r\n"
    ),
    "a chunk extension without end": broken(
        CHUNKED + b"3\r\nabc\r\n", Pause(0.02), b"1;" + b"x" * 10_000
    ),
    "a chunk that ends in LF": broken(CHUNKED + b"3\r\nabc", Pause(0.02), b"\n0\r\n\r\n"),
}

LENGTHLESS: Final = {
    **{
        f"D11 until the end, HTTP/1.{minor}, {name}": Case(
            (b"HTTP/1.%d 200 OK\r\n\r\nhello" % minor, End.FIN),
            request,
            body=b"hello",
            reuses=False,
            keeps_alive=request == GET,
        )
        for minor in (0, 1)
        for name, request in (("to 1.1", GET), ("to 1.0", GET_1_0), ("kept 1.0", KEPT_1_0))
    },
    "D11 HTTP/1.0 with a length": Case(
        (b"HTTP/1.0 200 OK\r\n" + HELLO,), body=b"hello", reuses=False
    ),
    "D11 HTTP/1.0 that goes on": Case(
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + HELLO,), body=b"hello"
    ),
    "D11 a reset is no end": broken(OK + b"\r\nhalf", Pause(0.02), End.RST),
    "D11 a reset is no end for HTTP/1.0": broken(
        OK + b"\r\nhalf", Pause(0.02), End.RST, request=GET_1_0
    ),
    **{
        f"{name}, {end.value}, {to}": broken(data, Pause(0.02), end, request=request)
        for name, data in (
            ("D12 half a body", OK + b"Content-Length: 100\r\n\r\nhalf"),
            ("D13 half a chunk", CHUNKED + b"64\r\nhalf"),
            ("D13 no last chunk", CHUNKED + b"4\r\nhalf\r\n"),
            ("D13 half a last chunk", CHUNKED + b"4\r\nhalf\r\n0\r\n"),
            ("D13 half a trailer", CHUNKED + b"4\r\nhalf\r\n0\r\nX: y\r\n"),
        )
        for end in End
        for to, request in (("to 1.1", GET), ("to 1.0", GET_1_0), ("kept 1.0", KEPT_1_0))
    },
    **{f"D14 nothing, {end.value}": cut_off(end, request=POST) for end in End},
    **{f"D14 nothing to GET, {end.value}": cut_off(end, asked=2) for end in End},
    "E09 closed behind the answer": Case((OK + HELLO, End.FIN), body=b"hello", reuses=False),
    "E09 reset behind the answer": Case(
        (OK + HELLO, Pause(0.02), End.RST), body=b"hello", reuses=False
    ),
    "D14 half a head": cut_off(OK + b"Content-Le", End.FIN),
    "D14 half a status line": cut_off(b"HTTP/1.", End.FIN),
}

HEADS: Final = {
    "D15 another protocol": bad(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "D15 another protocol, no line": bad(b"SSH"),
    "D15 TLS": bad(b"\x15\x03\x01\x00\x02\x02\x46"),
    "D15 HTTP/0.9": bad(b"<html>hello</html>"),
    "D15 HTTP/2": bad(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"),
    "D15 four digits": bad(b"HTTP/1.1 2000 OK\r\n" + EMPTY),
    "D15 two digits": bad(b"HTTP/1.1 99 x\r\n" + EMPTY),
    "D15 letters": bad(b"HTTP/1.1 2x0 OK\r\n" + EMPTY),
    "D15 a sign": bad(b"HTTP/1.1 +20 OK\r\n" + EMPTY),
    "D15 no status": bad(b"HTTP/1.1 OK\r\n" + EMPTY),
    "D15 two blanks": bad(b"HTTP/1.1  200 OK\r\n" + EMPTY),
    "D15 a tab": bad(b"HTTP/1.1\t200 OK\r\n" + EMPTY),
    "D15 small letters": bad(b"http/1.1 200 OK\r\n" + EMPTY),
    "D15 ICY": bad(b"ICY 200 OK\r\n" + EMPTY),
    **{
        f"D15 version {version}": bad(f"HTTP/{version} 200 OK\r\n".encode() + EMPTY)
        for version in ("0.9", "1.2", "2.0", "2", "9.9", "1.10", "11", "1.", "1,1")
    },
    "D16 no reason": Case((b"HTTP/1.1 200\r\n" + HELLO,), body=b"hello"),
    "D16 a blank for a reason": Case((b"HTTP/1.1 200 \r\n" + HELLO,), body=b"hello"),
    "D16 a reason of other bytes": Case(
        (b"HTTP/1.1 200 d\xe9j\xe0 vu\r\n" + HELLO,), body=b"hello"
    ),
    **{
        f"D17 {status}": Case(
            (b"HTTP/1.1 %d Odd\r\n" % status + HELLO,), status=status, body=b"hello"
        )
        for status in (200, 299, 399, 499, 599)
    },
    **{
        f"D17 {status}": bad(f"HTTP/1.1 {status} Odd\r\n".encode() + EMPTY)
        for status in ("000", "099", "600", "777", "999")
    },
    "D28 CR in a value": bad(OK + b"Location: /a\rSet-Cookie: x\r\n" + EMPTY),
    "D28 CR in a reason": bad(b"HTTP/1.1 200 x\rSet-Cookie: a\r\n" + EMPTY),
    "C28 LF for line ends": bad(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    "C28 one LF": bad(OK + b"X: a\nY: b\r\n" + EMPTY),
    "C28 LF at the end": bad(OK + b"Content-Length: 0\r\n\n"),
    "C28 NUL": bad(OK + b"X: a\x00b\r\n" + EMPTY),
    "C28 a control": bad(OK + b"X: a\x01b\r\n" + EMPTY),
    "C28 DEL": bad(OK + b"X: a\x7fb\r\n" + EMPTY),
    "C28 a folded line": bad(OK + b"X: a\r\n b\r\n" + EMPTY),
    "C28 a folded first line": bad(OK + b" X: a\r\n" + EMPTY),
    "C28 a blank before the colon": bad(OK + b"Content-Length : 0\r\n\r\n"),
    "C28 a blank in a name": bad(OK + b"X Y: a\r\n" + EMPTY),
    "C28 no name": bad(OK + b": a\r\n" + EMPTY),
    "C28 no colon": bad(OK + b"X\r\n" + EMPTY),
    "C28 a name of other bytes": bad(OK + b"X\xe9: a\r\n" + EMPTY),
    "C28 200 KiB": bad(OK + b"X: " + b"y" * 200_000 + b"\r\n" + EMPTY, pieces=False),
    "C28 200 KiB without end": bad(OK + b"X: " + b"y" * 200_000, pieces=False),
    "C28 10 000 fields": bad(OK + b"X: y\r\n" * 10_000 + EMPTY, pieces=False),
    "C28 10 000 fields without end": bad(OK + b"X: y\r\n" * 10_000, pieces=False),
    "C28 100 KiB": Case(
        (OK + b"X: " + b"y" * 100_000 + b"\r\n" + HELLO,), body=b"hello", pieces=False
    ),
    "a line end first": bad(b"\r\n" + OK + EMPTY),
}

FIELDS: Final = {
    "C04 fields of the connection": Case(
        (OK + b"Connection: X-Up, close\r\nX-Up: 1\r\nKeep-Alive: timeout=5\r\nX: y\r\n" + HELLO,),
        body=b"hello",
        fields={b"x-up": [], b"keep-alive": [], b"connection": [], b"x": [b"y"]},
        reuses=False,
    ),
    "C04 a named field that is not its": Case(
        (OK + b"Connection: Content-Length, Date\r\nDate: now\r\n" + HELLO,),
        body=b"hello",
        fields={b"content-length": [b"5"], b"date": [b"now"]},
    ),
    "C03 hop by hop": Case(
        (
            OK + b"Upgrade: h2c\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\n"
            b"TE: gzip\r\nTrailer: X\r\n" + HELLO,
        ),
        body=b"hello",
        fields={
            name: []
            for name in (b"upgrade", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer")
        },
    ),
    "C10 other bytes": Case(
        (OK + b"X: \xe9\r\nY: \xff\xfe\r\nZ: \xc3\xa9\r\n" + HELLO,),
        body=b"hello",
        fields={b"x": [b"\xe9"], b"y": [b"\xff\xfe"], b"z": [b"\xc3\xa9"]},
    ),
    "C11 nothing, and blanks": Case(
        (OK + b"X:\r\nY: \ta  b\t \r\n" + HELLO,),
        body=b"hello",
        fields={b"x": [b""], b"y": [b"a  b"]},
    ),
    "C19 cookies": Case(
        (
            OK + b"Set-Cookie: a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT\r\nSet-Cookie: b=2\r\n"
            b"X: y\r\nset-cookie: a=3\r\n" + HELLO,
        ),
        body=b"hello",
        fields={b"set-cookie": [b"a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT", b"b=2", b"a=3"]},
    ),
    "C20 its own words": Case(
        (OK + b"Server: x\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" + HELLO,),
        body=b"hello",
        fields={
            b"server": [b"x"],
            b"date": [b"Thu, 01 Jan 2026 00:00:00 GMT"],
            b"content-type": [],
            b"via": [],
        },
    ),
    "C20 no words": Case((OK + HELLO,), body=b"hello", fields={b"server": [], b"content-type": []}),
    "C21 a place inside": Case(
        (b"HTTP/1.1 302 Found\r\nLocation: http://internal:8080/x\r\n" + EMPTY,),
        status=302,
        fields={b"location": [b"http://internal:8080/x"]},
    ),
    "C25 limits of its own": Case(
        (b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nX-RateLimit-Limit: 3\r\n" + HELLO,),
        status=429,
        body=b"hello",
        fields={b"retry-after": [b"7"], b"x-ratelimit-limit": [b"3"]},
    ),
    "D26 a coding that is not there": Case(
        (OK + b"Content-Encoding: gzip\r\n" + HELLO,),
        body=b"hello",
        fields={b"content-encoding": [b"gzip"], b"content-length": [b"5"]},
    ),
    "P44 a coding that is there": Case(
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",),
        body=b"\x1f\x8b\x08\x00",
        fields={b"content-encoding": [b"gzip"], b"content-length": [b"4"]},
    ),
    "D29 fields that are there twice": Case(
        (OK + b"Content-Type: a/b\r\nServer: x\r\nContent-Type: c/d\r\nServer: y\r\n" + HELLO,),
        body=b"hello",
        fields={b"content-type": [b"a/b", b"c/d"], b"server": [b"x", b"y"]},
    ),
    "a length with zeros": Case(
        (OK + b"Content-Length: \t 005 \r\n\r\nhello",),
        body=b"hello",
        fields={b"content-length": [b"5"]},
    ),
}

INTERIM: Final = {
    **{
        f"D18 {count} hints": Case(
            (HINT * count + OK + HELLO,), body=b"hello", interim=(103,) * count
        )
        for count in (1, 5, 16)
    },
    "P27 a hint, then a pause": Case(
        (HINT, Pause(0.02), OK + HELLO), body=b"hello", interim=(103,)
    ),
    "D18 hints to HTTP/1.0": Case(
        (HINT * 5 + OK + HELLO,), GET_1_0, body=b"hello", keeps_alive=False
    ),
    "D19 a hint and no answer": Case(
        (HINT, End.FIN), status=502, body=_CLOSED, interim=(103,), reuses=False
    ),
    "D20 100 that nobody asked for": Case(
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + HELLO,), body=b"hello"
    ),
    "D20 102": Case(
        (b"HTTP/1.1 102 Processing\r\n\r\n" + OK + HELLO,), body=b"hello", interim=(102,)
    ),
    "D20 in this order": Case(
        (HINT + b"HTTP/1.1 102 Processing\r\n\r\n" + HINT + OK + HELLO,),
        body=b"hello",
        interim=(103, 102, 103),
    ),
    "D20 a length": Case(
        (b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + OK + HELLO,),
        body=b"hello",
        interim=(103,),
    ),
    "D21 hints without end": Case(
        (HINT * 10_000 + OK + HELLO,),
        status=502,
        body=_PROTOCOL,
        interim=(103,) * 16,
        reuses=False,
        pieces=False,
    ),
    "D22 another protocol": bad(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
    "D22 a protocol without a name": bad(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
}

_SUMMED: Final = OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n"
_TRAILED: Final = b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nX-Sum: 2\r\n\r\n"

TRAILERS: Final = {
    "D25 to who takes them": Case(
        (_SUMMED + _TRAILED,),
        WITH_TE,
        body=b"hello",
        fields={b"trailer": [b"X-Sum"], b"x-sum": [], b"content-length": []},
        trailers=((b"x-sum", b"1"), (b"x-sum", b"2")),
    ),
    "D25 streamed": Case(
        (_SUMMED, Pause(0.02), _TRAILED),
        WITH_TE,
        body=b"hello",
        fields={b"trailer": [b"X-Sum"], b"x-sum": []},
        trailers=((b"x-sum", b"1"), (b"x-sum", b"2")),
    ),
    "D25 not announced": Case(
        (CHUNKED + _TRAILED,),
        WITH_TE,
        body=b"hello",
        fields={b"trailer": []},
        trailers=((b"x-sum", b"1"), (b"x-sum", b"2")),
    ),
    "D25 to who does not": Case(
        (_SUMMED + _TRAILED,), body=b"hello", fields={b"trailer": [], b"x-sum": []}
    ),
    "D25 streamed to who does not": Case(
        (_SUMMED, Pause(0.02), _TRAILED), body=b"hello", fields={b"trailer": [], b"x-sum": []}
    ),
    "D25 to HTTP/1.0": Case(
        (_SUMMED + _TRAILED,),
        WITH_TE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        body=b"hello",
        fields={b"trailer": [], b"x-sum": []},
        keeps_alive=False,
    ),
    "D25 behind nothing": Case(
        (CHUNKED + b"0\r\nX-Sum: 1\r\n\r\n",), WITH_TE, trailers=((b"x-sum", b"1"),)
    ),
    "D25 none that may not be": Case(
        (
            CHUNKED + b"1\r\nx\r\n0\r\nHost: a\r\nSet-Cookie: a=1\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: close\r\nAuthorization: a\r\nX-Forwarded-For: a\r\n\r\n",
        ),
        WITH_TE,
        body=b"x",
    ),
    "a trailer that is no field": broken(
        CHUNKED + b"1\r\nx\r\n", Pause(0.02), b"0\r\nX : y\r\n\r\n", request=WITH_TE
    ),
    "trailers without end": broken(
        CHUNKED + b"1\r\nx\r\n", Pause(0.02), b"0\r\n" + b"X: y\r\n" * 10_000, request=WITH_TE
    ),
}

ANSWERS: Final = {**FRAMING, **LENGTHLESS, **HEADS, **FIELDS, **INTERIM, **TRAILERS}
