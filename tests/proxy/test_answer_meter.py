"""What a response says of its cost, read on its way: forms, codings, and what cannot be read."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Final

import pytest

from gateway.proxy.answer_meter import (
    SPARE,
    AnswerMeter,
    EndedAnswer,
    readable_coding,
)
from gateway.proxy.upstream.answer_head import AnswerHead

USAGE = {"usage": {"total_tokens": 42}}
FIELD = "usage.total_tokens"
WHOLE = json.dumps({"choices": [{"text": "x" * 5000}], **USAGE}).encode()
EVENTS = (
    b"".join(
        b"data: %b\n\n" % json.dumps(one).encode()
        for one in ({"delta": "a"}, {"delta": "b", "usage": None}, USAGE)
    )
    + b"data: [DONE]\n\n"
)


class Kept:
    """A settlement that keeps what it is told."""

    def __init__(self) -> None:
        self.answer: EndedAnswer | None = None
        self.is_cut = False

    def settle(
        self,
        status: int,
        answer: Callable[[int], EndedAnswer],
        is_cut: bool,
    ) -> None:
        """As `Settlement.settle`."""
        self.is_cut = is_cut
        self.answer = answer(7)
        assert status == self.answer.status


def head_of(*lines: str) -> AnswerHead:
    """The head of a response with these fields."""
    fields = "".join(f"\r\n{line}" for line in lines).encode()
    return AnswerHead(b"HTTP/1.1 200 OK", fields, None, False, True, 200, True, b"")


def found(body: bytes, *lines: str, size: int = 100) -> dict[str, float]:
    """The numbers that are found in a body that comes in pieces."""
    kept = Kept()
    meter = AnswerMeter(kept.settle, [FIELD])
    meter.head(head_of(*lines))
    for at in range(0, len(body), size):
        meter.read(body[at : at + size])
    meter.trailers(b"X-Cost: 5\r\n")
    meter.end(200, len(body), 1_500_000, is_broken=False)
    assert not kept.is_cut
    assert kept.answer is not None
    assert kept.answer.fields.endswith(b"\r\nX-Cost: 5\r\n")
    assert (kept.answer.sent, kept.answer.duration_s, kept.answer.reserved) == (len(body), 1.5, 7)
    return dict(kept.answer.numbers)


JSON = "Content-Type: application/json"
STREAM = "content-type: text/event-stream; charset=utf-8"


READABLE: Final[list[tuple[bytes, list[str]]]] = [
    (WHOLE, [JSON]),
    (WHOLE, ["Content-Type: application/problem+json"]),
    (WHOLE, []),
    (EVENTS, [STREAM]),
    (EVENTS.replace(b"\n", b"\r\n"), [STREAM]),
    (b"\xef\xbb\xbf" + EVENTS, [STREAM]),
    (b'data: {"usage":\ndata: {"total_tokens": 42\ndata:}}\n\ndata: 1\n\n', [STREAM]),
    (b'data:{"pad": "' + b"x" * 400_000 + b'",' + WHOLE[1:] + b"\n\n", [STREAM]),
    (EVENTS.replace(b"data: ", b"event: usage\ndata:"), [STREAM]),
    (EVENTS.removesuffix(b"data: [DONE]\n\n").rstrip(), [STREAM]),
    (WHOLE + b"\n" + json.dumps(USAGE).encode(), ["Content-Type: application/x-ndjson"]),
    (gzip.compress(WHOLE), [JSON, "Content-Encoding: gzip"]),
    (gzip.compress(WHOLE[:99]) + gzip.compress(WHOLE[99:]), [JSON, "Content-Encoding: gzip"]),
    (gzip.compress(EVENTS), [STREAM, "Content-Encoding: GZIP"]),
    (zlib.compress(WHOLE), [JSON, "Content-Encoding: deflate"]),
    (WHOLE, [JSON, "Content-Encoding: identity"]),
]


@pytest.mark.parametrize("number", range(len(READABLE)))
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_what_can_be_read(number: int, size: int) -> None:
    """Whole, in events, in lines, and compressed."""
    body, lines = READABLE[number]
    assert found(body, *lines, size=size) == {FIELD: 42.0}


UNREADABLE: Final[list[tuple[bytes, list[str]]]] = [
    (WHOLE, [JSON, "Content-Encoding: br"]),
    (WHOLE, [JSON, "Content-Encoding: gzip, gzip"]),
    (WHOLE, [JSON, "Content-Encoding: gzip"]),
    (gzip.compress(WHOLE)[:50], [JSON, "Content-Encoding: gzip"]),
    (b"<html>usage</html>", ["Content-Type: text/html"]),
    (b"", [JSON]),
]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_what_cannot_be_read(number: int) -> None:
    """Nothing is found, and nothing breaks."""
    body, lines = UNREADABLE[number]
    assert found(body, *lines) == {}


def test_what_is_too_long() -> None:
    """A bomb is left alone at its bound."""
    bomb = gzip.compress(b" " * (8 * SPARE) + WHOLE)
    assert found(bomb, JSON, "Content-Encoding: gzip") == {}
    large = gzip.compress(b'{"text": "%b", ' % (b"some words; " * 60_000) + WHOLE[1:])
    assert found(large, JSON, "Content-Encoding: gzip") == {FIELD: 42.0}


@pytest.mark.parametrize(
    ("accepted", "wanted"),
    [
        ("gzip, deflate, br, zstd", "gzip"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip"),
        ("br", "identity"),
        ("gzip;q=0, br", "identity"),
        ("gzip; q=0.000", "identity"),
        ("x-gzip", "gzip"),
        ("not-gzip", "identity"),
        ("", "identity"),
    ],
)
def test_the_coding_is_one_that_can_be_read(accepted: str, wanted: str) -> None:
    """Of what the client accepts; all other fields stay."""
    lines = f"Host: a\r\naccept-encoding: {accepted}\r\nX-Accept-Encoding: br\r\n"
    told = readable_coding(lines.encode()).decode()
    assert told == f"Host: a\r\nAccept-Encoding: {wanted}\r\nX-Accept-Encoding: br\r\n"
    assert readable_coding(b"Host: a\r\n") == b"Host: a\r\n"
