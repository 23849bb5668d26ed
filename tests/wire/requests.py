"""What clients may send, and what must become of it: one line a case.

The names begin with the ids of the cases as the project counts them: A for framing, B for the
request line, C for header fields, P for reports about other servers and proxies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = b"Host: a.test\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: hidden.test\r\n\r\n"
END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Asked:
    """A request that the origin must see.

    Attributes:
        line: method and target.
        body: without chunks.
        fields: values of fields that it must have; none for those that it must not.
    """

    line: str = "GET /"
    body: bytes = b""
    fields: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        sent: what the client sends, on one connection.
        statuses: of the answers that it gets, in order.
        seen: the requests that the origin sees, in order.
        closes: whether the connection then ends.
        is_broken_off: whether the origin may see the beginning of one more request.
        ends: whether the client ends its side behind what it sends.
    """

    sent: bytes
    statuses: tuple[int, ...] = (200,)
    seen: tuple[Asked, ...] = (Asked(),)
    closes: bool = False
    is_broken_off: bool = False
    ends: bool = False


def refused(sent: bytes, status: int = 400, *, is_broken_off: bool = False) -> Case:
    """A request that is none: one answer, the end, and nothing at the origin."""
    return Case(sent, (status,), (), closes=True, is_broken_off=is_broken_off)


def answered(sent: bytes, status: int) -> Case:
    """A request that can be read but not served here; the next on the connection is."""
    return Case(sent, (status,), ())


def served(sent: bytes, *seen: Asked) -> Case:
    """Requests that are all forwarded."""
    return Case(sent, (200,) * len(seen), seen)


def length(value: bytes, body: bytes = b"hello") -> bytes:
    """A POST with this for its length."""
    return POST + b"Content-Length:" + value + b"\r\n\r\n" + body


def coding(line: bytes, more: bytes = b"") -> bytes:
    """A POST with this line for its transfer coding, and one chunked body."""
    return POST + line + b"\r\n" + more + b"\r\n" + END


def chunks(body: bytes) -> Case:
    """A body in chunks that are none: the request may have begun at the origin, never ended."""
    return refused(CHUNKED + body + HIDDEN, is_broken_off=True)


def fields(*lines: bytes) -> bytes:
    """A GET with these lines."""
    return GET + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def none_of(*names: str) -> dict[str, list[str]]:
    """For `Asked.fields`: none of these is there."""
    return {name: [] for name in names}


def line(first: bytes) -> bytes:
    """A request with this for its first line."""
    return first + b"\r\n" + HOST + b"\r\n"


def host(value: bytes) -> bytes:
    """A GET for this host."""
    return b"GET / HTTP/1.1\r\nHost: " + value + b"\r\n\r\n"


