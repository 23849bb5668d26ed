"""Every message and answer of Throttr's papers and notes, byte by byte, however it arrives."""

from __future__ import annotations

from itertools import permutations

import pytest

from gateway.protocols.throttr import NS_PER_SECOND, Parser
from gateway.protocols.throttr_v2 import GRACE_NS
from tests.protocols.throttr_wire import MAX_MESSAGE, START, Line

KEY2 = "01 01 63 72"
"""Consumer "c", resource "r"."""

LONG_KEY2 = "09 0a 636f6e73756d657231 2f7265736f7572636531"
"""Consumer "consumer1", resource "/resource1"."""

GOLDEN: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "v2 insert": (
        0,
        [
            (
                f"01 0500000000000000 0100000000000000 01 1027000000000000 {LONG_KEY2}",
                "01 0400000000000000 01 0f27000000000000",
            )
        ],
    ),
    "v2 nothing there": (
        0,
        [
            (f"02 {KEY2}", "00 0000000000000000 01 0000000000000000"),
            (f"03 00 02 0400000000000000 {KEY2}", "00"),
            (f"04 {KEY2}", "00"),
        ],
    ),
    "v2 life of a record": (
        0,
        [
            (
                f"01 0500000000000000 0100000000000000 02 3c00000000000000 {KEY2}",
                "01 0400000000000000 02 3b00000000000000",
            ),
            (f"02 {KEY2}", "01 0400000000000000 02 3b00000000000000"),
            (f"03 00 02 0400000000000000 {KEY2}", "01"),
            (f"02 {KEY2}", "01 0000000000000000 02 3b00000000000000"),
            (f"03 01 00 0a00000000000000 {KEY2}", "01"),
            (f"02 {KEY2}", "01 0000000000000000 02 0900000000000000"),
            (f"04 {KEY2}", "01"),
            (f"04 {KEY2}", "00"),
        ],
    ),
    "v2 quota 3, four times the same": (
        0,
        [
            (
                f"01 0300000000000000 0100000000000000 00 00ca9a3b00000000 {KEY2}",
                f"{can} 0{left}00000000000000 00 ffc99a3b00000000",
            )
            for can, left in (("01", 2), ("01", 1), ("01", 0), ("00", 0))
        ],
    ),
    "v2 a later insert's quota is ignored": (
        0,
        [
            (
                f"01 0200000000000000 0000000000000000 02 0a00000000000000 {KEY2}",
                "01 0200000000000000 02 0900000000000000",
            ),
            (
                f"01 0000000000000000 0100000000000000 01 0000000000000000 {KEY2}",
                "01 0100000000000000 01 0f27000000000000",
            ),
            (
                f"01 0000000000000000 0100000000000000 07 ffffffffffffffff {KEY2}",
                "01 0000000000000000 07 0900000000000000",
            ),
        ],
    ),
    "v2 first usage above the quota": (
        0,
        [
            (
                f"01 0200000000000000 0300000000000000 02 0a00000000000000 {KEY2}",
                "00 0200000000000000 02 0900000000000000",
            ),
            (f"02 {KEY2}", "01 0200000000000000 02 0900000000000000"),
        ],
    ),
    "v2 underflow ends at zero, three times": (
        0,
        [
            (
                f"01 0300000000000000 0000000000000000 02 0a00000000000000 {KEY2}",
                "01 0300000000000000 02 0900000000000000",
            ),
            *[(f"03 00 02 0200000000000000 {KEY2}", "01")] * 3,
            (f"02 {KEY2}", "01 0000000000000000 02 0900000000000000"),
        ],
    ),
    "v2 overflow ends at the greatest": (
        0,
        [
            (
                f"01 ffffffffffffffff 0000000000000000 02 ffffffffffffffff {KEY2}",
                "01 ffffffffffffffff 02 ffffffffffffff7f",
            ),
            (f"03 00 01 0100000000000000 {KEY2}", "01"),
            (f"02 {KEY2}", "01 ffffffffffffffff 02 ffffffffffffff7f"),
        ],
    ),
    "v2 unknown attributes and changes": (
        0,
        [
            (
                f"01 0300000000000000 0000000000000000 02 0a00000000000000 {KEY2}",
                "01 0300000000000000 02 0900000000000000",
            ),
            (f"03 02 00 0000000000000000 {KEY2}", "01"),
            (f"03 00 03 0000000000000000 {KEY2}", "01"),
            (f"03 01 03 0000000000000000 {KEY2}", "01"),
            (f"02 {KEY2}", "01 0300000000000000 02 0900000000000000"),
        ],
    ),
    "v2 empty consumer and resource": (
        0,
        [
            (
                "01 0100000000000000 0100000000000000 02 0a00000000000000 00 00",
                "01 0000000000000000 02 0900000000000000",
            ),
            ("02 00 00", "01 0000000000000000 02 0900000000000000"),
        ],
    ),
    "v2 a pair is no concatenation": (
        0,
        [
            (
                "01 0100000000000000 0100000000000000 02 0a00000000000000 01 02 616263",
                "01 0000000000000000 02 0900000000000000",
            ),
            ("02 02 01 616263", "00 0000000000000000 01 0000000000000000"),
        ],
    ),
    "v5 paper": (
        16,
        [("01 0200 04 0300 05 0707070707", "01"), ("02 05 0707070707", "01 0200 04 0200")],
    ),
    "v5 paper's update": (
        16,
        [
            ("03 00 01 0200 05 0707070707", "00"),
            ("01 0200 04 0300 05 0707070707", "01"),
            ("03 00 01 0200 05 0707070707", "01"),
            ("02 05 0707070707", "01 0400 04 0200"),
            ("04 05 0707070707", "01"),
            ("04 05 0707070707", "00"),
        ],
    ),
    "v5 insert never overwrites": (
        16,
        [("01 0700 04 3c00 01 6b", "01"), *[("01 0700 04 3c00 01 6b", "00")] * 4],
    ),
    "v5 consuming": (
        16,
        [
            ("01 0700 04 3c00 01 6b", "01"),
            ("03 00 02 0800 01 6b", "00"),
            ("03 00 02 0700 01 6b", "01"),
            ("02 01 6b", "01 0000 04 3b00"),
            ("03 00 02 0100 01 6b", "00"),
            ("03 00 01 ffff 01 6b", "01"),
            ("03 00 01 0100 01 6b", "01"),
            ("02 01 6b", "01 ffff 04 3b00"),
        ],
    ),
    "v5 of the wrong type": (
        16,
        [
            ("05 04 3c00 01 0400 6b 45484c4f", "01"),
            ("02 01 6b", "00"),
            ("03 00 00 0100 01 6b", "00"),
            ("01 0700 04 3c00 01 6b", "00"),
            ("05 04 3c00 01 0000 6b", "00"),
            ("03 01 00 0500 01 6b", "01"),
            ("06 01 6b", "01 04 0400 0400 45484c4f"),
            ("04 01 6b", "01"),
            ("01 0700 04 3c00 01 6b", "01"),
            ("06 01 6b", "00"),
        ],
    ),
    "v5 unknown attributes, changes and units": (
        16,
        [
            ("01 0700 00 3c00 01 6b", "01"),
            ("03 02 00 0100 01 6b", "00"),
            ("03 00 03 0100 01 6b", "01"),
            ("03 01 03 0100 01 6b", "01"),
            ("02 01 6b", "01 0700 04 3b00"),
            ("03 01 02 3c00 01 6b", "01"),
            ("02 01 6b", "00"),
        ],
    ),
    "v5 a ttl too long to be told": (
        8,
        [
            ("01 07 06 ff 01 6b", "01"),
            ("03 01 01 ff 01 6b", "01"),
            ("02 01 6b", "01 07 06 ff"),
            ("03 01 02 ff 01 6b", "01"),
            ("02 01 6b", "01 07 06 fe"),
        ],
    ),
    **{
        f"v5 ttl of type {code}": (
            16,
            [(f"01 0700 {code} 3c00 01 6b", "01"), ("02 01 6b", f"01 0700 {code} 3b00")],
        )
        for code in ("01", "02", "03", "04", "05", "06")
    },
    "v5 8 bits": (
        8,
        [
            ("01 07 04 3c 01 6b", "01"),
            ("02 01 6b", "01 07 04 3b"),
            ("04 01 6b", "01"),
            ("05 04 3c 01 04 6b 45484c4f", "01"),
            ("06 01 6b", "01 04 3b 04 45484c4f"),
        ],
    ),
    "v5 16 bits": (
        16,
        [
            ("01 0700 04 3c00 01 6b", "01"),
            ("02 01 6b", "01 0700 04 3b00"),
            ("04 01 6b", "01"),
            ("05 04 3c00 01 0400 6b 45484c4f", "01"),
            ("06 01 6b", "01 04 3b00 0400 45484c4f"),
        ],
    ),
    "v5 32 bits": (
        32,
        [
            ("01 07000000 04 3c000000 01 6b", "01"),
            ("02 01 6b", "01 07000000 04 3b000000"),
            ("04 01 6b", "01"),
            ("05 04 3c000000 01 04000000 6b 45484c4f", "01"),
            ("06 01 6b", "01 04 3b000000 04000000 45484c4f"),
        ],
    ),
    "v5 64 bits": (
        64,
        [
            ("01 0700000000000000 04 3c00000000000000 01 6b", "01"),
            ("02 01 6b", "01 0700000000000000 04 3b00000000000000"),
            ("04 01 6b", "01"),
            ("05 04 3c00000000000000 01 0400000000000000 6b 45484c4f", "01"),
            ("06 01 6b", "01 04 3b00000000000000 0400000000000000 45484c4f"),
            ("04 01 6b", "01"),
            ("01 ffffffffffffffff 06 ffffffffffffffff 01 6b", "01"),
            ("02 01 6b", "01 ffffffffffffffff 06 feffffffffffffff"),
        ],
    ),
}
"""By name: bits of a value (0 for version 2), and what is said and answered in turn."""

