"""What no upstream may bring about, for all that upstreams might send.

`make test` tries some hundred answers, `make fuzz` many more.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import h11
import httptools
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gateway.base.errors import UpstreamError
from gateway.proxy.upstream.answer_reader import AnswerReader
from tests.processes import Gateway
from tests.wire.answers import GET, HEAD, HELLO, OK
from tests.wire.judge import Heard, StrictClient
from tests.wire.mutations import changed_answers
from tests.wire.scripted import End, ScriptedOrigin, until

MAX_HEAD: Final = 128 * 1024
CUTS: Final = st.lists(st.integers(1, 40), min_size=1, max_size=8)


class Reading:
    """What the gateway's own reader makes of an answer, cut into pieces of these sizes."""

    def __init__(self, data: bytes, sizes: Sequence[int], *, is_head: bool, ends: bool) -> None:
        self.interim: list[int] = []
        self.error = ""
        self.reader = reader = AnswerReader(MAX_HEAD)
        reader.start(is_head=is_head, on_interim=lambda head: self.interim.append(head.status))
        turn = itertools.cycle(sizes)
        try:
            while data:
                size = next(turn)
                reader.feed(data[:size])
                data = data[size:]
            if ends:
                reader.feed_eof()
        except UpstreamError as error:
            self.error = error.kind
        self.body = reader.take()
        self.is_whole = reader.is_complete and not self.error

    @property
    def result(self) -> tuple[object, ...]:
        """All that can be seen of it."""
        if self.error:
            return (self.error,)
        reader = self.reader
        seen = (reader.status, reader.head, self.body, reader.trailers, self.interim)
        return (*seen, reader.has_head, reader.is_complete, reader.keeps_alive)


@given(changed_answers, CUTS, st.booleans(), st.booleans())
def test_it_is_the_same_in_any_pieces(
    data: bytes, sizes: list[int], is_head: bool, ends: bool
) -> None:
    """Nothing depends on how bytes were cut on their way, and nothing but errors is raised."""
    whole = Reading(data, [len(data) or 1], is_head=is_head, ends=ends)
    for cut in (sizes, [1]):
        assert Reading(data, cut, is_head=is_head, ends=ends).result == whole.result
    event(whole.error or ("complete" if whole.is_whole else "incomplete"))


@given(changed_answers, st.booleans(), st.booleans())
def test_others_read_the_same(data: bytes, is_head: bool, ends: bool) -> None:
    """What is accepted as a whole answer is the same answer to h11, and to llhttp as well."""
    ours = Reading(data, [len(data) or 1], is_head=is_head, ends=ends)
    trailers = ours.reader.trailers.lower()
    # Both take what trailers say of framing for what a head says, and refuse it.
    if not ours.is_whole or b"\r\ncontent-length:" in trailers or b"-encoding:" in trailers:
        return
    # Recipients accept blanks before a chunk extension (RFC 9112, section 7.1.1); h11 does not.
    if re.search(rb"\n[0-9A-Fa-f]+[ \t]+;", data):
        return
    theirs = read_with_h11(data, is_head=is_head)
    assert (theirs.status, theirs.body) == (ours.reader.status, ours.body)
    assert [status for status, _ in theirs.interim] == ours.interim
    assert theirs.is_whole
    if not is_head:
        assert read_with_llhttp(data) == (ours.reader.status, ours.body)


def read_with_h11(data: bytes, *, is_head: bool) -> Heard:
    """The answer to one request, at whose end the upstream closes."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    method = "HEAD" if is_head else "GET"
    parser.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(data)
    parser.receive_data(b"")
    heard = Heard()
    while not heard.is_whole:
        heard.note(parser.next_event())
    return heard


class LLHttp:
    """The first final answer that llhttp finds."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.body = b""
        self.is_whole = False

    def on_headers_complete(self) -> None:
        """A head."""
        if self.status < 200:
            self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """A piece of a body."""
        if not self.is_whole:
            self.body += data

    def on_message_complete(self) -> None:
        """The end of an answer, interim or final."""
        self.is_whole = self.status >= 200


def read_with_llhttp(data: bytes) -> tuple[int, bytes]:
    """Status and body; what comes behind the answer may be anything."""
    reading = LLHttp()
    try:
        reading.parser.feed_data(data)
    except httptools.HttpParserError:
        assert reading.is_whole
    return reading.status, reading.body


@pytest.fixture(scope="module")
def origin() -> Iterator[ScriptedOrigin]:
    """An upstream that says what an example says, and closes."""
    with ScriptedOrigin({"/canary": (OK + HELLO,)}) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(origin: ScriptedOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all examples; a traceback in its log fails the test."""
    running = Gateway.start(
        f"routes:\n  /**: {{ upstream: {origin.url} }}\n", tmp_path_factory.mktemp("gateway")
    )
    yield running
    running.stop()


# The fixtures serve all examples on purpose.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=changed_answers, cut=st.sampled_from(("whole", "random")), is_head=st.booleans())
def test_no_client_is_told_what_was_not_said(
    gateway: Gateway, origin: ScriptedOrigin, data: bytes, cut: str, is_head: bool
) -> None:
    """A client hears what a strict reading allows, 502, or something that breaks off."""
    strict = Reading(data, [len(data) or 1], is_head=is_head, ends=True)
    origin.scripts["/fuzz"] = (data, End.FIN)
    ended = len(origin.ended)
    with StrictClient(gateway.port) as client:
        origin.cut = cut
        heard = client.ask((HEAD if is_head else GET) % b"/fuzz")
        origin.cut = "whole"
        if heard.is_whole and not strict.is_whole:
            assert heard.status == 502
            assert is_head or json.loads(heard.body)["status"] == 502
        elif strict.is_whole:
            assert heard.is_whole
            assert (heard.status, heard.body) == (strict.reader.status, strict.body)
            assert [each for each, _ in heard.interim] == [s for s in strict.interim if s != 100]
        if heard.is_whole and heard.keeps_alive:
            # What comes behind an answer may come when it is over already.
            until(lambda: len(origin.ended) > ended)
            assert client.ask(GET % b"/canary").body == b"hello"
    event(str(heard.status) if heard.is_whole else "broken off")
