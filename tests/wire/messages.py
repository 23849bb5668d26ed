"""Messages of every kind, made by hypothesis: what they leave behind must be nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

_LINES: Final = (
    *(b"X-Own: 1", b"X_Own: 2", b"X-Empty:", b"Authorization: a", b"Cookie: a=b", b"X-API-Key: k"),
    *(b"X-Forwarded-For: 6.6.6.6", b"X_Forwarded_For: 6.6.6.6", b"Content-Encoding: gzip"),
    *(b"Content-Type: text/plain", b"TE: trailers", b"Connection: X-Own", b"Via: 1.1 other"),
)
_REQUEST_LINES: Final = (
    *_LINES,
    *(b"Connection: close", b"Connection: keep-alive", b"Expect: 100-continue", b"Expect: other"),
    *(b"Connection: Upgrade\r\nUpgrade: websocket", b"Connection: Upgrade\r\nUpgrade: h2c"),
    *(b"Max-Forwards: 0", b"Host: b.test", b"Transfer-Encoding: gzip", b"Content-Length: x"),
    *(b"X: " + b"x" * 20_000, b"Bad Name: x", b"Sec-WebSocket-Key1: x", b"Content-Length: 0"),
)
TRAILERS: Final = (
    *_LINES,
    *(b"X-Last: 2", b"X_Last: 3", b"Host: evil.test", b"Expect: 100-continue", b"Trailer: X"),
    *(b"Upgrade: websocket", b"Connection: close", b"Proxy-Connection: x", b"Via: 1.1 sluice"),
)
_BAD_TRAILERS: Final = (b"Content-Length: 5", b"Transfer-Encoding: chunked", b"No Name: x", b": x")
_METHODS: Final = (
    *(b"GET", b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"PROPFIND", b"M-SEARCH"),
    *(b"BAN", b"get", b"TRACE"),
)
_PATHS: Final = (b"/free", b"/free", b"/spent", b"/./free", b"/free%2", b"/missing/x")
_EXTENSIONS: Final = (b"", b"", b";a", b';a="b"', b";", b" ;a", b"; a=b")


@dataclass(frozen=True)
class Message:
    """A request or an answer.

    Attributes:
        head: up to the empty line; the target of a request has `NAME` for a name.
        body: what follows, framed.
    """

    head: bytes
    body: bytes

    @property
    def method(self) -> bytes:
        """Of its first line."""
        return self.head.partition(b" ")[0]

    def named(self, name: bytes) -> bytes:
        """All its bytes, with a query to recognise it by."""
        return self.head.replace(b"NAME", name) + self.body


@st.composite
def chunked(draw: st.DrawFn, *, is_right: bool = False) -> bytes:
    """A body in chunks, with trailers; seldom one that is wrong."""
    right, any_kind = st.just(True), st.sampled_from((True, True, False))
    extensions = _EXTENSIONS[: 4 if draw(right if is_right else any_kind) else None]
    names = TRAILERS + (() if draw(right if is_right else any_kind) else _BAD_TRAILERS)
    body = b""
    for size in [*draw(st.lists(st.integers(1, 20), max_size=3)), 0]:
        body += b"%x%b\r\n" % (size, draw(st.sampled_from(extensions)))
        if size:
            body += b"d" * size + b"\r\n"
    trailers = draw(st.lists(st.sampled_from(names), max_size=3))
    return body + b"".join(line + b"\r\n" for line in trailers) + b"\r\n"


@st.composite
def _requests(draw: st.DrawFn, *, is_right: bool) -> Message:
    methods, paths, lines = (
        (_METHODS[:3], _PATHS[:3], _LINES) if is_right else (_METHODS, _PATHS, _REQUEST_LINES)
    )
    head = [
        b"%b %b?NAME HTTP/1.%d"
        % (
            draw(st.sampled_from(methods)),
            draw(st.sampled_from(paths)),
            1 if is_right else draw(st.sampled_from((1, 1, 1, 0))),
        ),
        b"Host: a.test",
        *draw(st.lists(st.sampled_from(lines), max_size=2, unique=True)),
    ]
    body = b""
    kind = draw(st.sampled_from(("none", "length", "chunks", "chunks")))
    if kind == "length":
        body = b"b" * draw(st.integers(0, 30))
        head.append(b"Content-Length: %d" % len(body))
    elif kind == "chunks":
        body = draw(chunked(is_right=is_right))
        head.append(b"Transfer-Encoding: chunked")
    return Message(b"\r\n".join(head) + b"\r\n\r\n", body)


def requests() -> st.SearchStrategy[Message]:
    """Requests; two of three are right, so that many have another behind them."""
    return st.one_of(*(_requests(is_right=is_right) for is_right in (True, True, False)))


@st.composite
def answers(draw: st.DrawFn) -> Message:
    """An answer of an upstream, after which its connection goes on."""
    interim = draw(st.sampled_from((b"", b"", b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n")))
    status = draw(st.sampled_from((b"200 OK", b"200 OK", b"204 None", b"304 Same", b"500 Oh")))
    lines = [
        b"HTTP/1.1 " + status,
        *draw(st.lists(st.sampled_from((*_LINES, b"Set-Cookie: a", b"Date: x")), max_size=2)),
    ]
    body = b""
    if status[:3] in (b"204", b"304"):
        pass
    elif draw(st.booleans()):
        body = b"b" * draw(st.integers(0, 30))
        lines.append(b"Content-Length: %d" % len(body))
    else:
        body = draw(chunked())
        lines += [b"Transfer-Encoding: chunked", b"Trailer: X-Last"]
    return Message(interim + b"\r\n".join(lines) + b"\r\n\r\n", body)
