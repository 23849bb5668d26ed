"""The messages of Envoy's rate limit service, byte for byte."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.envoy.messages import (
    OK,
    OVER_LIMIT,
    DecodeError,
    Descriptor,
    DescriptorStatus,
    EnvoyQuestion,
    EnvoyStatus,
    Override,
    Reply,
    read_question,
    read_reply,
    write_question,
    write_reply,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
UINT32 = st.integers(0, 2**32 - 1)
DESCRIPTORS = st.builds(
    Descriptor,
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    st.none() | st.builds(Override, UINT32, st.integers(0, 9)),
    st.none() | st.integers(0, 2**64 - 1),
    st.booleans(),
)
QUESTIONS = st.builds(EnvoyQuestion, TEXTS, st.lists(DESCRIPTORS, max_size=3), UINT32)
STATUSES = st.builds(
    EnvoyStatus,
    st.sampled_from([OK, OVER_LIMIT]),
    st.none() | st.builds(DescriptorStatus, UINT32, st.integers(0, 7), TEXTS),
    UINT32,
    st.none() | st.integers(0, 10**9),
)
REPLIES = st.builds(
    Reply,
    st.sampled_from([OK, OVER_LIMIT]),
    st.lists(STATUSES, max_size=3),
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
    st.binary(max_size=20),
    st.none(),
)


def test_a_question_is_what_envoy_puts_on_the_wire() -> None:
    """Domain is field 1, descriptors 2, hits 3; of a descriptor entries are field 1."""
    data = bytes.fromhex("0a0473686f70" + "1208" + "0a06" + "0a0161" + "120131" + "1803")
    question = EnvoyQuestion("shop", [Descriptor((("a", "1"),))], 3)

    assert read_question(data) == question
    assert write_question(question) == data


def test_a_descriptor_may_bring_a_limit_hits_and_a_refund() -> None:
    """Fields 2, 3 (which wraps its number, so that 0 is something else than nothing) and 4."""
    one = bytes.fromhex("0a060a0161120131" + "120408051003" + "1a020807" + "2001")
    other = bytes.fromhex("0a060a0161120131" + "1a00")
    question = EnvoyQuestion(
        "",
        [
            Descriptor((("a", "1"),), Override(5, 3), 7, is_refund=True),
            Descriptor((("a", "1"),), None, 0),
        ],
    )
    data = b"\x12" + bytes([len(one)]) + one + b"\x12" + bytes([len(other)]) + other

    assert read_question(data) == question
    assert write_question(question) == data


def test_a_reply_is_what_envoy_reads() -> None:
    """Overall code 1, statuses 2; of a status its code 1, limit 2, what is left 3, reset 4."""
    status = bytes.fromhex("0801" + "1207" + "080a" + "1001" + "1a0178" + "1807" + "22020803")
    reply = Reply(OK, [EnvoyStatus(OK, DescriptorStatus(10, 1, "x"), 7, 3)], [])

    assert write_reply(reply) == b"\x08\x01\x12" + bytes([len(status)]) + status
    assert read_reply(write_reply(reply)) == reply


def test_a_refusal_may_have_headers_and_a_body() -> None:
    """Headers for the response are field 3, for the request 4, which stays empty; a body is 5."""
    reply = Reply(OVER_LIMIT, [EnvoyStatus(OVER_LIMIT)], [("a", "b")], b"no")
    data = bytes.fromhex("0802" + "12020802" + "1a06" + "0a0161" + "120162" + "2a026e6f")

    assert write_reply(reply) == data
    assert read_reply(data) == reply


def test_filters_may_be_told_what_was_asked() -> None:
    """As a structure of Protocol Buffers, field 6."""
    metadata = {"domain": "shop", "descriptors": [{"entries": ["a=1"]}], "hitsAddend": 2}
    reply = Reply(OK, [], metadata=metadata)

    assert read_reply(write_reply(reply)).metadata == metadata
    single = write_reply(Reply(OK, [], metadata={"a": "b"}))
    assert single == bytes.fromhex("0801" + "320a" + "0a08" + "0a0161" + "12031a0162")


@given(QUESTIONS)
def test_a_question_is_read_as_it_was_written(question: EnvoyQuestion) -> None:
    """Whatever is in it."""
    assert read_question(write_question(question)) == question


@given(REPLIES)
def test_a_reply_is_read_as_it_was_written(reply: Reply) -> None:
    """Whatever is in it."""
    assert read_reply(write_reply(reply)) == reply


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_is_an_error(data: bytes) -> None:
    """Of one kind."""
    try:
        question = read_question(data)
    except DecodeError:
        return
    assert read_question(write_question(question)) == question


def test_fields_that_nobody_knows_are_passed_over() -> None:
    """A later Envoy may send more."""
    assert read_question(b"\x0a\x01d\xa2\x06\x01x") == EnvoyQuestion("d", [])


def test_the_names_are_left_to_others_in_this_process() -> None:
    """A program that embeds Sluice may have Envoy's stubs."""
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("envoy/service/ratelimit/v3/rls.proto")
