"""ratio's messages, byte for byte."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.ratio.messages import (
    OK,
    OVER_LIMIT,
    UNKNOWN,
    DecodeError,
    RatioQuestion,
    read_code,
    read_question,
    write_code,
    write_question,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_a_question_is_what_ratio_puts_on_the_wire() -> None:
    """Owner is field 1, resource field 2."""
    data = bytes.fromhex("0a03737663" + "12022f78")
    assert read_question(data) == RatioQuestion("svc", "/x")
    assert write_question(RatioQuestion("svc", "/x")) == data


def test_what_is_empty_is_not_on_the_wire() -> None:
    """As in proto3: an empty message is a question about nothing, which ratio takes."""
    assert read_question(b"") == RatioQuestion("", "")
    assert write_question(RatioQuestion("", "")) == b""


@pytest.mark.parametrize(
    ("code", "data"), [(UNKNOWN, b""), (OK, b"\x08\x01"), (OVER_LIMIT, b"\x08\x02")]
)
def test_an_answer_is_one_code(code: int, data: bytes) -> None:
    """The numbers are Envoy's."""
    assert write_code(code) == data
    assert read_code(data) == code


def test_a_code_that_nobody_knows_is_unknown() -> None:
    """An enum of proto3 is open: a later server may have more values."""
    assert read_code(b"\x08\x09") == UNKNOWN


def test_fields_that_nobody_knows_are_passed_over() -> None:
    """A later client may send more, too."""
    assert read_question(b"\x0a\x01a\x1a\x01x\x20\x05") == RatioQuestion("a", "")


@pytest.mark.parametrize(
    "data", [b"\x0a\x05hi", b"\x0a", b"\x0a\x01\xff", b"\xff" * 20, b"\x07\x01"]
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    """Cut short, not UTF-8, or no fields at all."""
    with pytest.raises(DecodeError):
        read_question(data)


@given(TEXTS, TEXTS)
def test_a_question_is_read_as_it_was_written(owner: str, resource: str) -> None:
    """Whatever the texts are."""
    assert read_question(write_question(RatioQuestion(owner, resource))) == RatioQuestion(
        owner, resource
    )


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_is_an_error(data: bytes) -> None:
    """Of one kind."""
    try:
        question = read_question(data)
    except DecodeError:
        return
    assert read_question(write_question(question)) == question


def test_the_names_are_left_to_others_in_this_process() -> None:
    """A program that embeds Sluice may have ratio's stubs."""
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("RateLimitRequest")
