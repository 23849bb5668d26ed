"""Counts that are shared with a ratio server in its own sorted sets, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.redis.address import parse_redis_url
from gateway.stores.redis.ratio import RatioCodec, shared_policy
from gateway.stores.redis.script import decode_verdicts
from gateway.stores.redis.source import DECIDE, GIVE_BACK
from tests.ratio import Model, read_files_first, serving
from tests.servers import RedisServer

MINUTE_US: Final = 60_000_000
LAG_US: Final = 10_000_000
"""How long a call of a ratio server may take, from its look at the clock to its count."""
START_US: Final = 1_800_000_000_000_000
KEY: Final = "shop-/v1/pay"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of this module's own."""
    read_files_first()
    running = RedisServer(tmp_path_factory.mktemp("redis-ratio"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """A client of it."""
    with server.client() as connected:
        yield connected


def _limit(count: int, *, count_refused: bool = True) -> Limit:
    algorithm = "sliding_window_log"
    return Limit(count, MINUTE_US, count, algorithm, scope="ratio/ip", count_refused=count_refused)


def _ask(limit: Limit, cost: int = 1) -> Ask:
    return Ask((limit,), (KEY,), cost, 0)


def _decide(client: redis.Redis, now_us: int, *asks: Ask) -> list[Verdict]:
    words = RatioCodec("d", "ratio").encode_asks(asks, 0, now_us)
    return decode_verdicts(asks, client.eval(DECIDE.source, *words))  # type: ignore[arg-type]


def _hit_of_ratio(client: redis.Redis, quantity: int, now_us: int) -> bool:
    """What ratio's server does, command by command: remove, count, add always, expire."""
    now_ms = now_us // 1000
    client.zremrangebyscore(KEY, "-inf", f"({now_ms - MINUTE_US // 1000}")
    hits = client.zcount(KEY, "-inf", now_ms)
    client.zadd(KEY, {str(now_ms): now_ms})
    client.expire(KEY, MINUTE_US // 1_000_000)
    assert isinstance(hits, int)
    return hits < quantity


PAUSES = st.one_of(
    st.just(0),
    st.sampled_from((1_000, MINUTE_US - 1_000, MINUTE_US, MINUTE_US + 1_000)),
    st.integers(0, 90_000).map(lambda ms: ms * 1000),
)


@settings(max_examples=60)
@given(st.integers(1, 4), st.booleans(), st.lists(st.tuples(PAUSES, st.booleans()), max_size=25))
def test_alone_every_answer_is_that_of_the_algorithm(
    client: redis.Redis, count: int, count_refused: bool, program: list[tuple[int, bool]]
) -> None:
    """Times are whole milliseconds, as ratio's are; hits of one moment are as many as they are."""
    client.flushall()
    limit = _limit(count, count_refused=count_refused)
    now_us = [START_US]
    model = Model(count, MINUTE_US, lambda: now_us[0], counts_refused=count_refused)
    for pause_us, is_batch in program:
        now_us[0] += pause_us
        asks = [_ask(limit)] * (2 if is_batch else 1)
        for verdict in _decide(client, now_us[0], *asks):
            assert verdict.allowed == model.passes("", "")
            assert verdict.decisions[0].limit == count
        left: Any = client.pttl(KEY)
        assert client.zcount(KEY, "-inf", (now_us[0] - LAG_US) // 1000) in range(count + 1)
        assert not client.exists(KEY) or left > 0


@settings(max_examples=60)
@given(st.integers(1, 4), st.lists(st.tuples(PAUSES, st.booleans()), max_size=25))
def test_with_a_ratio_server_beside_both_count_together(
    client: redis.Redis, count: int, program: list[tuple[int, bool]]
) -> None:
    """Whichever is asked; a moment later each, since ratio counts two simultaneous hits as one."""
    client.flushall()
    now_us = [START_US]
    model = Model(count, MINUTE_US, lambda: now_us[0])
    for pause_us, is_ours in program:
        now_us[0] += pause_us + 1_000
        if is_ours:
            (verdict,) = _decide(client, now_us[0], _ask(_limit(count)))
            assert verdict.allowed == model.passes("", "")
        else:
            assert _hit_of_ratio(client, count, now_us[0]) == model.passes("", "")


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.lists(st.one_of(PAUSES, st.just(0), st.integers(1, 400).map(lambda ms: ms * 1000))),
    st.integers(0, LAG_US // 1000).map(lambda ms: ms * 1000),
)
def test_a_ratio_server_that_is_late_finds_what_there_was(
    client: redis.Redis, count: int, pauses: list[int], lag_us: int
) -> None:
    """It counts up to when it was asked: hits of before are kept, however many came since."""
    client.flushall()
    now_us = START_US
    hits: list[int] = []
    for pause_us in pauses:
        now_us += pause_us
        _decide(client, now_us, _ask(_limit(count)))
        hits.append(now_us // 1000)
    asked_us = now_us - lag_us
    found = [hit for hit in hits if now_us - MINUTE_US <= hit * 1000 <= asked_us]
    assert _hit_of_ratio(client, count, asked_us) == (len(found) < count)


@settings(max_examples=60)
@given(st.integers(1, 4), st.booleans(), st.lists(PAUSES, min_size=1, max_size=12), st.data())
def test_who_comes_back_when_told_is_let_through_and_not_before(
    client: redis.Redis, count: int, count_refused: bool, pauses: list[int], data: st.DataObject
) -> None:
    """If there are no other requests."""
    client.flushall()
    limit = _limit(count, count_refused=count_refused)
    cost = data.draw(st.integers(1, count))
    now_us = START_US
    verdict = Verdict(True, 0, 0, [])
    for pause_us in pauses:
        now_us += pause_us
        (verdict,) = _decide(client, now_us, _ask(limit, cost))
    if verdict.allowed:
        return
    before = client.dump(KEY)
    (early,) = _decide(client, now_us + verdict.retry_after_us - 1_000, _ask(limit, cost))
    assert not early.allowed
    client.restore(KEY, 100_000, before, replace=True)  # type: ignore[arg-type]
    (again,) = _decide(client, now_us + verdict.retry_after_us, _ask(limit, cost))
    assert again.allowed


@pytest.mark.parametrize("cost", [2, 9_000])
def test_what_is_given_back_may_be_had_again(client: redis.Redis, cost: int) -> None:
    """As often as it was taken, and no more; also more than Lua hands over at a time."""
    client.flushall()
    limit = _limit(cost + 1)
    ask = _ask(limit, cost)
    (verdict,) = _decide(client, START_US, ask)
    words = RatioCodec("d", "ratio").encode_give_back(ask, verdict, START_US)
    assert [client.eval(GIVE_BACK.source, *words) for _ in range(2)] == [1, 0]  # type: ignore[arg-type]
    assert _decide(client, START_US, _ask(limit, cost + 1))[0].allowed


def test_a_key_of_another_kind_is_refused_and_left_as_it_is(client: redis.Redis) -> None:
    """Clients choose these names, and programs that share the Redis have keys of their own."""
    client.flushall()
    client.set(KEY, "text")
    for count_refused in (True, False):
        limit = _limit(2, count_refused=count_refused)
        (verdict,) = _decide(client, START_US, _ask(limit))
        assert (verdict.allowed, verdict.retry_after_us) == (False, MINUTE_US + 1_000)
        (look,) = _decide(client, START_US, _ask(limit, 0))
        assert look.decisions[0].remaining == 0
        words = RatioCodec("d", "ratio").encode_give_back(_ask(limit), verdict, START_US)
        assert client.eval(GIVE_BACK.source, *words) == 0  # type: ignore[arg-type]
    assert (client.get(KEY), client.ttl(KEY)) == (b"text", -1)


def test_a_server_that_is_full_counts_nothing_and_says_so(client: redis.Redis) -> None:
    """With ratio everything passes then: its hits are lost, without an error."""
    client.flushall()
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        _decide(client, START_US, _ask(_limit(2)))
    client.config_set("maxmemory", 0)
    assert not client.exists(KEY)


def test_a_look_takes_nothing_and_tells_what_is_left(client: redis.Redis) -> None:
    """Without a trace."""
    client.flushall()
    limit = _limit(3)
    (look,) = _decide(client, START_US, _ask(limit, 0))
    assert look.decisions[0] == Decision(True, 0, 0, 3, 3, 0, 0)
    assert not client.exists(KEY)
    _decide(client, START_US, _ask(limit))
    (look,) = _decide(client, START_US + 1_000_000, _ask(limit, 0))
    assert look.decisions[0].remaining == 2
    assert look.decisions[0].reset_us == MINUTE_US - 1_000_000 + 1
    _decide(client, START_US + 2_000_000, *[_ask(limit)] * 9)
    (look,) = _decide(client, START_US + 3_000_000, _ask(limit, 0))
    assert (look.decisions[0].remaining, client.zcard(KEY)) == (0, 10)


async def test_a_listener_counts_where_ratio_would(server: RedisServer) -> None:
    """Under owner-resource, by the server's own clock, and exactly, however many ask at once."""
    redis_client = server.client()
    redis_client.flushall()
    url = f"{server.url}?ratio=ratio"
    more = f"store: {{url: '{url}', deadline: 5s}}"
    async with serving("10/h", url, more) as service:
        answers = await asyncio.gather(*[service.passes("shop", "/v1/pay") for _ in range(25)])
        assert sum(answers) == 10
        assert redis_client.zcard(KEY) in range(10, 26)
        redis_client.delete(KEY)
        assert await service.passes("shop", "/v1/pay")


@pytest.mark.parametrize(
    ("url", "policy"),
    [
        ("redis://h/0?ratio=pay", "pay"),
        ("redis://h/0?ratio=p%20q", "p q"),
        ("redis://:p%3Fw@h/0", ""),
    ],
)
def test_the_option_says_which_policy_is_shared(url: str, policy: str) -> None:
    """It changes nothing of where the server is."""
    assert shared_policy(url) == policy
    assert replace(parse_redis_url(url), password="") == parse_redis_url("redis://h/0")
