"""Answers from bytes: framing, what has no body, and bytes that nobody asked for.

Every answer is read whole, byte by byte, and cut in two at every place, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import UpstreamClosedError, UpstreamError, UpstreamProtocolError
from gateway.proxy.http1.chunks import LONGEST_LINE, LONGEST_TRAILERS
from gateway.proxy.http1.grammar import MAX_FIELDS
from gateway.proxy.upstream.answer_reader import MAX_INFORMATIONAL, AnswerReader

MAX_HEAD = 4096
OK = b"HTTP/1.1 200 OK\r\n"


class Read:
    """What came of reading pieces of bytes."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        is_head: bool = False,
        eof: bool = False,
        max_head: int = MAX_HEAD,
    ) -> None:
        self.interim: list[tuple[bytes, bytes]] = []
        self.error: type[UpstreamError] | None = None
        self.reader = AnswerReader(max_head)
        self.reader.start(
            is_head=is_head,
            on_interim=lambda head: self.interim.append((head.status_line, head.fields)),
        )
        try:
            for piece in pieces:
                self.reader.feed(piece)
            if eof:
                self.reader.feed_eof()
        except UpstreamError as error:
            self.error = type(error)
        self.body = self.reader.take()

    @property
    def result(self) -> tuple[object, ...]:
        """All that can be seen of it."""
        reader = self.reader
        if self.error is not None:
            return (self.error,)
        state = (reader.has_head, reader.is_complete, reader.keeps_alive, reader.length)
        return (reader.status, reader.head, self.body, self.interim, reader.trailers, *state)


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The same bytes in different pieces."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def read(data: bytes, *, is_head: bool = False, eof: bool = False) -> Read:
    """Read bytes in every way; all ways must come to the same."""
    ways = [Read(pieces, is_head=is_head, eof=eof) for pieces in cuts(data)]
    for way in ways:
        assert way.result == ways[0].result
    return ways[0]


WHOLE = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", b"hello", 5),
    "length 0": (OK + b"Content-Length: 0\r\n\r\n", b"", 0),
    "chunks": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"hello",
        None,
    ),
    "chunks in capitals": (OK + b"TRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n", b"", None),
    "chunks with extensions": (
        OK + b'Transfer-Encoding: chunked\r\n\r\n5;a=b;c="d"\r\nhello\r\n0\r\n\r\n',
        b"hello",
        None,
    ),
    "trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Evil: 1\r\n\r\n",
        b"x",
        None,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", None),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\n\r\n", b"", 1234),
    "no reason": (b"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx", b"x", 1),
    "no reason and no space": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", b"x", 1),
    "a reason of other bytes": (
        b"HTTP/1.1 200 d\xe9j\xe0 vu\r\nContent-Length: 1\r\n\r\nx",
        b"x",
        1,
    ),
    "blanks around values": (OK + b"Content-Length: \t 1 \t \r\n\r\nx", b"x", 1),
}


@pytest.mark.parametrize(("data", "body", "length"), WHOLE.values(), ids=WHOLE)
def test_whole_answers(data: bytes, body: bytes, length: int | None) -> None:
    """An answer with a marked end is complete there, and the connection persists."""
    found = read(data)
    assert found.error is None
    assert found.reader.head.status_line.startswith(b"HTTP/1.1 %d " % found.reader.status)
    assert found.reader.is_complete
    assert found.reader.keeps_alive
    assert found.body == body
    assert found.reader.length == length
    assert b"evil" not in found.reader.head.fields.lower()


@pytest.mark.parametrize("data", [data for data, _, _ in WHOLE.values()], ids=WHOLE)
def test_whatever_follows_a_whole_answer_ends_the_connection(data: bytes) -> None:
    """Nonsense, an answer, or the beginning of one: it never becomes another request's answer."""
    wanted = read(data)
    for extra in (b"EXTRA", b"H", OK + b"X-Swallow: ", OK + b"Content-Length: 0\r\n\r\n", b"\x00"):
        found = read(data + extra)
        assert (found.error, found.body, found.reader.is_complete) == (None, wanted.body, True)
        assert found.reader.head == wanted.reader.head
        assert found.reader.status == wanted.reader.status
        assert not found.reader.keeps_alive, extra