FRAMING: dict[str, Case] = {
    "A01 a length and chunks": refused(
        coding(b"Content-Length: 6\r\nTransfer-Encoding: chunked") + b"X"
    ),
    "A01 an empty coding and a length": refused(
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding:\r\nContent-Length: 3\r\n\r\nabc"
    ),
    "A01 chunks and a length": refused(
        coding(b"Transfer-Encoding: chunked\r\nContent-Length: 6") + b"X"
    ),
    "A02 two lengths": refused(length(b" 5\r\nContent-Length: 6")),
    "A03 one length twice": refused(length(b" 5\r\nContent-Length: 5")),
    "A03 a list of lengths": refused(length(b" 5, 5")),
    "A04 a plus": refused(length(b" +5")),
    "A04 a minus": refused(length(b" -5")),
    "A04 hexadecimal": refused(length(b" 0x5")),
    "A04 an underscore": refused(length(b" 5_0")),
    "A04 an exponent": refused(length(b" 5e0")),
    "A04 a fraction": refused(length(b" 5.0")),
    "A04 other digits": refused(length(b" \xef\xbc\x95")),
    "A05 two numbers": refused(length(b" 5 5")),
    "A05 a vertical tab behind": refused(length(b" 5\x0b")),
    "A05 a form feed before": refused(length(b"\x0c5")),
    "A06 an empty length": refused(length(b" ")),
    "A06 an empty length and one more": refused(length(b" \r\nContent-Length: 5")),
    "A06 one length and an empty one": refused(length(b" 5\r\nContent-Length: ")),
    "A07 2^64": refused(length(b" 18446744073709551616")),
    "A07 2^64 - 1": refused(length(b" 18446744073709551615")),
    "A07 400 digits": refused(length(b" " + b"9" * 400)),
    "A07 leading zeros": served(
        length(b" 00000000000000000005"),
        Asked("POST /", b"hello", {"Content-Length": ["5"]}),
    ),
    "A08 xchunked": refused(coding(b"Transfer-Encoding: xchunked")),
    "A08 chunked123": refused(coding(b"Transfer-Encoding: chunked123")),
    "A08 chunKed-": refused(coding(b"Transfer-Encoding: chunKed-")),
    "A08 in quotes": refused(coding(b'Transfer-Encoding: "chunked"')),
    "A08 no coding": refused(coding(b"Transfer-Encoding:")),
    "A08 upper case": served(coding(b"TRANSFER-ENCODING: CHUNKED"), Asked("POST /")),
    "A09 chunked, identity": refused(coding(b"Transfer-Encoding: chunked, identity")),
    "A09 identity": refused(coding(b"Transfer-Encoding: identity")),
    "A09 chunked, gzip": refused(coding(b"Transfer-Encoding: chunked, gzip")),
    "A09 gzip": refused(coding(b"Transfer-Encoding: gzip")),
    "A09 gzip, chunked": refused(coding(b"Transfer-Encoding: gzip, chunked"), 501),
    "A09 deflate and chunked": refused(
        coding(b"Transfer-Encoding: deflate\r\nTransfer-Encoding: chunked"), 501
    ),
    "A09 deflate, other lines and chunked": refused(
        coding(b"transfer-encoding: deflate\r\nX: y\r\nTRANSFER-ENCODING:\tchunked \r\nY: z"), 501
    ),
    "A09 chunked and deflate": refused(
        coding(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: deflate")
    ),
    "A09 deflate and chunked and a length": refused(
        coding(b"Transfer-Encoding: deflate\r\nTransfer-Encoding: chunked\r\nContent-Length: 5")
    ),
    "A10 two lines": refused(coding(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")),
    "A10 chunked, chunked": refused(coding(b"Transfer-Encoding: chunked, chunked")),
    "A11 chunks in HTTP/1.0": refused(
        b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + END
    ),
    "A12 a blank before the colon": refused(coding(b"Transfer-Encoding : chunked")),
    "A12 a tab before the colon": refused(coding(b"Transfer-Encoding\t: chunked")),
    "A12 a blank before the first field": refused(
        b"POST / HTTP/1.1\r\n Transfer-Encoding: chunked\r\n" + HOST + b"\r\n" + END
    ),
    "A12 a backslash": refused(coding(b"Transfer\\Encoding: chunked")),
    "A13 a vertical tab": refused(coding(b"Transfer-Encoding:\x0bchunked")),
    "A13 NEL": refused(coding(b"Transfer-Encoding:\x85chunked")),
    "A13 NBSP": refused(coding(b"Transfer-Encoding:\xa0chunked")),
    "A13 a Kelvin sign": refused(coding(b"Transfer-Encoding: chun\xe2\x84\xaaed")),
    "A14 a bare CR": refused(coding(b"Foo: x\rTransfer-Encoding: chunked")),
    "A14 a bare LF": refused(coding(b"Foo: x\nTransfer-Encoding: chunked")),
    "A14 LF for the line": refused(b"GET / HTTP/1.1\n" + HOST + b"\r\n"),
    "A14 LF for the end": refused(GET + b"\n" + HIDDEN),
    "A14 LF everywhere": refused(b"GET / HTTP/1.1\nHost: a.test\n\n"),
    "A14 CR CR LF": refused(b"GET / HTTP/1.1\r\nX: a\r\r\n" + HOST + b"\r\n"),
    "A15 0x5": chunks(b"0x5\r\nhello\r\n" + END),
    "A15 +5": chunks(b"+5\r\nhello\r\n" + END),
    "A15 -5": chunks(b"-5\r\nhello\r\n" + END),
    "A15 a blank behind": chunks(b"5 \r\nhello\r\n" + END),
    "A15 a blank before": chunks(b" 5\r\nhello\r\n" + END),
    "A15 a tab behind": chunks(b"5\t\r\nhello\r\n" + END),
    "A15 an underscore": chunks(b"5_\r\nhello\r\n" + END),
    "A15 an empty line": chunks(b"\r\nhello\r\n" + END),
    "A15 no digits": chunks(b";ext\r\nhello\r\n" + END),
    "A15 LF behind": chunks(b"5\nhello\r\n" + END),
    "A15 letters": chunks(b"xyz\r\n"),
    "A16 17 digits": chunks(b"FFFFFFFFFFFFFFFFF\r\n"),
    "A16 two numbers": chunks(b"80000000 00000000\r\n"),
    "A16 17 digits that are few": chunks(b"00000000000000005\r\nhello\r\n" + END),
    "A17 more than its size": chunks(b"3\r\nabcdef\r\n" + END),
    "A17 other bytes for the line end": chunks(b"5\r\nhello??" + END),
    "A17 LF for the line end": chunks(b"5\r\nhello\n" + END),
    "A18 an extension": served(
        CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0;x=y\r\n\r\n',
        Asked("POST /", b"hello", {"Trailer": []}),
    ),
    **{
        f"A18 an extension that is none: {line.decode()}": chunks(line + b"\r\nhello\r\n" + END)
        for line in (
            b"5;",
            b"5;;a",
            b"5;a=",
            b"5;=b",
            b'5;a="b',
            b"5 ;a",
            b"5; a",
            b"5;a ",
            b"5;(a)",
        )
    },
    "A18 LF in an extension": chunks(b'5;a="x\ny"\r\nhello\r\n' + END),
    "A18 CR in an extension": chunks(b'5;a="x\ry"\r\nhello\r\n' + END),
    "A18 LF behind an extension": chunks(b"5;\nhello\r\n" + END),
    "A18 a long extension": chunks(b"5;a=" + b"b" * 10_000 + b"\r\nhello\r\n" + END),
    "A18 an extension without end": chunks(b"5;a=" + b"b" * 1_000_000),
    "A19 a trailer": served(
        CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        Asked("POST /", b"hello", {"X-Sum": []}),
    ),
    "A19 a trailer and the next request": served(
        CHUNKED + b"5\r\nhello\r\n0\r\nX-First: 1\r\nX-Last: 2\r\n\r\n" + fields(b"X-Own: 1"),
        Asked("POST /", b"hello", none_of("X-First", "X-Last")),
        Asked(fields={**none_of("X-First", "X-Last"), "X-Own": ["1"]}),
    ),
    "A19 trailers that a CGI reads as headers": served(
        CHUNKED + b"0\r\nX_API_Key: victim\r\nX_Forwarded_For: 6.6.6.6\r\n\r\n" + fields(),
        Asked("POST /", fields=none_of("X_API_Key", "X_Forwarded_For")),
        Asked(fields=none_of("X_API_Key", "X_Forwarded_For")),
    ),
    "A19 a coding named by a trailer": served(
        CHUNKED + b"0\r\nContent-Encoding: gzip\r\nX: y\r\n\r\n" + length(b" 5"),
        Asked("POST /", fields=none_of("Content-Encoding")),
        Asked("POST /", b"hello", none_of("Content-Encoding")),
    ),
    "A19 a trailer and bytes that are none": Case(
        CHUNKED + b"0\r\nX-Last: 2\r\n\r\n" + b"\x00",
        (200, 400),
        (Asked("POST /", fields=none_of("X-Last")),),
        closes=True,
    ),
    "A19 a length in the trailer": chunks(b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "A19 a coding in the trailer": chunks(b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "A19 a host in the trailer": served(
        CHUNKED + b"0\r\nX-Forwarded-Host: evil\r\nAuthorization: a\r\n\r\n",
        Asked("POST /", fields={"Authorization": [], "X-Forwarded-Host": ["a.test"]}),
    ),
    "A19 no name in the trailer": chunks(b"0\r\n: x\r\n\r\n"),
    "A20 many trailers": Case(
        CHUNKED + b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 5_000,
        (400,),
        (),
        closes=True,
        is_broken_off=True,
    ),
    "A20 a trailer without end": chunks(b"0\r\nX: " + b"y" * 1_000_000),
    "A22 GET with a body": served(
        GET + b"Content-Length: 5\r\n\r\nhello" + HIDDEN,
        Asked("GET /", b"hello", {"Content-Length": ["5"]}),
        Asked("GET /hidden"),
    ),
    "A23 a short body": Case(length(b" 10"), (), (), closes=True, is_broken_off=True, ends=True),
    "A24 a chunk that is cut": Case(
        CHUNKED + b"5\r\nhel", (), (), closes=True, is_broken_off=True, ends=True
    ),
    "A24 no last chunk": Case(
        CHUNKED + b"5\r\nhello\r\n", (), (), closes=True, is_broken_off=True, ends=True
    ),
    "A26 an expectation with a tail": refused(
        GET + b"Expect: 100-continue x\r\nContent-Length: 5\r\n\r\nhello", 417
    ),
    "A26 two expectations": refused(
        GET + b"Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", 417
    ),
    "A27 empty lines before": served(b"\r\n\r\n" + GET + b"\r\n", Asked()),
    "A27 an empty line between": served(
        length(b" 5") + b"\r\n" + HIDDEN, Asked("POST /", b"hello"), Asked("GET /hidden")
    ),
    "A27 many empty lines": refused(b"\r\n" * 100 + GET + b"\r\n"),
    "A27 LF before": refused(b"\n\n" + GET + b"\r\n"),
    "A27 CR before": refused(b"\r" + GET + b"\r\n"),
    "A28 a blank before the first field": refused(
        b"GET / HTTP/1.1\r\n Foo: x\r\n" + HOST + b"\r\n"
    ),
    "A29 Connection names the length": refused(
        coding(b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\nConnection: Content-Length")
    ),
    "A29 Connection names the one length": served(
        length(b" 5\r\nConnection: Content-Length"),
        Asked("POST /", b"hello", {"Content-Length": ["5"], "Connection": []}),
    ),
    "A29 Connection names the coding": served(
        POST
        + b"Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n\r\n1\r\na\r\n"
        + END,
        Asked("POST /", b"a"),
    ),
}

LINE: dict[str, Case] = {
    "B01 HTTP/1.2": refused(line(b"GET / HTTP/1.2"), 505),
    "B01 HTTP/2.0": refused(line(b"GET / HTTP/2.0"), 505),
    "B01 HTTP/0.9": refused(line(b"GET / HTTP/0.9"), 505),
    "B01 http/1.1": refused(line(b"GET / http/1.1")),
    "B01 HTTP/1.1x": refused(line(b"GET / HTTP/1.1x")),
    "B01 HTTP/11": refused(line(b"GET / HTTP/11")),
    "B01 HTTP/1.": refused(line(b"GET / HTTP/1.")),
    "B01 the preface of HTTP/2": refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "B02 no version": refused(line(b"GET /")),
    "B02 no version and nothing else": refused(b"GET /\r\n\r\n"),
    "B02 no version, and one at the end of the next line": refused(line(b"GET /a\nX:b HTTP/1.1")),
    "B02 the same with chunks": refused(
        line(b"GET /a\nX:b HTTP/1.0\r\nTransfer-Encoding: chunked") + END
    ),
    "B03 two blanks": refused(line(b"GET  / HTTP/1.1")),
    "B03 two blanks before the version": refused(line(b"GET /  HTTP/1.1")),
    "B03 a tab": refused(line(b"GET\t/ HTTP/1.1")),
    "B03 a blank behind": refused(line(b"GET / HTTP/1.1 ")),
    "B03 a tab behind": refused(line(b"GET / HTTP/1.1\t")),
    "B03 a blank in the target": refused(line(b"GET /a b HTTP/1.1")),
    "B03 a blank before": refused(line(b" GET / HTTP/1.1")),
    "B04 G@T": refused(line(b"G@T / HTTP/1.1")),
    "B04 NUL": refused(line(b"GET\x00 / HTTP/1.1")),
    "B04 ge t": refused(line(b"ge t / HTTP/1.1")),
    "B04 {}": refused(line(b"{} / HTTP/1.1")),
    "B04 no method": refused(line(b"/ HTTP/1.1")),
    "B04 get": refused(line(b"get / HTTP/1.1"), 501),
    "B04 Get": refused(line(b"Get / HTTP/1.1"), 501),
    "B05 FOO": refused(line(b"FOO / HTTP/1.1"), 501),
    "B05 BAN": refused(line(b"BAN / HTTP/1.1"), 501),
    "B05 PRI": refused(line(b"PRI / HTTP/1.1"), 501),
    "B05 a method of RTSP": refused(line(b"DESCRIBE / HTTP/1.1"), 501),
    "B05 20,000 letters": refused(line(b"A" * 20_000 + b" / HTTP/1.1"), 501),
    "B05 20,000 letters and no end": refused(b"A" * 20_000, 501),
    "B05 20,000 other bytes": refused(line(b"A@" * 10_000 + b" / HTTP/1.1")),
    "B05 PURGE": served(line(b"PURGE / HTTP/1.1"), Asked("PURGE /")),
    "B05 PROPFIND": served(line(b"PROPFIND / HTTP/1.1"), Asked("PROPFIND /")),
    "B05 M-SEARCH": served(line(b"M-SEARCH / HTTP/1.1"), Asked("M-SEARCH /")),
    "B06 64 KiB": refused(line(b"GET /" + b"x" * (64 << 10) + b" HTTP/1.1"), 414),
    "B06 1 MiB": refused(line(b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1"), 414),
    "B06 without end": refused(b"GET /" + b"x" * (1 << 20), 414),
    "B07 absolute": served(
        line(b"GET http://b.test/x?q HTTP/1.1"), Asked("GET /x?q", fields={"Host": ["b.test"]})
    ),
    "B08 another scheme": answered(line(b"GET https://a.test/ HTTP/1.1"), 400),
    "B08 no scheme of HTTP": answered(line(b"GET ftp://a.test/ HTTP/1.1"), 400),
    "B08 a user": answered(line(b"GET http://user:pw@a.test/ HTTP/1.1"), 400),
    "B08 no host": refused(line(b"GET http:///x HTTP/1.1")),
    "B09 OPTIONS *": served(line(b"OPTIONS * HTTP/1.1"), Asked("OPTIONS *")),
    "B09 OPTIONS of a host": served(line(b"OPTIONS http://a.test HTTP/1.1"), Asked("OPTIONS *")),
    "B10 GET *": refused(line(b"GET * HTTP/1.1")),
    "B10 OPTIONS */x": refused(line(b"OPTIONS */x HTTP/1.1")),
    "B10 a host": refused(line(b"GET a.test:80 HTTP/1.1")),
    "B10 a word": refused(line(b"GET admin HTTP/1.1")),
    "B10 a word and a path": refused(line(b"GET admin/a HTTP/1.1")),
    "B11 CONNECT host:port": refused(line(b"CONNECT a.test:443 HTTP/1.1") + HIDDEN, 405),
    "B11 CONNECT /": refused(line(b"CONNECT / HTTP/1.1") + HIDDEN),
    "B11 CONNECT a URL": refused(line(b"CONNECT http://a HTTP/1.1") + HIDDEN),
    "B11 CONNECT a host": refused(line(b"CONNECT a HTTP/1.1") + HIDDEN),
    "B12 TRACE": refused(fields(b"Cookie: a", b"Authorization: b").replace(b"GET", b"TRACE"), 405),
    "B13 Max-Forwards: 0": answered(fields(b"Max-Forwards: 0").replace(b"GET", b"OPTIONS"), 200),
    "B13 Max-Forwards: 1": served(
        fields(b"Max-Forwards: 1").replace(b"GET", b"OPTIONS"),
        Asked("OPTIONS /", fields={"Max-Forwards": ["0"]}),
    ),
    "B13 Max-Forwards: 010": served(
        fields(b"Max-Forwards: 010").replace(b"GET", b"OPTIONS"),
        Asked("OPTIONS /", fields={"Max-Forwards": ["9"]}),
    ),
    "B13 Max-Forwards: x": answered(fields(b"Max-Forwards: x").replace(b"GET", b"OPTIONS"), 400),
    "B13 Max-Forwards twice": refused(
        fields(b"Max-Forwards: 1", b"Max-Forwards: 2").replace(b"GET", b"OPTIONS")
    ),
    "B13 Max-Forwards with GET": served(
        fields(b"Max-Forwards: 0"), Asked(fields={"Max-Forwards": ["0"]})
    ),
    "B14 no host": refused(b"GET / HTTP/1.1\r\n\r\n"),
    "B15 one host twice": refused(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n"),
    "B15 two hosts": refused(fields(b"Host: b.test")),
    "B15 two hosts in other letters": refused(fields(b"hOsT: b.test")),
    "B16 empty": answered(host(b""), 400),
    "B16 a list": answered(host(b"a.test, b.test"), 400),
    "B16 a path": answered(host(b"a.test/x"), 400),
    "B16 a blank": answered(host(b"a b"), 400),
    "B16 a large port": answered(host(b"a.test:99999"), 400),
    "B16 no port": answered(host(b"a.test:8o"), 400),
    "B16 an open bracket": answered(host(b"[::1"), 400),
    "B16 a control character": refused(host(b"a.test\x02")),
    "B16 a user": answered(host(b"user@a.test"), 400),
    "B16 a dot": answered(host(b"."), 400),
    "B17 upper case": served(
        host(b"ROUTED.TEST"), Asked(fields={"X-Forwarded-Host": ["ROUTED.TEST"]})
    ),
    "B17 the default port": served(host(b"a.test:80"), Asked(fields={"Host": ["a.test:80"]})),
    "B17 a dot behind": served(host(b"a.test."), Asked()),
    "B17 an empty port": served(host(b"a.test:"), Asked()),
    "B18 HTTP/1.0 without a host": Case(b"GET / HTTP/1.0\r\n\r\n", closes=True),
    "B19 /%": answered(line(b"GET /% HTTP/1.1"), 400),
    "B19 /%1": answered(line(b"GET /%1 HTTP/1.1"), 400),
    "B19 /%zz": answered(line(b"GET /%zz HTTP/1.1"), 400),
    "B20 up and down": Case(line(b"GET /admin/../public HTTP/1.1"), (400,), ()),
    "B20 down and up": Case(line(b"GET /public/../admin HTTP/1.1"), (400,), ()),
    "B20 encoded dots": answered(line(b"GET /public/%2e%2e/admin HTTP/1.1"), 400),
    "B20 half encoded dots": answered(line(b"GET /public/.%2e/admin HTTP/1.1"), 400),
    "B20 dots with parameters": answered(line(b"GET /public/..;/admin HTTP/1.1"), 400),
    "B20 two slashes": answered(line(b"GET //admin HTTP/1.1"), 400),
    "B20 a dot": answered(line(b"GET /./admin HTTP/1.1"), 400),
    "B20 a backslash": answered(line(b"GET /public/..\\admin HTTP/1.1"), 400),
    "B20 an encoded letter": answered(line(b"GET /%61dmin HTTP/1.1"), 502),
    "B20 a dot behind": served(line(b"GET /public/. HTTP/1.1"), Asked("GET /public/.")),
    "B20 a dot behind a route": answered(line(b"GET /spoofed/. HTTP/1.1"), 400),
    "B20 dots behind a route": answered(line(b"GET /spoofed/x/.. HTTP/1.1"), 400),
    "B20 an encoded dot behind a route": answered(line(b"GET /spoofed/%2e HTTP/1.1"), 400),
    "B20 as it is": answered(line(b"GET /admin HTTP/1.1"), 502),
    "B21 an encoded slash and dots": answered(line(b"GET /public%2F..%2Fadmin HTTP/1.1"), 400),
    "B21 an encoded backslash": answered(line(b"GET /a%5C..%5Cadmin HTTP/1.1"), 400),
    "B21 an encoded NUL": answered(line(b"GET /a%00 HTTP/1.1"), 400),
    "B21 encoded line ends": answered(line(b"GET /a%0d%0aX HTTP/1.1"), 400),
    "B23 escapes": served(
        line(b"GET /a%3Ab?x=%2F&y=%20+%7E HTTP/1.1"), Asked("GET /a%3Ab?x=%2F&y=%20+%7E")
    ),
    "B23 raw": served(line(b"GET /a:b?x=[]{}| HTTP/1.1"), Asked("GET /a:b?x=[]{}|")),
    "B24 UTF-8": refused(line(b"GET /\xc3\xa9 HTTP/1.1")),
    "B24 other bytes": refused(line(b"GET /\xff HTTP/1.1")),
    "B25 NUL": refused(line(b"GET /a\x00b HTTP/1.1")),
    "B25 a control character": refused(line(b"GET /\x02 HTTP/1.1")),
    "B25 DEL": refused(line(b"GET /\x7f HTTP/1.1")),
    "B26 other letters": served(line(b"GET /ADMIN HTTP/1.1"), Asked("GET /ADMIN")),
}

FIELDS: dict[str, Case] = {
    "C01 named by Connection": served(
        fields(b"Connection: X-Foo", b"X-Foo: 1"),
        Asked(fields={"X-Foo": [], "Connection": []}),
    ),
    "C02 Connection: close, X-Forwarded-For": Case(
        fields(b"Connection: close, X-Forwarded-For", b"X-Forwarded-For: 6.6.6.6"),
        seen=(Asked(fields={"X-Forwarded-For": ["127.0.0.1"]}),),
        closes=True,
    ),
    "C02 Connection: Host": served(fields(b"Connection: Host"), Asked(fields={"Host": ["a.test"]})),
    "C02 Connection: Authorization": served(
        fields(b"Connection: Authorization", b"Authorization: a"),
        Asked(fields={"Authorization": ["a"]}),
    ),
    "C03 for one connection": served(
        fields(
            *(b"Keep-Alive: timeout=5", b"Proxy-Connection: keep-alive", b"TE: gzip"),
            *(b"Trailer: X", b"Upgrade: h2c", b"HTTP2-Settings: x", b"Proxy-Authorization: a"),
        ),
        Asked(
            fields=none_of(
                *("Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade"),
                *("HTTP2-Settings", "Proxy-Authorization", "Connection"),
            )
        ),
    ),
    "C05 NUL": refused(fields(b"X: a\x00b")),
    "C05 CR": refused(fields(b"X: a\rb")),
    "C05 a control character": refused(fields(b"X: a\x01b")),
    "C05 DEL": refused(fields(b"X: a\x7fb")),
    "C06 a blank in a name": refused(fields(b"Foo bar: x")),
    "C06 NUL in a name": refused(fields(b"Foo\x00: x")),
    "C06 brackets": refused(fields(b"F(oo): x")),
    "C06 no name": refused(fields(b": x")),
    "C06 no colon": refused(fields(b"Foo")),
    "C06 other bytes": refused(fields(b"F\xc3\xb6: x")),
    "C07 folded": refused(fields(b"X: a", b" b")),
    "C07 folded by a tab": refused(fields(b"X:", b"\tb")),
    "C08 many fields": refused(fields(*(b"X-%d: x" % n for n in range(10_000))), 431),
    "C08 a large field": refused(fields(b"X: " + b"x" * (64 << 10)), 431),
    "C08 a large head": refused(fields(*(b"X: " + b"x" * 1024 for _ in range(99))), 431),
    "C08 just within": served(
        fields(*(b"X: " + b"x" * 10_000 for _ in range(6))),
        Asked(fields={"X": ["x" * 10_000] * 6}),
    ),
    "C09 order": served(
        fields(b"X-A: 1", b"x-B: 2", b"X-A: 3"), Asked(fields={"X-A": ["1", "3"], "X-B": ["2"]})
    ),
    "C10 other bytes": served(fields(b"X: \xe9\xff\xfe"), Asked(fields={"X": ["\xe9\xff\xfe"]})),
    "C11 blanks": served(
        fields(b"X:", b"Y: \t a  b\tc \t"), Asked(fields={"X": [""], "Y": ["a  b\tc"]})
    ),
    "C12 X-Forwarded-For": served(
        fields(b"X-Forwarded-For: 1.2.3.4"), Asked(fields={"X-Forwarded-For": ["127.0.0.1"]})
    ),
    "C13 two lines": served(
        fields(b"X-Forwarded-For: a, , b", b"X-Forwarded-For: unknown"),
        Asked(fields={"X-Forwarded-For": ["127.0.0.1"]}),
    ),
    "C14 Forwarded": served(
        fields(b'Forwarded: for="[::1]";proto=https, for=x;host="a,b"'),
        Asked(fields={"Forwarded": ['for=127.0.0.1;host="a.test";proto=http']}),
    ),
    "C15 what a proxy says": served(
        fields(
            *(b"X-Forwarded-Proto: https", b"X-Forwarded-Host: evil", b"X-Forwarded-Port: 1"),
            *(b"X-Forwarded-Prefix: /x", b"X-Real-IP: 6.6.6.6", b"X-Original-URL: /admin"),
            *(b"X-Rewrite-URL: /admin", b"X-Forwarded-Ssl: on", b"X_Forwarded_Uri: /admin"),
            b"True-Client-IP: 6.6.6.6",
        ),
        Asked(
            fields={
                "X-Forwarded-Proto": ["http"],
                "X-Forwarded-Host": ["a.test"],
                **none_of(
                    *("X-Forwarded-Port", "X-Forwarded-Prefix", "X-Real-IP"),
                    *("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Ssl"),
                    *("X_Forwarded_Uri", "True-Client-IP"),
                ),
            }
        ),
    ),
    "C16 other marks": served(
        fields(
            *(b"X.Forwarded.For: evil", b"X~Real~IP: evil", b"X-Forwarded!Proto: https"),
            *(b"Content.Length: 5", b"Transfer'Encoding: chunked", b"Client.IP: evil"),
        ),
        Asked(
            fields={
                **none_of("X.Forwarded.For", "X~Real~IP", "X-Forwarded!Proto", "Client.IP"),
                **none_of("Content.Length", "Transfer'Encoding"),
                "X-Forwarded-Proto": ["http"],
            }
        ),
    ),
    "C16 underscores that shadow nothing": served(
        fields(b"X_Api_Key: a", b"content_type: b", b"_: c", b"X.y: d"),
        Asked(fields={"X_Api_Key": ["a"], "content_type": ["b"], "_": ["c"], "X.y": ["d"]}),
    ),
    "P httpoxy": served(fields(b"Proxy: http://evil.test"), Asked(fields=none_of("Proxy"))),
    "C16 underscores": served(
        fields(b"X_Forwarded_For: evil", b"Content_Length: 5", b"Transfer_Encoding: chunked"),
        Asked(fields={"X_Forwarded_For": [], "Content_Length": [], "Transfer_Encoding": []}),
    ),
    "C17 Via": served(
        fields(b"Via: 1.1 other"), Asked(fields={"Via": ["1.1 other", "1.1 sluice"]})
    ),
    "C18 nine were here": served(fields(*[b"Via: 1.1 sluice"] * 9), Asked()),
    "C18 ten were here": answered(fields(b"Via: " + b"1.1 sluice, " * 10), 508),
    "C18 ten others were here": served(fields(*[b"Via: 1.1 other"] * 10), Asked()),
    "C22 cookies": served(
        fields(b"Cookie: a=" + b"x" * 16_000, b"Cookie: b=2"),
        Asked(fields={"Cookie": ["a=" + "x" * 16_000, "b=2"]}),
    ),
    "C23 Range": served(
        fields(b"Range: bytes=0-1,5-6"), Asked(fields={"Range": ["bytes=0-1,5-6"]})
    ),
    "C24 an unknown expectation": refused(fields(b"Expect: foo"), 417),
    "C25 what a limiter says": served(
        fields(b"X-RateLimit-Remaining: 99", b"Retry-After: 1"),
        Asked(fields={"X-RateLimit-Remaining": ["99"], "Retry-After": ["1"]}),
    ),
    "C26 a script": answered(host(b"<script>"), 400),
    "C27 no coding is added": served(fields(), Asked(fields={"Accept-Encoding": [], "Accept": []})),
    "C27 codings stay": served(
        fields(b"Accept-Encoding: gzip"), Asked(fields={"Accept-Encoding": ["gzip"]})
    ),
    "C29 a compressed body": served(
        POST + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x1f\x8b\x08no gzip"[:-1],
        Asked("POST /", b"\x1f\x8b\x08no gzip"[:-1], {"Content-Encoding": ["gzip"]}),
    ),
}

REPORTS: dict[str, Case] = {
    "P01 gunicorn 3047": refused(
        CHUNKED + b"0_2e\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n" + END,
        is_broken_off=True,
    ),
    "P02 gunicorn 3144, NUL": refused(fields(b"Header: v\x00\ralue")),
    "P02 gunicorn 3144, LF": refused(fields(b"Useless:\n\nGET / HTTP/1.1")),
    "P03 tornado 3310": refused(fields(b"X: a\r\x00b")),
    "P04 aiohttp 7700, method": refused(line(b'G=":<>(e),[T];?" /get HTTP/1.1')),
    "P04 aiohttp 7700, version": refused(line(b"GET /test HTTP/1.32"), 505),
    "P05 aiohttp 7712": refused(line(b"GET ! HTTP/1.1")),
    "P06 aiohttp 10596": chunks(b"4\r\nHello\r\n" + END),
    "P07 werkzeug 2716": refused(length(b" +1_0", b"0123456789")),
    "P08 cheroot 714": refused(POST + b"Content-Length : 34\r\n\r\n" + HIDDEN),
    "P09 go 61679": refused(length(b" ", b"")),
    "P10 go 64517": chunks(b"\r\n\r\n"),
    "P11 go 65244": refused(b"GET / HTTP/1.1\r\n: ignored\r\nHost: x\r\n\r\n"),
    "P12 haproxy 2237": refused(length(b" \r\ncontent-length: 59", HIDDEN)),
    "P13 pound, -0x0": chunks(b"-0x0\r\n\r\n"),
    "P13 pound, blanks": chunks(b"           0\r\n\r\n"),
    "P13 pound, ,chunked": refused(coding(b"Transfer-Encoding: ,chunked\r\nContent-Length: 5")),
    "P13 pound, ,chunked alone": refused(coding(b"Transfer-Encoding: ,chunked"), 501),
    "P13 pound, CR": chunks(b"1\r0\n"),
    "P13 pound, too much": chunks(b"5\r\nAAAAAXXX\r\n0"),
    "P14 trafficserver 10580": chunks(b"1these-bytes-never-get-validated\r\nZ\r\n" + END),
    "P15 trafficserver 10477": chunks(b"2\r\r;a\r\nab\r\n" + END),
    "P16 trafficserver 10459": refused(fields(b"Header\x85: value")),
    "P17 openlitespeed 392": refused(
        coding(b"Content-Length: 0\r\nTransfer-Encoding: chunked") + HIDDEN
    ),
    "P18 tinyproxy 609": refused(coding(b"Content-Length: 5\r\nTransfer-Encoding: chunked")),
    "P19 sozu 726": refused(coding(b"transfer-encoding: chunked\t\r\ncontent-length: 60")),
    "P20 uhttpd 3, 0_0": chunks(b"0_0\r\n\r\n"),
    "P20 uhttpd 3, CR": chunks(b"\r0\r\n\r\n"),
    "P20 uhttpd 3, 0x1": chunks(b"0x1\r\na\r\n" + END),
    "P21 fasthttp 1703": refused(line(b"GET / HTTP/\r\r1.1")),
    "P22 daphne 497": refused(fields(b"\xefoo: bar")),
    "P23 cpython 114782": refused(fields(b"Visible: :/\rSmuggled: :)")),
    "P24 http-garden, transducer 21": served(
        GET + b"Content-Length: 10\r\n\r\n0123456789",
        Asked("GET /", b"0123456789", {"Content-Length": ["10"]}),
    ),
    "P25 http-garden, transducer 17": chunks(b"2\r\nab\r\n\r\n" + END),
    "P26 http-garden, other 3": Case(
        CHUNKED + END + b"\x00", (200, 400), (Asked("POST /"),), closes=True
    ),
    "P26 a request and bytes that are none": Case(
        GET + b"\r\n\x16\x03\x01", (200, 400), (Asked(),), closes=True
    ),
    "P26 three requests and one that is none": Case(
        (GET + b"\r\n") * 2 + length(b" 5") + line(b"GET  / HTTP/1.1") + HIDDEN,
        (200, 200, 200, 400),
        (Asked(), Asked(), Asked("POST /", b"hello")),
        closes=True,
    ),
    "P26 a request without a route and bytes that are none": Case(
        host(b"a.test/x") + b"\x00", (400, 400), (), closes=True
    ),
    "P31 express-http-proxy 554": served(
        GET + b"Transfer-Encoding: chunked\r\n\r\n" + END, Asked("GET /")
    ),
    "P32 lua-nginx-module 2281": Case(
        b"HEAD / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        seen=(Asked("HEAD /", HIDDEN),),
    ),
    "P34 escapes": served(
        b"".join(
            line(b"GET " + target + b" HTTP/1.1") for target in (b"/a%3Ab", b"/x%2Fb", b"/e%2520p")
        ),
        Asked("GET /a%3Ab"),
        Asked("GET /x%2Fb"),
        Asked("GET /e%2520p"),
    ),
    "P46 authentik 24165": served(
        length(b" 8", b"user=a&b") + CHUNKED + b"3\r\nuse\r\n5\r\nr=a&b\r\n" + END,
        Asked("POST /", b"user=a&b"),
        Asked("POST /", b"user=a&b"),
    ),
}

CASES = {**FRAMING, **LINE, **FIELDS, **REPORTS}
