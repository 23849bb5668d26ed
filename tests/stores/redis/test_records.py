"""Throttr's records in Redis: the scripts answer as the models of the protocols say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf, nan
from struct import pack
from typing import Any, Final

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import StoreReplyError, StoreTimeout
from gateway.stores.redis.records_codec import (
    RecordCodec2,
    RecordCodec5,
    decode,
    encode,
    record_key,
)
from gateway.systems.throttr.codec_v2 import Parser2
from gateway.systems.throttr.codec_v5 import Parser5
from tests.servers import RedisServer
from tests.stores.redis.records import START_US, Scripted, check_version_2, check_version_5
from tests.systems.throttr.models import GRACE


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A client of a server of this module's own."""
    server = RedisServer(tmp_path_factory.mktemp("redis-records"))
    server.start()
    with server.client() as connected:
        yield connected
    server.stop()


@settings(max_examples=80)
@given(data=st.data())
def test_version_2_in_redis_is_answered_as_its_model_says(
    client: redis.Redis, data: st.DataObject
) -> None:
    """Numbers of 64 bits, nanoseconds and the grace of expired records included."""
    check_version_2(client, data)


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@settings(max_examples=50)
@given(data=st.data())
def test_version_5_in_redis_is_answered_as_its_model_says(
    client: redis.Redis, size: int, data: st.DataObject
) -> None:
    """Whatever the size of values, and however long a ttl in whatever unit."""
    check_version_5(client, data, size)


def test_nanoseconds_of_many_years_are_exact(client: redis.Redis) -> None:
    """Beyond 2^53 of them, where a Lua number would no longer distinguish two."""
    scripted = Scripted(client, RecordCodec5("test", 64), Parser5(64, 1 << 17))
    years_us = 150 * 366 * 86_400 * 10**6
    ttl = years_us * 1000 + 1
    insert = b"\1" + (1).to_bytes(8, "little") + b"\1" + ttl.to_bytes(8, "little") + b"\1k"
    assert scripted.say(insert, START_US) == b"\1"
    told = scripted.say(b"\2\1k", START_US + years_us - 7)
    assert int.from_bytes(told[10:], "little") == 7000
    assert scripted.say(b"\2\1k", START_US + years_us)[0] == 1
    assert scripted.say(b"\2\1k", START_US + years_us + 1) == b"\0"


def test_a_clock_that_goes_back_makes_records_live_longer(client: redis.Redis) -> None:
    """By as much; nothing is lost, and nothing fails."""
    scripted = Scripted(client, RecordCodec5("test", 16), Parser5(16, 1 << 17))
    assert scripted.say(bytes.fromhex("01 0700 01 e803 01 6b"), START_US) == b"\1"
    assert scripted.say(b"\2\1k", START_US - 3) == bytes.fromhex("01 0700 01 9f0f")
    assert scripted.say(bytes.fromhex("03 00 02 0700 01 6b"), START_US - 10**9) == b"\1"
    assert scripted.say(b"\2\1k", START_US - 10**9) == bytes.fromhex("01 0000 01 ffff")
    assert scripted.say(b"\2\1k", START_US + 1) == b"\0"


def test_a_batch_that_comes_too_late_does_nothing(client: redis.Redis) -> None:
    """A batch that the server gets to after the deadline is not executed."""
    scripted = Scripted(client, RecordCodec5("test", 16), Parser5(16, 1 << 17))
    parser = Parser5(16, 1 << 17)
    parser.feed(bytes.fromhex("01 0700 04 3c00 01 6b"))
    requests = parser.take(1)
    arguments = encode(scripted.words, requests, START_US - 1, START_US)
    reply = scripted.client.execute_command("EVAL", scripted.words.script.source, *arguments)
    with pytest.raises(StoreTimeout):
        decode(scripted.words, requests, reply)
    assert not scripted.client.dbsize()


