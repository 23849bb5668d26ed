"""Throttr's scripts beside the models of the protocols: both are asked the same, and compared.

The scripts run on a real server and are told the time. In the same call what was kept is looked
at: every key has a time to live that covers its record, and is then made to stay, since the
server's own clock goes on while the test's does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import redis
from hypothesis import strategies as st

from gateway.stores.redis.records_codec import (
    RecordCodec,
    RecordCodec2,
    RecordCodec5,
    decode,
    encode,
)
from gateway.systems.throttr.codec import Parser
from gateway.systems.throttr.codec_v2 import Parser2
from gateway.systems.throttr.codec_v5 import Parser5
from tests.stores.twins import WRAPPER
from tests.systems.throttr.models import Model2, Model5, requests2, requests5, times

START_US: Final = 1_800_000_000_123_457
NO_END: Final = -1
"""What PTTL says of a key that stays for ever."""
LONG_MS: Final = 10**15
MOST_MS: Final = 10**14
NS_PER_MS: Final = 10**6


class Scripted:
    """A script on a server, given requests as they are on the wire."""

    def __init__(self, client: redis.Redis, words: RecordCodec, parser: Parser) -> None:
        client.flushdb()
        self.client: Any = client
        self.words = words
        self.lives: dict[bytes, int] = {}
        self.took_ms = 0.0
        self._parser = parser

    def say(self, data: bytes, now_us: int) -> bytes:
        """The answers to some requests in one call."""
        self._parser.feed(data)
        requests = self._parser.take(1000)
        arguments = encode(self.words, requests, 0, now_us)
        source = WRAPPER % self.words.script.source.decode()
        began = time.monotonic()
        reply, lives = self.client.execute_command("EVAL", source, *arguments, LONG_MS)
        self.took_ms = (time.monotonic() - began) * 1000
        self.lives = {request[1]: ms for request, ms in zip(requests, lives, strict=True)}
        return b"".join(decode(self.words, requests, reply))


def check(scripted: Scripted, ends: dict[bytes, int], now_ns: int) -> None:
    """Each record that counts is there for as long as it does, and no key is for ever."""
    for key, ms in scripted.lives.items():
        assert ms != NO_END
        left_ms = (ends.get(key, 0) - now_ns) / NS_PER_MS
        if left_ms > 0:
            # The server's own time goes on meanwhile.
            assert ms >= min(left_ms, MOST_MS) - scripted.took_ms


def check_version_2(client: redis.Redis, data: st.DataObject) -> None:
    """Any requests of version 2, at any time."""
    scripted, model = Scripted(client, RecordCodec2("test"), Parser2()), Model2()

    def ends() -> dict[bytes, int]:
        return {
            bytes([len(consumer), len(resource)]) + consumer + resource: record[3]
            for (consumer, resource), record in model.records.items()
        }

    _check_program(scripted, model, requests2(), ends, data)


def check_version_5(client: redis.Redis, data: st.DataObject, size: int) -> None:
    """The same of version 5."""
    scripted, model = (
        Scripted(client, RecordCodec5("test", size), Parser5(size, 1 << 17)),
        Model5(size),
    )

    def ends() -> dict[bytes, int]:
        return {key: kept[2] for key, kept in model.records.items()}

    _check_program(scripted, model, requests5(size), ends, data)


def _check_program(
    scripted: Scripted,
    model: Model2 | Model5,
    requests: st.SearchStrategy[bytes],
    ends: Callable[[], dict[bytes, int]],
    data: st.DataObject,
) -> None:
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 8))):
        said = b"".join(data.draw(st.lists(requests, min_size=1, max_size=5)))
        wanted, _ = model.read(said, now_us * 1000)
        assert scripted.say(said, now_us) == wanted
        check(scripted, ends(), now_us * 1000)
        now_us += data.draw(times()) // 1000