BROKEN = {
    "length and chunks": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "one length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
    "a list of lengths": OK + b"Content-Length: 5, 5\r\n\r\n",
    "a length in words": OK + b"Content-Length: foo\r\n\r\n",
    "a line end before all": b"\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "LF for line ends": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "no blank behind the version": b"HTTP/1.1\t200 OK\r\nContent-Length: 0\r\n\r\n",
    "a reason in place of the status": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "a status and letters": b"HTTP/1.1 200OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a name in small letters": b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "DEL in a value": OK + b"X: \x7f\r\nContent-Length: 0\r\n\r\n",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "a length with a sign": OK + b"Content-Length: +1\r\n\r\n",
    "an empty length": OK + b"Content-Length: \r\n\r\n",
    "a length beyond 64 bits": OK + b"Content-Length: 18446744073709551616\r\n\r\n",
    "an unknown coding": OK + b"Transfer-Encoding: foo\r\n\r\n",
    "gzip and chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 99 x\r\n\r\n",
    "a status above all": b"HTTP/1.1 777 x\r\nContent-Length: 0\r\n\r\n",
    "a status below all": b"HTTP/1.1 099 x\r\n\r\n",
    "HTTP/9.9": b"HTTP/9.9 200 OK\r\n\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "ICY": b"ICY 200 OK\r\n\r\n",
    "a bare CR in a value": OK + b"Location: /a\rSet-Cookie: x\r\nContent-Length: 0\r\n\r\n",
    "a bare LF": OK + b"X: a\nY: b\r\nContent-Length: 0\r\n\r\n",
    "a NUL": OK + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a folded line": OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a blank in a name": OK + b"X Y: a\r\nContent-Length: 0\r\n\r\n",
    "a blank before the colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "a name of other bytes": OK + b"X\xe9: a\r\nContent-Length: 0\r\n\r\n",
    "no name": OK + b": a\r\nContent-Length: 0\r\n\r\n",
    "no colon": OK + b"Content-Length\r\n\r\n",
    "101 that nobody asked for": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
    ),
    "101 without a word": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a chunk without a size": OK + b"Transfer-Encoding: chunked\r\n\r\n\r\n",
    "a chunk size in words": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk size with a prefix": OK
    + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": OK + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    "a chunk size with a blank": OK + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "a chunk size that ends in LF": OK + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "a chunk that ends in LF": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    "a chunk extension with a NUL": OK
    + b"Transfer-Encoding: chunked\r\n\r\n5;\x00\r\nhello\r\n0\r\n\r\n",
    "a trailer without a name": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n: x\r\n\r\n",
    "a trailer with a NUL": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: \x00\r\n\r\n",
    "a chunk longer than its size": OK
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_answers_that_cannot_be_read_in_one_way(data: bytes) -> None:
    """They are refused, however they are cut."""
    assert read(data).error is UpstreamProtocolError


HEADS = {
    "length": OK + b"Content-Length: 1000\r\n\r\n",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n",
    "neither": OK + b"X: y\r\n\r\n",
}


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS)
def test_an_answer_to_head_ends_with_its_head(data: bytes) -> None:
    """Whatever body it announces; and a body that comes all the same is dropped."""
    found = read(data, is_head=True)
    assert found.reader.is_complete
    assert found.reader.keeps_alive or b"X: y" in data
    with_body = read(data + b"5\r\nhello\r\n0\r\n\r\n", is_head=True)
    assert (with_body.error, with_body.body) == (None, b"")
    assert not with_body.reader.keeps_alive


UNENDED = {
    "no head": b"",
    "half a status line": b"HTTP/1.",
    "half a head": OK + b"Content-Le",
    "half a body": OK + b"Content-Length: 100\r\n\r\nhalf",
    "half a chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe",
    "no last chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "half a last chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "only an interim answer": b"HTTP/1.1 103 Early Hints\r\n\r\n",
}


