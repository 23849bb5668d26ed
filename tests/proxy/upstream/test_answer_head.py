"""The head of an answer: what goes on to the client, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import UpstreamProtocolError
from gateway.proxy.head import Header
from gateway.proxy.upstream.answer_head import (
    AnswerHead,
    answer_head,
    trailer_lines,
    without_length,
)

HOP_BY_HOP = (
    b"Connection",
    b"Keep-Alive",
    b"Proxy-Connection",
    b"Proxy-Authenticate",
    b"Proxy-Authorization",
    b"TE",
    b"Trailer",
    b"Upgrade",
    b"HTTP2-Settings",
)
TOKENS = st.text("abcXYZ-_019", min_size=1, max_size=12).map(str.encode)
NAMES = st.one_of(TOKENS, st.sampled_from([*HOP_BY_HOP, b"Host", b"Via", b"Date"]))
WORDS = st.binary(max_size=20).map(lambda data: bytes(b for b in data if b >= 32 and b != 127))


def test_the_head_of_an_answer() -> None:
    """Line for line as it was, without what concerns one connection only."""
    head = answer_head(
        b"HTTP/1.1 200 Fine\r\nServer: a\r\nConnection: close, X-Up\r\nX-Up: 1\r\n"
        b"Keep-Alive: timeout=5\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 5"
    )
    assert head == AnswerHead(
        b"HTTP/1.1 200 Fine",
        b"\r\nServer: a\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 5",
        5,
        is_chunked=False,
        has_date=False,
        status=200,
        keeps_alive=False,
        announced=b"",
    )
    assert without_length(head.fields) == (b"\r\nServer: a\r\nset-cookie: a=1\r\nSet-Cookie: b=2")


@pytest.mark.parametrize(
    ("line", "length"),
    [
        (b"Content-Length: 5", 5),
        (b"content-length:5", 5),
        (b"Content-Length: \t 005 \t", 5),
        (b"X-Content-Length: 5", None),
        (b"X: a\r\nContent-Length: 0", 0),
    ],
)
def test_a_length_has_one_spelling(line: bytes, length: int | None) -> None:
    """Whatever zeros and blanks the upstream wrote, clients see the number."""
    head = answer_head(b"HTTP/1.1 200 OK\r\n" + line)
    assert head.length == length
    if length is not None:
        assert head.fields.lower().endswith(b"content-length: %d" % length) or (
            head.fields.endswith(b":%d" % length)
        )
        assert b"005" not in head.fields


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_the_version_of_an_answer_is_the_gateways(version: bytes) -> None:
    """Each hop speaks for itself (RFC 9110, section 2.5)."""
    head = answer_head(version + b" 200 OK\r\nConnection: upgrade\r\nDate: x")
    assert head.status_line == b"HTTP/1.1 200 OK"
    assert (head.fields, head.status, head.has_date) == (b"\r\nDate: x", 200, True)
    assert head.keeps_alive == (version == b"HTTP/1.1")


@pytest.mark.parametrize(
    "block",
    [
        b"HTTP/2.0 200 OK",
        b"HTTP/0.9 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: x",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000000000000",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_heads_that_say_nothing_certain(block: bytes) -> None:
    """They are refused each time, not only the first."""
    for _ in range(2):
        with pytest.raises(UpstreamProtocolError):
            answer_head(block)


@given(st.lists(st.tuples(NAMES, WORDS), max_size=12), st.lists(TOKENS, max_size=3))
def test_what_is_left_of_an_answers_head(headers: list[Header], named: list[bytes]) -> None:
    """Exactly the end-to-end lines, in order, whatever other lines there are."""
    framing = (b"content-length", b"transfer-encoding", b"connection")
    sent = [(n, v.strip(b" \t")) for n, v in headers if n.lower() not in framing]
    sent.append((b"Connection", b", ".join(named)))
    block = b"HTTP/1.1 200 OK" + b"".join(b"\r\n%b: %b" % each for each in sent)
    hop_by_hop = {name.lower() for name in HOP_BY_HOP} | {name.lower() for name in named}
    kept_always = {b"host", b"date", b"via"}
    expected = [each for each in sent if each[0].lower() not in hop_by_hop - kept_always]
    lines = answer_head(block).fields.split(b"\r\n")
    assert lines == [b"", *(b"%b: %b" % each for each in expected)]


@pytest.mark.parametrize(
    "name",
    [
        *HOP_BY_HOP,
        b"Content-Length",
        b"Transfer-Encoding",
        b"Host",
        b"set-cookie",
        b"Content-Type",
        b"CACHE-CONTROL",
        b"X-Forwarded-For",
    ],
)
def test_what_may_not_be_a_trailer(name: bytes) -> None:
    """It is left out, whatever other lines there are."""
    section = b"\r\nX: 1\r\n%b: y\r\nX: 2" % name
    assert trailer_lines(section) == b"X: 1\r\nX: 2\r\n"


def test_the_trailers_that_are_announced() -> None:
    """Those that may be, of a body that can have some."""
    lines = b"HTTP/1.1 200 OK\r\nTrailer: A, Content-Length\r\ntrailer:, B\r\n"
    assert answer_head(lines + b"Transfer-Encoding: chunked").announced == b"\r\nTrailer: A, B"
    assert answer_head(lines + b"Content-Length: 1").announced == b""
