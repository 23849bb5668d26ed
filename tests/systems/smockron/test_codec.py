"""Smockron's frames, byte for byte."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.smockron.codec import (
    MAX_INFO,
    Accounting,
    DelayUntil,
    MalformedMessage,
    StatusMessage,
    read_accounting,
    read_control,
    topic,
    write_accounting,
    write_control,
)

NOW_US = 1_417_000_000_123_000

EXAMPLES = [
    (
        Accounting("default", StatusMessage.ACCEPTED, "203.0.113.7", NOW_US, info=b"curl/8"),
        [b"default\0", b"ACCEPTED", b"203.0.113.7", b"1417000000123", b"", b"curl/8"],
    ),
    (
        Accounting("api", StatusMessage.DELAYED, "k", NOW_US, NOW_US + 877_000),
        [b"api\0", b"DELAYED", b"k", b"1417000000123", b"1417000001000", b""],
    ),
    (
        Accounting("api", StatusMessage.REJECTED, "k", NOW_US),
        [b"api\0", b"REJECTED", b"k", b"1417000000123", b"", b""],
    ),
]


@pytest.mark.parametrize(("message", "frames"), EXAMPLES)
def test_accounting(message: Accounting, frames: list[bytes]) -> None:
    """Six frames, as the README's table has them."""
    assert write_accounting(message) == frames
    assert read_accounting(frames) == message


def test_delay_until() -> None:
    """Four frames; the time is a plain whole number."""
    message = DelayUntil("default", "203.0.113.7", NOW_US)
    frames = [b"default\0", b"DELAY_UNTIL", b"203.0.113.7", b"1417000000123"]
    assert write_control(message) == frames
    assert read_control(frames) == message
    assert topic("default") == b"default\0"


def test_five_frames_are_enough() -> None:
    """The log information is optional, and a domain may come without its NUL."""
    frames = [b"default", b"ACCEPTED", b"k", b"1417000000123", b""]
    assert read_accounting(frames) == Accounting("default", StatusMessage.ACCEPTED, "k", NOW_US)


def test_one_nul_is_taken_off() -> None:
    """And no more: a name with another in it is another name."""
    frames = [b"d\0\0", b"ACCEPTED", b"k", b"1", b""]
    assert read_accounting(frames).domain == "d\0"


@pytest.mark.parametrize(
    ("text", "us"),
    [
        (b"0", 0),
        (b"1417000000123.5", NOW_US + 500),
        (b"1417000000123.0004", NOW_US + 1),
        (b"1417000000123.333333333333", NOW_US + 334),
    ],
)
def test_times_may_have_fractions(text: bytes, us: int) -> None:
    """Masters that reckon in floating point send them."""
    assert read_control([b"d\0", b"DELAY_UNTIL", b"k", text]) == DelayUntil("d", "k", us)


@given(st.integers(0, 2**53))
def test_times_are_rounded_up_to_whole_milliseconds(us: int) -> None:
    """A client that waits until then is not early."""
    frames = write_control(DelayUntil("d", "k", us))
    assert frames is not None
    assert 0 <= int(frames[3]) * 1000 - us < 1000


MALFORMED = [
    [],
    [b"d\0"],
    [b"d\0", b"RESYNC"],
    [b"d\0", b"ACCEPTED", b"k", b"1"],
    [b"d\0", b"ACCEPTED", b"k", b"1", b"", b"", b""],
    [b"d\0", b"accepted", b"k", b"1", b""],
    [b"d\0", b"", b"k", b"1", b""],
    [b"d\0", b"ACCEPTED", b"k", b"", b""],
    [b"d\0", b"ACCEPTED", b"k", b"-1", b""],
    [b"d\0", b"ACCEPTED", b"k", b"1e12", b""],
    [b"d\0", b"ACCEPTED", b"k", b"NaN", b""],
    [b"d\0", b"ACCEPTED", b"k", b"9" * 40, b""],
    [b"d\0", b"DELAYED", b"k", b"1", b""],
    [b"d" * 300, b"ACCEPTED", b"k", b"1", b""],
    [b"d\0", b"ACCEPTED", b"k" * 256, b"1", b""],
]


@pytest.mark.parametrize("frames", MALFORMED)
def test_what_is_no_accounting_message(frames: list[bytes]) -> None:
    """The error says so."""
    with pytest.raises(MalformedMessage):
        read_accounting(frames)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"d\0"],
        [b"d\0", b"DELAY_UNTIL"],
        [b"d\0", b"DELAY_UNTIL", b"k"],
        [b"d\0", b"DELAY_UNTIL", b"k", b""],
    ],
)
def test_what_is_no_control_message(frames: list[bytes]) -> None:
    """The error says so."""
    with pytest.raises(MalformedMessage):
        read_control(frames)


def test_unknown_commands_are_ignored() -> None:
    """Masters of other versions have some, such as RESYNCSTART; more arguments likewise."""
    assert read_control([b"d\0", b"RESYNCSTART"]) is None
    assert read_control([b"d\0", b"RESYNCDONE", b""]) is None
    assert read_control([b"d\0", b"DELAY_UNTIL", b"k", b"1", b"1000"]) == DelayUntil("d", "k", 1000)


def test_what_the_module_for_nginx_has_no_room_for_is_not_sent() -> None:
    """Domain, NUL and identifier have 256 bytes together."""
    assert write_control(DelayUntil("d" * 100, "k" * 155, NOW_US)) is not None
    assert write_control(DelayUntil("d" * 100, "k" * 156, NOW_US)) is None


def test_log_information_is_cut() -> None:
    """On both ways."""
    message = Accounting("d", StatusMessage.ACCEPTED, "k", NOW_US, info=b"x" * 10_000)
    frames = write_accounting(message)
    assert len(frames[5]) == MAX_INFO
    assert len(read_accounting([*frames[:5], b"x" * 10_000]).info) == MAX_INFO


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_any_frames_are_read_or_refused(frames: list[bytes]) -> None:
    """No bytes do anything else; names survive whatever they are made of."""
    with contextlib.suppress(MalformedMessage):
        message = read_accounting(frames)
        assert read_accounting(write_accounting(message))._replace(info=b"") == message._replace(
            info=b""
        )
    with contextlib.suppress(MalformedMessage):
        read_control(frames)


@given(st.binary(max_size=100), st.sampled_from(StatusMessage), st.integers(0, 10**15 - 1))
def test_identifiers_are_any_bytes(name: bytes, status: StatusMessage, ms: int) -> None:
    """What is no UTF-8 comes back as it was sent."""
    frames = [b"d\0", status.value, name, b"%d" % ms, b"%d" % ms, b""]
    message = read_accounting(frames)
    assert write_accounting(message)[:4] == frames[:4]
    control = write_control(DelayUntil("d", message.identifier, ms * 1000))
    assert control == [b"d\0", b"DELAY_UNTIL", name, b"%d" % ms]