@pytest.mark.parametrize("data", UNENDED.values(), ids=UNENDED)
def test_a_connection_that_ends_too_soon(data: bytes) -> None:
    """It is never taken for the end of the answer."""
    assert read(data, eof=True).error is UpstreamClosedError


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_body_that_ends_with_the_connection(version: bytes) -> None:
    """Without length and chunks, the end of the connection is the end of the body."""
    data = b"HTTP/" + version + b" 200 OK\r\nX: y\r\n\r\nhello"
    assert not read(data).reader.is_complete
    found = read(data, eof=True)
    assert (found.error, found.body, found.reader.is_complete) == (None, b"hello", True)
    assert not found.reader.keeps_alive


@pytest.mark.parametrize(
    ("line", "keeps_alive"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: X-Up, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_whether_the_connection_goes_on(line: bytes, keeps_alive: bool) -> None:
    """By version and `Connection` (RFC 9112, section 9.3)."""
    found = read(line + b"Content-Length: 1\r\n\r\nx")
    assert (found.body, found.reader.keeps_alive) == (b"x", keeps_alive)


def test_fields_of_one_connection_stay_behind() -> None:
    """Hop-by-hop fields and those that `Connection` names are left out, the rest is untouched."""
    found = read(
        OK + b"Set-Cookie: a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT\r\nX-Up: 1\r\n"
        b"Connection: X-Up, close\r\nKeep-Alive: timeout=5\r\nx-CuStOm:  \xff\xfe \r\n"
        b"Content-Type: a\r\nContent-Type: b\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n"
        b"Set-Cookie: b=2\r\nEmpty:\r\nContent-Length: 0\r\n\r\n"
    )
    lines = [line.rstrip(b" ") for line in found.reader.head.fields.split(b"\r\n")]
    assert lines == [
        b"",
        b"Set-Cookie: a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT",
        b"x-CuStOm:  \xff\xfe",
        b"Content-Type: a",
        b"Content-Type: b",
        b"Set-Cookie: b=2",
        b"Empty:",
        b"Content-Length: 0",
    ]
    assert not found.reader.head.has_date
    assert read(OK + b"date: x\r\nContent-Length: 0\r\n\r\n").reader.head.has_date


def test_interim_answers_come_before_the_final_one() -> None:
    """Each is reported with its own fields; none of them leaks into the final answer."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </%d>\r\n\r\n"
    found = read(
        hint % 1 + b"HTTP/1.1 100 Continue\r\n\r\n" + hint % 2 + OK + b"Content-Length: 1\r\n\r\nx"
    )
    assert found.interim == [
        (b"HTTP/1.1 103 Early Hints", b"\r\nLink: </1>"),
        (b"HTTP/1.1 100 Continue", b""),
        (b"HTTP/1.1 103 Early Hints", b"\r\nLink: </2>"),
    ]
    assert found.reader.head.status_line == b"HTTP/1.1 200 OK"
    assert found.reader.head.fields == b"\r\nContent-Length: 1"


def test_interim_answers_end_some_time() -> None:
    """There is a bound on them."""
    hint = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    final = OK + b"Content-Length: 0\r\n\r\n"
    assert Read([hint * MAX_INFORMATIONAL + final]).reader.is_complete
    assert Read([hint * (MAX_INFORMATIONAL + 1) + final]).error is UpstreamProtocolError


@pytest.mark.parametrize("line", [b"X: " + b"y" * 2 * MAX_HEAD, b"X: y\r\n" * MAX_HEAD])
@pytest.mark.parametrize("end", [b"", b"\r\nContent-Length: 0\r\n\r\n"])
def test_a_head_has_a_bound(line: bytes, end: bytes) -> None:
    """One field without end, many fields, all at once or one by one: all stop at the limit."""
    data = OK + line.removesuffix(b"\r\n") + end
    assert Read([data]).error is UpstreamProtocolError
    single = [data[at : at + 1] for at in range(len(data))]
    assert Read(single).error is UpstreamProtocolError


def test_the_limit_itself_is_allowed() -> None:
    """To the byte, and to the field."""
    fields = b"Content-Length: 0\r\nX: "
    head = OK + fields + b"y" * (MAX_HEAD - len(OK + fields))
    assert read(head + b"\r\n\r\n").reader.is_complete
    assert Read([head + b"y\r\n\r\n"]).error is UpstreamProtocolError
    lines = b"Content-Length: 0\r\n" + b"A:\r\n" * (MAX_FIELDS - 1)
    for more, error in ((b"", None), (b"A:\r\n", UpstreamProtocolError)):
        assert Read([OK + lines + more + b"\r\n"], max_head=1 << 20).error is error


@pytest.mark.parametrize(
    "data",
    [
        b"S",
        b"HTTP/2",
        b"HTTP/1.1 2000 OK\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        OK + b"X: \x00",
        OK + b"X: a\ry",
        OK + b"Content-Length : 5\r\n",
        OK + b" folded\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX : a\r\n",
    ],
)
def test_nobody_waits_for_the_rest_of_what_cannot_be_valid(data: bytes) -> None:
    """It is refused with the first byte that shows it, not when time is over."""
    assert read(data).error is UpstreamProtocolError


TRAILERS = OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\nx\r\n0\r\n"


def test_trailers_stay_behind_the_body() -> None:
    """They are distinguished from the head, and so is their announcement."""
    found = read(TRAILERS + b"X-Sum: 1\r\nX-Sum: 2\r\n\r\n")
    assert (found.body, found.reader.is_complete, found.reader.keeps_alive) == (b"x", True, True)
    assert found.reader.trailers == b"\r\nX-Sum: 1\r\nX-Sum: 2"
    assert (found.reader.head.fields, found.reader.head.announced) == (b"", b"\r\nTrailer: X-Sum")


def test_trailers_have_a_bound() -> None:
    """In bytes and in number, all at once and one by one."""
    for line in (b"X: " + b"y" * LONGEST_TRAILERS, b"A:\r\n" * (MAX_FIELDS + 1)):
        data = TRAILERS + line + b"\r\n\r\n"
        assert Read([data]).error is UpstreamProtocolError
        single = [data[at : at + 1] for at in range(len(data))]
        assert Read(single).error is UpstreamProtocolError


def test_the_line_of_a_chunk_has_a_bound() -> None:
    """Extensions are dropped, and end some time."""
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    for excess in (0, 1):
        line = b"1;" + b"e" * (LONGEST_LINE - 4 + excess) + b"\r\n"
        data = head + line + b"x\r\n0\r\n\r\n"
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            found = Read(pieces)
            assert found.reader.is_complete == (not excess)
            assert found.error is (UpstreamProtocolError if excess else None)


@given(
    bodies=st.lists(st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=10),
)
def test_answers_one_after_the_other(bodies: list[tuple[bytes, bool]], sizes: list[int]) -> None:
    """A reader reads any number of answers, cut anyhow, each with its own body."""
    reader = AnswerReader(MAX_HEAD)
    turn = 0
    for number, (body, is_chunked) in enumerate(bodies):
        if is_chunked:
            framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            data = OK + b"Transfer-Encoding: chunked\r\nN: %d\r\n\r\n%b" % (number, framed)
        else:
            data = OK + b"N: %d\r\nContent-Length: %d\r\n\r\n%b" % (number, len(body), body)
        reader.start(is_head=False, on_interim=None)
        assert not reader.has_begun
        taken = b""
        while data:
            assert not reader.is_complete
            size = sizes[turn % len(sizes)]
            turn += 1
            reader.feed(data[:size])
            data = data[size:]
            assert reader.buffered == sum(map(len, reader.body))
            taken += reader.take()
        assert (taken, reader.is_complete, reader.keeps_alive) == (body, True, True)
        assert b"\r\nN: %d" % number in reader.head.fields
        assert reader.head.is_chunked == is_chunked


@given(st.binary(max_size=300), st.booleans())
def test_nothing_an_upstream_sends_is_more_than_an_error(data: bytes, is_head: bool) -> None:
    """Any bytes at all end in an answer, in waiting for more, or in an `UpstreamError`."""
    for start in (b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"):
        found = Read([start + data], is_head=is_head, eof=True)
        assert found.error is not None or found.reader.is_complete