INDEPENDENT = {
    0: [
        GOLDEN["v2 insert"][1][0],
        ("02 01 01 63 72", "00 0000000000000000 01 0000000000000000"),
        ("00", "00"),
    ],
    16: [
        ("01 0700 04 3c00 01 61", "01"),
        ("05 04 3c00 01 0400 62 45484c4f", "01"),
        ("02 01 63", "00"),
        ("04 01 64", "00"),
    ],
}


def read(exchanges: list[tuple[str, str]]) -> tuple[list[bytes], list[bytes]]:
    """What is said, and what is answered."""
    return (
        [bytes.fromhex(said) for said, _ in exchanges],
        [bytes.fromhex(answered) for _, answered in exchanges],
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_each_message_has_its_answer(name: str) -> None:
    """One request after the other, each in a read of its own."""
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
    """Whatever the network makes two reads of; and each byte a read of its own."""
    size, exchanges = GOLDEN[name]
    said, answered = (b"".join(each) for each in read(exchanges))
    for place in range(1, len(said)):
        line = Line(size)
        assert line.say(said[:place]) + line.say(said[place:]) == b"".join(read(exchanges)[1])
    line = Line(size)
    assert b"".join(line.say(bytes([byte])) for byte in said) == answered


@pytest.mark.parametrize("size", INDEPENDENT)
def test_they_may_come_in_every_order(size: int) -> None:
    """Each has the answer of its own, in the order of asking."""
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
    """Nobody can tell where the next request would begin."""
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
