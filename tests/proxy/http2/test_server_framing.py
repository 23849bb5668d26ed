"""The library behind the interface: events out of bytes, bytes out of commands.

A property: however the frames of valid streams are interleaved, and wherever the bytes are cut, the
same requests come out.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.http2.framing import (
    ENHANCE_YOUR_CALM,
    Field,
    FramingError,
)
from gateway.proxy.http2.server_framing import ServerFraming
from tests.http2 import PREFACE, block, frame, head, headers, interleaved, rst

HELLO = PREFACE + frame(4, 0, 0)


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[Field, ...]] = {}
        self.bodies: dict[int, bytes] = {}
        self.whole: set[int] = set()
        self.closed: dict[int, tuple[int, bool]] = {}
        self.pongs = 0
        self.end = -1

    def request_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Keep the head."""
        self.heads[stream] = fields
        self.bodies[stream] = b""
        if is_whole:
            self.whole.add(stream)

    def data_received_on(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Keep the piece."""
        self.bodies[stream] += data
        if is_last:
            self.whole.add(stream)

    def trailers_received(self, stream: int) -> None:
        """Keep the end."""
        self.whole.add(stream)

    def stream_closed(self, stream: int, code: int, *, is_by_peer: bool) -> None:
        """Keep the end."""
        self.closed[stream] = code, is_by_peer

    def ping_answered(self) -> None:
        """Count it."""
        self.pongs += 1

    def closed_by_frames(self, code: int) -> None:
        """Keep it."""
        self.end = code


def framing(sink: Sink) -> ServerFraming:
    """A connection that has begun."""
    one = ServerFraming(sink, 65_536, 100, 100)
    one.receive(HELLO)
    one.to_send()
    one.dispatch()
    return one


@given(
    bodies=st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=12),
    seed=st.integers(0, 2**32),
    cut=st.integers(1, 200),
)
def test_any_interleaving_gives_the_same_requests(
    bodies: list[bytes | None], seed: int, cut: int
) -> None:
    """Heads, bodies and ends of each stream are its own."""
    chance = random.Random(seed)
    sent = interleaved({2 * n + 1: body for n, body in enumerate(bodies)}, chance)
    sink = Sink()
    one = framing(sink)
    for at in range(0, len(sent), cut):
        one.receive(sent[at : at + cut])
    assert sink.end == -1
    assert sink.whole == set(sink.heads) == {2 * n + 1 for n in range(len(bodies))}
    for n, body in enumerate(bodies):
        assert dict(sink.heads[2 * n + 1])[b":path"] == b"/%d" % (2 * n + 1)
        assert sink.bodies[2 * n + 1] == (body or b"")


@given(st.binary(max_size=600), st.integers(0, 2**32), st.integers(1, 100))
def test_any_bytes_are_read_or_refused(noise: bytes, seed: int, cut: int) -> None:
    """Whatever comes, there is an event, an error or nothing; never another exception."""
    chance = random.Random(seed)
    sent = b""
    while noise:
        size = chance.randrange(1, 40)
        piece, noise = noise[:size], noise[size:]
        kind = chance.choice([0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, chance.randrange(256)])
        stream = chance.choice([0, 1, 1, 3, 3, 5, 2, chance.getrandbits(32)])
        if kind == 1 and chance.random() < 0.7:
            piece = block(head())
        sent += frame(kind, chance.choice([0, 1, 4, 5, chance.randrange(256)]), stream, piece)
    sink = Sink()
    one = framing(sink)
    try:
        for at in range(0, len(sent), cut):
            one.receive(sent[at : at + cut])
            for stream in list(sink.heads):
                one.respond(stream, [(b":status", b"200")], is_whole=False)
                one.send(stream, b"x")
                one.end(stream)
            while one.to_send():
                pass
            one.dispatch()
    except FramingError as error:
        one.goodbye(error.code)
    assert one.queued(1) >= 0


def test_commands_for_streams_that_are_over() -> None:
    """They do nothing: the client may have reset the stream a moment ago."""
    sink = Sink()
    one = framing(sink)
    one.receive(headers(1, head()) + rst(1))
    assert sink.closed == {1: (8, True)}
    before = one.to_send()
    one.respond(1, [(b":status", b"200")], is_whole=True)
    one.inform(1, [(b":status", b"103")])
    one.send(1, b"x")
    one.end(1)
    one.trail(1, [(b"x", b"y")])
    one.share(1)
    one.reset(99, 1)
    assert (before, one.to_send()) == (b"", b"")


def test_goodbye() -> None:
    """After it, nothing is read or sent; it names the last stream."""
    sink = Sink()
    one = framing(sink)
    one.receive(headers(5, head()))
    assert one.goodbye(11) == frame(7, 0, 0, b"\0\0\0\x05\0\0\0\x0b")
    one.receive(headers(7, head()))
    one.ping()
    assert (one.to_send(), list(sink.heads)) == (b"", [5])


def test_limits_end_the_connection() -> None:
    """What exceeds a limit of the library has the right error code."""
    one = framing(Sink())
    with pytest.raises(FramingError) as error:
        one.receive(frame(1, 1, 1, block(head())) + frame(9, 0, 1, block([("x", "y")])) * 20)
    assert error.value.code == ENHANCE_YOUR_CALM


def test_other_responses() -> None:
    """Interim responses, bodies and trailers are frames in this order."""
    sink: Any = Sink()
    one = framing(sink)
    one.receive(headers(1, head()))
    one.inform(1, [(b":status", b"103")])
    one.respond(1, [(b":status", b"200")], is_whole=False)
    one.send(1, b"hello")
    assert one.queued(1) == 5
    one.trail(1, [(b"x", b"y")])
    sent = one.to_send()
    one.dispatch()
    kinds = []
    while sent:
        kinds.append((sent[3], sent[4]))
        sent = sent[9 + int.from_bytes(sent[:3]) :]
    assert kinds == [(1, 4), (1, 4), (0, 0), (1, 5)]
    assert sink.closed == {1: (0, False)}
