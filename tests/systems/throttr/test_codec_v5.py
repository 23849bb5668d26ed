"""What Throttr 5 is told and answers, byte by byte as its paper and its servers have it."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.throttr.codec import DECREASE, PATCH, QUOTA, TTL
from gateway.systems.throttr.codec_v5 import (
    OK,
    REFUSED,
    SIZES,
    UNITS_NS,
    Answer,
    AnswerStream,
    Counter,
    Ttl,
    insert,
    largest,
    purge,
    query,
    ttl_of,
    update,
)

MINUTE: Final = Ttl(4, 60)

GOLDEN: Final = {
    8: ("01 07 04 3c 01 6b", "01 07 04 3b"),
    16: ("01 0700 04 3c00 01 6b", "01 0700 04 3b00"),
    32: ("01 07000000 04 3c000000 01 6b", "01 07000000 04 3b000000"),
    64: (
        "01 0700000000000000 04 3c00000000000000 01 6b",
        "01 0700000000000000 04 3b00000000000000",
    ),
}
"""By size: INSERT of 7 for 60 s under "k", and what QUERY answers then."""

counters = st.tuples(
    st.integers(0, largest(8)), st.integers(1, len(UNITS_NS) - 1), st.integers(0, largest(8))
).map(lambda told: Counter(told[0], Ttl(told[1], told[2])))


@pytest.mark.parametrize("size", SIZES)
def test_numbers_have_the_size_of_the_server(size: int) -> None:
    """A counter is created and read in the bytes of a server of each size."""
    made, told = GOLDEN[size]
    reader = AnswerStream(size)
    reader.feed(bytes.fromhex(told))

    assert insert(size, 7, MINUTE, b"k") == bytes.fromhex(made)
    answers: list[Answer] = []
    assert reader.read([True], answers)
    assert answers == [Counter(7, Ttl(4, 59))]
    assert not reader


def test_the_requests_of_the_paper() -> None:
    """INSERT as the paper has it, and the others as its servers read them."""
    assert insert(16, 2, Ttl(4, 3), b"\7" * 5) == bytes.fromhex("01 0200 04 0300 05 0707070707")
    assert update(16, QUOTA, DECREASE, 7, b"k") == bytes.fromhex("03 00 02 0700 01 6b")
    assert update(16, TTL, PATCH, 6, b"k") == bytes.fromhex("03 01 00 0600 01 6b")
    assert query(b"k") == bytes.fromhex("02 01 6b")
    assert purge(b"k") == bytes.fromhex("04 01 6b")


@pytest.mark.parametrize(
    ("period_us", "size", "expected"),
    [
        (1, 8, Ttl(2, 1)),
        (255, 8, Ttl(2, 255)),
        (256, 8, None),
        (60_000_000, 8, Ttl(4, 60)),
        (60_000_000, 16, Ttl(3, 60_000)),
        (65_537_000_000, 16, None),
        (86_400_000_000, 8, Ttl(6, 24)),
        (86_400_000_000, 16, Ttl(5, 1_440)),
        (86_400_000_000, 32, Ttl(3, 86_400_000)),
        (86_400_000_001, 32, None),
        (86_400_000_001, 64, Ttl(2, 86_400_000_001)),
        (256 * 3_600_000_000, 8, None),
    ],
)
def test_a_period_has_the_finest_unit_that_fits(
    period_us: int, size: int, expected: Ttl | None
) -> None:
    """The finest unit gives the end of a window best; any other period would be wrong."""
    assert ttl_of(period_us, size) == expected


@given(st.integers(1, 10**13), st.sampled_from(SIZES))
def test_a_unit_is_exact(period_us: int, size: int) -> None:
    """Whatever unit is found, it is the same time, and a number that the server can hold."""
    ttl = ttl_of(period_us, size)

    assert ttl is None or (ttl.us == period_us and 1 <= ttl.value <= largest(size))


@given(
    st.sampled_from(SIZES),
    st.lists(st.one_of(counters, st.sampled_from([OK, REFUSED]), st.none()), max_size=20),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_answers_are_read_however_they_arrive(
    size: int, told: list[Answer | None], pieces: list[int]
) -> None:
    """Cut anywhere, a stream of answers is the same answers."""
    # `None` stands for a QUERY of a counter that there is not.
    width = size // 8
    stream = b"".join(
        b"\1%b%c%b" % (each[0].to_bytes(width, "little"), each[1].unit, _number(each, width))
        if isinstance(each, Counter)
        else bytes((each or REFUSED,))
        for each in told
    )
    is_query = [isinstance(each, Counter) or each is None for each in told]
    reader = AnswerStream(size)
    answers: list[Answer] = []
    at = 0
    while at < len(stream):
        piece = pieces[at % len(pieces)]
        reader.feed(stream[at : at + piece])
        at += piece
        assert reader.read(is_query, answers) == (at >= len(stream))

    assert answers == [each or REFUSED for each in told]
    assert not reader


def _number(counter: Counter, width: int) -> bytes:
    return counter.ttl.value.to_bytes(width, "little")


@pytest.mark.parametrize("data", [b"\2", b"H", b"\1\0\0\0\0\0", b"\1\0\0\7\0\0"])
def test_what_is_no_answer_is_not_taken_for_one(data: bytes) -> None:
    """Neither a status nor a unit of time may be another than there are."""
    reader = AnswerStream(16)
    reader.feed(data)

    with pytest.raises(ValueError, match=r"status|unit"):
        reader.read([True], [])
