"""What costs the gateway work and says nothing: counted, however the bytes are cut."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gateway.proxy.client.http2.frame_meter import (
    IDLE_BURST,
    RESETS_BURST,
    RESETS_PER_S,
    UPDATES_BURST,
    FrameMeter,
)
from tests.http2 import PREFACE, block, data, frame, head, headers, rst, update

NOTHING = {
    "PING": frame(6, 0, 0, bytes(8)),
    "SETTINGS": frame(4, 0, 0),
    "PRIORITY": frame(2, 0, 1, bytes(5)),
    "unknown": frame(99, 0, 0, b"x"),
    "empty DATA": data(1),
    "empty CONTINUATION": frame(9, 0, 1),
}


def pieces(sent: bytes, size: int) -> Iterator[bytes]:
    """The bytes in pieces of up to a size; at random for 0."""
    chance = random.Random(size)
    at = 0
    while at < len(sent):
        step = size or chance.randrange(1, 40)
        yield sent[at : at + step]
        at += step


def is_in_head(meter: FrameMeter) -> bool:
    """Whether a head is amid."""
    return meter.is_in_head


def count(sent: bytes, size: int = 1 << 30) -> str:
    """What a new meter says."""
    meter = FrameMeter(0.0)
    for piece in pieces(PREFACE + sent, size):
        if kind := meter.count(piece, 0.0):
            return kind
    return ""


@pytest.mark.parametrize("size", [1 << 30, 1, 8, 9, 10, 0])
@pytest.mark.parametrize("one", NOTHING.values(), ids=NOTHING)
def test_frames_that_say_nothing(one: bytes, size: int) -> None:
    """As many as the burst, and no more, however they are cut."""
    burst = int(IDLE_BURST)
    if one[3] == 2:
        one = frame(2, 0, 1, b"\0\0\0\3\1")
    assert count(one * burst, size) == ""
    assert count(one * (burst + 1), size) == "http2_flood"


def test_frames_that_say_something() -> None:
    """Requests, bodies and the ends of bodies are no flood."""
    sent = headers(1, head()) + data(1, b"x") + data(1, b"", ends=True) + frame(7, 0, 0, bytes(8))
    assert count(sent * 5000) == ""


def test_resets() -> None:
    """Those of the client and those that it causes are counted together."""
    burst = int(RESETS_BURST)
    assert count(rst(1) * burst) == ""
    assert count(rst(1) * (burst + 1)) == "http2_resets"
    meter = FrameMeter(0.0)
    assert [meter.reset(0.0) for _ in range(burst + 1)] == [""] * burst + ["http2_resets"]


def test_allowances_grow_with_time() -> None:
    """What is left grows by so many per second, up to the burst."""
    burst, per_s = RESETS_BURST, RESETS_PER_S
    meter = FrameMeter(0.0)
    assert not any(meter.reset(0.0) for _ in range(int(burst)))
    assert not any(meter.reset(1.0) for _ in range(int(per_s)))
    assert meter.reset(1.0)
    meter = FrameMeter(0.0)
    assert not any(meter.reset(1e6) for _ in range(int(burst)))
    assert not meter.reset(2e6)


def test_window_updates() -> None:
    """Each byte that is sent allows for updates; without any, there is a burst."""
    burst = int(UPDATES_BURST)
    assert count(update(1, 1) * burst) == ""
    assert count(update(1, 1) * (burst + 1)) == "http2_flood"
    meter = FrameMeter(0.0)
    meter.sent(1 << 20)
    assert meter.count(PREFACE + update(1, 1) * 4000, 0.0) == ""


def test_priority_on_stream_0() -> None:
    """RFC 9113, section 6.3: an error of the connection."""
    assert count(frame(2, 0, 0, bytes(5))) == "http2_protocol"
    assert count(frame(2, 0, 1, bytes(5))) == ""


@pytest.mark.parametrize("size", [1 << 30, 1, 5, 0])
def test_heads_that_are_not_complete(size: int) -> None:
    """A head is amid from its first frame to the end of the last."""
    whole = block(head())
    meter = FrameMeter(0.0)
    for piece in pieces(PREFACE + frame(1, 1, 1, whole[:9]), size):
        meter.count(piece, 0.0)
    assert is_in_head(meter)
    for piece in pieces(frame(9, 0, 1, whole[9:20]), size):
        meter.count(piece, 0.0)
    assert is_in_head(meter)
    *rest, last = pieces(frame(9, 4, 1, whole[20:]), size)
    for piece in rest:
        meter.count(piece, 0.0)
        assert is_in_head(meter)
    meter.count(last, 0.0)
    assert not is_in_head(meter)
    assert meter.heads == 1