def test_what_others_left_under_a_key_is_as_good_as_nothing(client: redis.Redis) -> None:
    """Neither another type nor a string that is no state stops the requests that come with it."""
    scripted = Scripted(client, RecordCodec5("test", 16), Parser5(16, 1 << 17))
    scripted.client.rpush(record_key(scripted.words.prefix, b"k"), "x")
    scripted.client.set(record_key(scripted.words.prefix, b"l"), "x")
    said = bytes.fromhex("02 01 6b 02 01 6c 01 0700 04 3c00 01 6b 02 01 6b")
    assert scripted.say(said, START_US) == bytes.fromhex("00 00 01 01 0700 04 3b00")


STATE5: Final = (0, 4, START_US, 60, 0.0, 1, 0)
"""A counter of a quota of 1 that has a minute."""


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((0, 2), (1, 0), (1, 7), (1, 255), (2, nan), (2, inf), (2, -inf), (2, -1.0), (2, 1e300)),
        *((4, nan), (4, inf), (4, 1e300), (5, 1 << 16), (6, 1)),
    ],
)
def test_a_state_of_5_that_can_be_nobodys_is_as_good_as_nothing(
    client: redis.Redis, place: int, value: float
) -> None:
    """Whatever it is, requests on other keys are answered in the same call."""
    scripted = Scripted(client, RecordCodec5("test", 16), Parser5(16, 1 << 17))
    kept = [*STATE5]
    kept[place] = value
    scripted.client.set(record_key(scripted.words.prefix, b"k"), pack("<BBdIdII", *kept) + b"x" * 9)
    said = bytes.fromhex("06 01 6b 02 01 6b 03 01 01 0100 01 6b 01 0700 04 3c00 01 6c 02 01 6c")
    told = bytes.fromhex("00 00 00 01 01 0700 04 3b00")
    assert scripted.say(said, START_US) == told
    assert scripted.say(bytes.fromhex("01 0700 04 3c00 01 6b 02 01 6b"), START_US) == told[3:]


@pytest.mark.parametrize(
    ("place", "value", "more"),
    [*product([1, 3, 6], [nan, inf, -inf, 1e300], [b""]), (0, 2, b"x")],
)
def test_a_state_of_2_that_can_be_nobodys_is_as_good_as_nothing(
    client: redis.Redis, place: int, value: float, more: bytes
) -> None:
    """The same for version 2."""
    scripted = Scripted(client, RecordCodec2("test"), Parser2())
    kept: list[float] = [2, START_US, 60, 0.0, 1, 0, START_US]
    kept[place] = value
    key = record_key(scripted.words.prefix, b"\1\1ab")
    scripted.client.set(key, pack("<BdIdIId", *kept) + more)
    update, insert = (
        "03 00 01 0100000000000000 01 01 61 62",
        "01 05" + "00" * 15 + " 02 3c" + "00" * 7,
    )
    said = bytes.fromhex(f"02 01 01 61 62 {update} {insert} 01 01 61 62")
    missing, made = "00" * 9 + "01" + "00" * 8, "01 05" + "00" * 7 + "02 3b" + "00" * 7
    assert scripted.say(said, START_US) == bytes.fromhex(f"{missing} 00 {made}")


@pytest.mark.parametrize("reply", [None, [], [b"x"], [5, b"short"], [5, 1, 1], [5, None]])
def test_a_reply_that_is_none_is_an_error(reply: Any) -> None:
    """Never an answer to a client."""
    parser = Parser5(16, 1 << 17)
    parser.feed(b"\2\1k")
    with pytest.raises(StoreReplyError):
        decode(RecordCodec5("test", 16), parser.take(1), reply)


def test_keys_that_differ_stay_different() -> None:
    """Whatever bytes they have, and each has a slot."""
    keys = [b"", b"%", b"}", b"%7D", b"{}", b"k", b"k}", b"\xff\0"]
    found = {record_key(RecordCodec5("test", 16).prefix, key) for key in keys}
    assert len(found) == len(keys)


def test_grace_is_as_long_in_redis_as_in_memory() -> None:
    """The scripts receive it in microseconds."""
    assert int(RecordCodec2.setting) * 1000 == GRACE
