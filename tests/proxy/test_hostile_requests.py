"""Requests made to be dear: what one costs goes by its bytes, and not by what they mean."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest
from multidict import CIMultiDict

from gateway.proxy import direct_responses as own_answers
from gateway.proxy import gate, head, request_head
from gateway.routing import escapes, keys, path, path_index, table
from gateway.routing.values import compile_read
from tests.proxy.wire import OK, Running, answering, running
from tests.work import counted

SHORT: Final = 300
"""Bytes of a path that is too long for its route to be remembered."""
ROOM: Final = 15_000
MODULES: Final = (
    *(gate, head, own_answers, request_head),
    *(escapes, keys, path, path_index, table),
)

PIECES: Final = (
    *("%41", "%2e", "%2E.", "%25", "%252e", "%2525", "%2F", "%2f", "%80", "%e4%bd%a0", "%C3%A9a"),
    *("%20", "%3f", "%5b", "%25/", "%2F/", "%25%32%66", "/", "//a", ";", ";a/", ".", ".a", "..a/"),
    *("a/", "=", "&", ",", "+", '"', "|"),
)


async def _lines(run: Running, target: bytes, *fields: bytes) -> int:
    """Lines that run for one request, after another like it."""
    request = b"".join((b"GET ", target, b" HTTP/1.1\r\nHost: a.test\r\n", *fields, b"\r\n"))
    client = await run.client()
    await client.ask(request)
    client = await run.client()
    with counted(*MODULES) as work:
        answer = await client.ask(request)
    assert answer.status in (200, 308, 400, 429)
    client.close()
    return work.lines


@pytest.mark.parametrize("piece", PIECES)
async def test_a_path_of_escapes_costs_what_its_bytes_do(tmp_path: Path, piece: str) -> None:
    """A thousand times as many pieces of a path take next to no step more."""
    redirect = {"to": "/new{path}", "status": 308}
    routes = {"/**": {"upstream": "u"}, "/to/**": {"redirect": redirect}}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, routes=routes) as run,
    ):
        for start in (b"/x", b"/to/x"):
            few = await _lines(run, start + piece.encode() * (SHORT // len(piece)))
            many = await _lines(run, start + piece.encode() * (ROOM // len(piece)))
            # Runs of slashes are halved again and again.
            assert many < few + 40


@pytest.mark.parametrize("piece", [b",", b", ", b"%", b"=", b"|", b"\xc3\xa9a", b"\xff", b'"'])
@pytest.mark.parametrize("name", [b"X-Key", b"Connection", b"Via", b"TE", b"Forwarded", b"Accept"])
async def test_a_field_of_separators_costs_what_its_bytes_do(
    tmp_path: Path, name: bytes, piece: bytes
) -> None:
    """A thousand times as many elements of a list, or characters to escape, cost so much more."""
    route = {"limit": "100/s per header:X-Key"}
    async with answering(OK) as upstream, running(tmp_path, upstream, route=route) as run:
        few = await _lines(run, b"/", b"%b: 1.1 sluice%b\r\n" % (name, piece * 4))
        field = b"%b: 1.1 sluice%b\r\n" % (name, piece * (ROOM // len(piece)))
        assert await _lines(run, b"/", field) < few + 40


class _Asked:
    """A request with one cookie line and the like for its query."""

    def __init__(self, text: str) -> None:
        self.headers = CIMultiDict({"cookie": text})
        self.query = text.replace(" ", "+")


def _cpu_s(word: str, text: str) -> float:
    """Seconds of this thread; the least of some tries."""
    read = compile_read(word)
    asked: Any = _Asked(text)
    spent: list[float] = []
    for _ in range(5):
        before = time.thread_time()
        read(asked)
        spent.append(time.thread_time() - before)
    return min(spent)


@pytest.mark.parametrize("piece", [" ", "\t", "; ", "_", ".", "[", "sid ", "sid=", 'sid="', "sid;"])
@pytest.mark.parametrize("word", ["cookie:sid", "cookie:_sid", "cookie:s.id", "query:sid"])
def test_no_run_of_characters_is_walked_for_each_of_them(word: str, piece: str) -> None:
    """Sixteen times as many cost no more than a hundred times as much of this thread's time."""
    few, many = (_cpu_s(word, "a=b; " + piece * (size // len(piece))) for size in (1_000, 16_000))
    assert many < 100 * max(few, 20e-6)
