"""Throttr's records in Redis: the scripts answer as the models of the protocols say.

The scripts run on a real server and are told the time. In the same call what was kept is looked
at: every key has a time to live that covers its record, and is then made to stay, since the
server's own clock goes on while the test's does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import StoreReplyError, StoreTimeout
from gateway.protocols.throttr import Parser
from gateway.protocols.throttr_v2 import Parser2
from gateway.protocols.throttr_v5 import Parser5
from gateway.stores.redis_records_words import (
    Words,
    Words2,
    Words5,
    decode,
    encode,
    record_key,
)
from tests.protocols.throttr_models import GRACE, Model2, Model5, requests2, requests5, times
from tests.servers import RedisServer
from tests.stores.twins import WRAPPER

START_US = 1_800_000_000_123_457
LONG_MS = 10**15
MOST_MS = 10**14
NS_PER_MS = 10**6


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A client of a server of this module's own."""
    server = RedisServer(tmp_path_factory.mktemp("redis-records"))
    server.start()
    with server.client() as connected:
        yield connected
    server.stop()


class Scripted:
    """A script on a server, given requests as they are on the wire."""

    def __init__(self, client: redis.Redis, words: Words, parser: Parser) -> None:
        client.flushdb()
        self.client: Any = client
        self.words = words
        self.lives: dict[bytes, int] = {}
        self._parser = parser

    def say(self, data: bytes, now_us: int) -> bytes:
        """The answers to some requests in one call."""
        self._parser.feed(data)
        requests = self._parser.take(1000)
        arguments = encode(self.words, requests, 0, now_us)
        source = WRAPPER % self.words.script.source.decode()
        reply, lives = self.client.execute_command("EVAL", source, *arguments, LONG_MS)
        self.lives = {request[1]: ms for request, ms in zip(requests, lives, strict=True)}
        return b"".join(decode(self.words, requests, reply))


def check(scripted: Scripted, ends: dict[bytes, int], now_ns: int) -> None:
    """Each record that counts is there for as long as it does, and no key is for ever."""
    for key, ms in scripted.lives.items():
        # -2 of one that is not there, -1 of one that would stay.
        assert ms > 0 or ms == -2
        left_ms = (ends.get(key, 0) - now_ns) / NS_PER_MS
        if left_ms > 0:
            assert ms >= min(left_ms, MOST_MS)


@settings(max_examples=150)
@given(data=st.data())
def test_version_2_in_redis_is_answered_as_its_model_says(
    client: redis.Redis, data: st.DataObject
) -> None:
    """Numbers of 64 bits, nanoseconds and the grace of expired records included."""
    scripted, model = Scripted(client, Words2("test"), Parser2()), Model2()
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 8))):
        said = b"".join(data.draw(st.lists(requests2(), min_size=1, max_size=5)))
        wanted, _ = model.read(said, now_us * 1000)
        assert scripted.say(said, now_us) == wanted
        ends = {
            bytes([len(consumer), len(resource)]) + consumer + resource: record[3]
            for (consumer, resource), record in model.records.items()
        }
        check(scripted, ends, now_us * 1000)
        now_us += data.draw(times()) // 1000


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@settings(max_examples=100)
@given(data=st.data())
def test_version_5_in_redis_is_answered_as_its_model_says(
    client: redis.Redis, size: int, data: st.DataObject
) -> None:
    """Whatever the size of values, and however long a ttl in whatever unit."""
    scripted, model = Scripted(client, Words5("test", size), Parser5(size, 1 << 17)), Model5(size)
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 8))):
        said = b"".join(data.draw(st.lists(requests5(size), min_size=1, max_size=5)))
        wanted, _ = model.read(said, now_us * 1000)
        assert scripted.say(said, now_us) == wanted
        check(scripted, {key: kept[2] for key, kept in model.records.items()}, now_us * 1000)
        now_us += data.draw(times()) // 1000


def test_nanoseconds_of_many_years_are_exact(client: redis.Redis) -> None:
    """Beyond 2^53 of them, where a Lua number would no longer tell two apart."""
    scripted = Scripted(client, Words5("test", 64), Parser5(64, 1 << 17))
    years_us = 150 * 366 * 86_400 * 10**6
    ttl = years_us * 1000 + 1
    insert = b"\1" + (1).to_bytes(8, "little") + b"\1" + ttl.to_bytes(8, "little") + b"\1k"
    assert scripted.say(insert, START_US) == b"\1"
    told = scripted.say(b"\2\1k", START_US + years_us - 7)
    assert int.from_bytes(told[10:], "little") == 7000
    assert scripted.say(b"\2\1k", START_US + years_us)[0] == 1
    assert scripted.say(b"\2\1k", START_US + years_us + 1) == b"\0"


def test_a_batch_that_comes_too_late_does_nothing(client: redis.Redis) -> None:
    """What the server gets to when nobody waits any more is not done."""
    scripted = Scripted(client, Words5("test", 16), Parser5(16, 1 << 17))
    parser = Parser5(16, 1 << 17)
    parser.feed(bytes.fromhex("01 0700 04 3c00 01 6b"))
    requests = parser.take(1)
    arguments = encode(scripted.words, requests, START_US - 1, START_US)
    reply = scripted.client.execute_command("EVAL", scripted.words.script.source, *arguments)
    with pytest.raises(StoreTimeout):
        decode(scripted.words, requests, reply)
    assert not scripted.client.dbsize()


def test_what_others_left_under_a_key_is_as_good_as_nothing(client: redis.Redis) -> None:
    """Neither another type nor a short string stops the requests that come with it."""
    scripted = Scripted(client, Words5("test", 16), Parser5(16, 1 << 17))
    scripted.client.rpush(record_key(scripted.words.prefix, b"k"), "x")
    scripted.client.set(record_key(scripted.words.prefix, b"l"), "x")
    said = bytes.fromhex("02 01 6b 02 01 6c 01 0700 04 3c00 01 6b 02 01 6b")
    assert scripted.say(said, START_US) == bytes.fromhex("00 00 01 01 0700 04 3b00")


@pytest.mark.parametrize("reply", [None, [], [b"x"], [5, b"short"], [5, 1, 1], [5, None]])
def test_a_reply_that_is_none_is_an_error(reply: Any) -> None:
    """Never an answer to a client."""
    parser = Parser5(16, 1 << 17)
    parser.feed(b"\2\1k")
    with pytest.raises(StoreReplyError):
        decode(Words5("test", 16), parser.take(1), reply)


def test_keys_that_differ_stay_different() -> None:
    """Whatever bytes they have, and none is without a slot of its own."""
    keys = [b"", b"%", b"}", b"%7D", b"{}", b"k", b"k}", b"\xff\0"]
    found = {record_key(Words5("test", 16).prefix, key) for key in keys}
    assert len(found) == len(keys)


def test_grace_is_as_long_in_redis_as_in_memory() -> None:
    """The scripts are told in microseconds."""
    assert int(Words2.setting) * 1000 == GRACE
