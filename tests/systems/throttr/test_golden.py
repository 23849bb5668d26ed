"""Every message of the golden table has its answer, however it arrives."""

from __future__ import annotations

from itertools import permutations

import pytest

from gateway.systems.throttr.codec import NS_PER_SECOND, Parser
from gateway.systems.throttr.codec_v2 import GRACE_NS
from tests.systems.throttr.golden import GOLDEN, INDEPENDENT, KEY2, read
from tests.systems.throttr.wire import MAX_MESSAGE, START, Line


@pytest.mark.parametrize("name", GOLDEN)
def test_each_message_has_its_answer(name: str) -> None:
    """One request after the other, each in a separate read."""
    size, exchanges = GOLDEN[name]
    line = Line(size)
    for said, answered in zip(*read(exchanges), strict=True):
        assert line.say(said).hex(" ") == answered.hex(" "), said.hex(" ")


@pytest.mark.parametrize("name", GOLDEN)
def test_all_of_them_in_one_read_have_the_same_answers(name: str) -> None:
    """As a client sends that does not wait."""
    size, exchanges = GOLDEN[name]
    said, answered = read(exchanges)
    assert Line(size).say(b"".join(said)) == b"".join(answered)


@pytest.mark.parametrize("name", GOLDEN)
def test_they_may_be_cut_at_every_byte(name: str) -> None:
    """With any split into two reads; and with each byte as a read."""
    size, exchanges = GOLDEN[name]
    said, answered = (b"".join(each) for each in read(exchanges))
    for place in range(1, len(said)):
        line = Line(size)
        assert line.say(said[:place]) + line.say(said[place:]) == b"".join(read(exchanges)[1])
    line = Line(size)
    assert b"".join(line.say(bytes([byte])) for byte in said) == answered


@pytest.mark.parametrize("size", INDEPENDENT)
def test_they_may_come_in_every_order(size: int) -> None:
    """Each has its answer, in order."""
    for order in permutations(INDEPENDENT[size]):
        line = Line(size)
        for said, answered in zip(*read(list(order)), strict=True):
            assert line.say(said) == answered


def test_a_record_counts_until_its_deadline_and_not_a_nanosecond_longer() -> None:
    """Version 5: a key is free again from the deadline on."""
    line, insert, query = Line(16), bytes.fromhex("01 0700 04 3c00 01 6b"), b"\x02\x01k"
    deadline = START + 60 * NS_PER_SECOND
    assert line.say(insert) == b"\1"
    assert line.say(query, deadline - 1) == bytes.fromhex("01 0700 04 0000")
    assert line.say(insert, deadline - 1) == b"\0"
    assert line.say(query, deadline) == b"\0"
    assert line.say(insert, deadline) == b"\1"


def test_version_2_finds_expired_records_for_a_while() -> None:
    """UPDATE and PURGE do, and a new ttl revives one; QUERY and INSERT do not."""
    line = Line(0)
    key = bytes.fromhex(KEY2)
    insert = bytes.fromhex("01 0500000000000000 0100000000000000 00 8813000000000000") + key
    patch = bytes.fromhex("03 01 00 8813000000000000") + key
    ends = START + 5000
    assert line.say(insert)[0] == 1
    assert line.say(b"\2" + key, ends) == bytes.fromhex("00 0000000000000000 01 0000000000000000")
    assert line.say(patch, ends + GRACE_NS - 1) == b"\1"
    assert line.say(b"\2" + key, ends + GRACE_NS) == bytes.fromhex(
        "01 0400000000000000 00 8613000000000000"
    )
    gone = ends + GRACE_NS - 1 + 5000 + GRACE_NS
    assert line.say(patch, gone) == b"\0"
    assert line.say(b"\4" + key, gone) == b"\0"


@pytest.mark.parametrize("junk", [b"\0\0\0\0\0", b"\x05rest", b"\xff" * 1000])
def test_version_2_answers_what_is_no_request_once_and_goes_on(junk: bytes) -> None:
    """The rest of the read is dropped, whatever it holds; the next one is read as ever."""
    line = Line(0)
    query = b"\2\1\1cr"
    assert line.say(query + junk + query)[18:] == b"\0"
    assert len(line.say(query)) == 18


@pytest.mark.parametrize("junk", [b"\0", b"\x07", b"\x10\x01k", b"\xff" * 1000])
def test_version_5_answers_what_is_no_request_and_ends(junk: bytes) -> None:
    """The start of the next request would be unknown."""
    line = Line(16)
    assert line.say(b"\2\1k" + junk + b"\2\1k") == b"\0\0"
    assert line.parser.is_ended


def test_a_buffer_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    """Nothing is allocated or awaited for what was only announced."""
    line = Line(64)
    announced = bytes.fromhex("05 04 3c00000000000000 01 ffffffffffffffff 6b") + b"x"
    assert line.say(announced) == b"\0"
    assert line.parser.is_ended
    line = Line(32)
    length = MAX_MESSAGE - 12
    message = (
        bytes.fromhex("05 04 3c000000 01") + length.to_bytes(4, "little") + b"k" + b"v" * length
    )
    assert line.say(message) == b"\1"
    assert line.say(b"\6\1k")[1 + 1 + 4 + 4 :] == b"v" * length


def test_a_long_message_in_small_pieces_is_put_together_once() -> None:
    """What waits is one buffer, not a copy for each piece."""
    line = Line(32)
    message = bytes.fromhex("05 04 3c000000 01 ff000000 6b") + b"v" * 255
    parser: Parser = line.parser
    for place in range(len(message) - 1):
        assert line.say(message[place : place + 1]) == b""
        assert parser.is_waiting
    assert line.say(message[-1:]) == b"\1"
    assert not parser.is_waiting
