"""What workers and the limiter say: nothing is lost in it, wherever the stream is broken."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.shared import frames

MOST = 2**62
PLANS = (
    (Limit(5, 1_000_000, 5, scope="a"),),
    (
        Limit(7, 60_000_000, 20, max_wait_us=2_000_000, scope="b/header:x"),
        Limit(9, 86_400_000_000, 9, "fixed_window", scope="b/é", calendar="day", zone="Asia/Tokyo"),
        Limit(3, 30_000_000, 3, "concurrency", scope="b/at once"),
    ),
    (Limit(4, 1_000, 4, "sliding_window_log", scope="c", count_refused=True),),
)

keys = st.text(st.characters(), max_size=20)
amounts = st.integers(0, MOST)
decisions = st.builds(
    Decision,
    st.booleans(),
    *[st.integers(-1, MOST) for _ in range(5)],
    st.integers(-MOST, MOST),
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """A question about one of the plans."""
    limits = draw(st.sampled_from(PLANS))
    return Ask(limits, tuple(draw(keys) for _ in limits), draw(amounts), draw(amounts))


def content(frame: bytes, kind: int) -> bytes:
    """What is in a frame, which has to be one whole one of this kind."""
    (one,) = frames.Splitter().feed(frame)
    assert one[0] == kind
    return one[1:]


def plans() -> list[frames.FramePlan]:
    """All plans, as the limiter learns of them."""
    return [
        frames.decode_plan(content(frames.encode_plan(limits), frames.PLAN)) for limits in PLANS
    ]


def test_a_plan_arrives_as_it_was() -> None:
    """Every field of every limit; and which of them are held."""
    assert tuple(plan.limits for plan in plans()) == PLANS
    assert [plan.holding for plan in plans()] == [(), (2,), ()]


@given(st.lists(asks(), max_size=8), st.integers(0, MOST))
def test_asks_arrive_as_they_were(batch: list[Ask], not_after_us: int) -> None:
    """Keys to the last bit, even those that are no valid text, and any amounts."""
    known = plans()
    sent = frames.encode_asks(batch, PLANS.index, not_after_us)
    moment_us, found = frames.decode_asks(content(sent, frames.DECIDE), known)
    assert moment_us == not_after_us
    assert found == [(ask, known[PLANS.index(ask.limits)]) for ask in batch]


@given(st.data())
def test_verdicts_arrive_as_they_were(data: st.DataObject) -> None:
    """Each with its own decisions, whatever stands before it."""
    batch = data.draw(st.lists(asks(), max_size=8))
    verdicts = [combine([data.draw(decisions) for _ in ask.limits]) for ask in batch]
    sent = frames.encode_verdicts(verdicts)
    found = frames.decode_verdicts(content(sent, frames.VERDICTS), batch)
    assert [list(verdict.decisions) for verdict in found] == [
        list(verdict.decisions) for verdict in verdicts
    ]
    allowed = [verdict.allowed for verdict in verdicts]
    assert [verdict.allowed for verdict in found] == allowed


@given(asks(), st.data(), st.sampled_from([frames.GIVE_BACK, frames.RENEW]))
def test_what_is_undone_arrives_as_it_was(ask: Ask, data: st.DataObject, kind: int) -> None:
    """The ask, and the receipt of each of its limits."""
    verdict = Verdict(True, 0, 0, tuple(data.draw(decisions) for _ in ask.limits))
    sent = frames.encode_undo(kind, ask, verdict, PLANS.index)
    found, receipts, plan = frames.decode_undo(content(sent, kind), plans())
    assert (found, plan.limits) == (ask, ask.limits)
    assert [one.receipt for one in receipts.decisions] == [one.receipt for one in verdict.decisions]


@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_frames_come_out_whole_wherever_the_stream_is_broken(
    contents: list[bytes], data: st.DataObject
) -> None:
    """In any pieces, and byte by byte: each frame once, in order, as soon as it is whole."""
    stream = b"".join(frames.frame(7, each) for each in contents)
    expected = [b"\7" + each for each in contents]
    for cuts in (range(len(stream) + 1), data.draw(st.lists(st.integers(0, len(stream))))):
        splitter = frames.Splitter()
        edges = [0, *sorted(cuts), len(stream)]
        pieces = [stream[a:b] for a, b in pairwise(edges)]
        assert [one for piece in pieces for one in splitter.feed(piece)] == expected


@pytest.mark.parametrize("length", [0, frames.MAX_FRAME + 1, 2**32 - 1])
def test_a_length_that_is_never_sent_is_refused_before_anything_is_kept(length: int) -> None:
    """Neither an empty frame nor one that would fill the memory is waited for."""
    with pytest.raises(ValueError, match="bytes"):
        frames.Splitter().feed(struct.pack("<I", length))
    with pytest.raises(ValueError, match="too long"):
        frames.frame(1, bytes(frames.MAX_FRAME))


def _damaged(data: st.DataObject) -> Iterator[bytes]:
    good = frames.encode_asks([data.draw(asks())], PLANS.index, 1)[5:]
    yield data.draw(st.binary(max_size=60))
    yield good[: data.draw(st.integers(0, len(good) - 1))]
    place = data.draw(st.integers(0, len(good) - 1))
    yield good[:place] + data.draw(st.binary(min_size=1, max_size=1)) + good[place + 1 :]


@given(st.data())
def test_what_is_no_batch_is_an_error_and_nothing_else(data: st.DataObject) -> None:
    """Any bytes at all are read as asks about known plans, or refused in a known way."""
    known = plans()
    for damaged in _damaged(data):
        try:
            _, found = frames.decode_asks(damaged, known)
        except (ValueError, IndexError, struct.error):
            continue
        assert all(plan in known and ask.limits == plan.limits for ask, plan in found)
