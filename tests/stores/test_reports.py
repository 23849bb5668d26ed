"""Reports in memory and in Redis: both say what the pure function says, and are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.limits.rate import Limit
from gateway.limits.reported import SPARED
from gateway.stores.redis import reports as redis_reports
from gateway.stores.redis.reports import RedisClusterReports, RedisReports, ReportCodec
from gateway.stores.redis.source import REPORT
from gateway.stores.reports import Answer, MemoryReports, Relay, Report, Reports
from tests.limits.reported import State, record
from tests.limits.schedules import START_US, limits
from tests.servers import ClusterServers, RedisServer
from tests.stores.twins import WRAPPER

DOMAIN = "reports"
SECOND_US = 1_000_000
NO_END = -1
"""What PTTL says of a key that stays for ever."""
SLOW = Limit(1, 3600 * SECOND_US, 5, "paced_history", scope="reports/slow")
BUCKET = Limit(1, 3600 * SECOND_US, 7, scope="reports/bucket")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of this module's own."""
    server = RedisServer(tmp_path_factory.mktemp("redis-reports"))
    server.start()
    yield server
    server.stop()


class Model:
    """The pure function, and a dictionary that forgets nothing."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str, str], State] = {}

    def record(self, reports: list[Report], now_us: int) -> list[int]:
        """As `Reports.record`."""
        answers = []
        for report in reports:
            found = [0]
            for limit, key in zip(report.limits, report.keys, strict=True):
                name = (limit.scope, limit.algorithm, key)
                after = record(self._states.get(name, ()), report.at_us, now_us, limit)
                self._states[name] = after.state
                found.append(after.next_us)
            answers.append(max(found))
        return answers


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[Report], int]]:
    """A program: batches of reports at times that mostly go on."""
    rules = [
        replace(draw(limits(algorithm)), scope=f"reports/{place}")
        for place, algorithm in enumerate(
            draw(st.lists(st.sampled_from(["paced_history", "token_bucket"]), max_size=3))
        )
    ]
    longest = max((limit.period_us * limit.burst for limit in rules), default=1)
    now_us = START_US
    program = []
    for _ in range(draw(st.integers(1, 6))):
        now_us += draw(st.integers(0, longest))
        reports = [
            Report(
                tuple(rules),
                tuple(draw(st.sampled_from(["a", "b", "{c}"])) for _ in rules),
                now_us + draw(st.integers(-2 * longest, 2 * longest)),
            )
            for _ in range(draw(st.integers(1, 12)))
        ]
        program.append((reports, now_us))
    return program


@given(batches())
def test_memory_says_what_the_pure_function_says(program: list[tuple[list[Report], int]]) -> None:
    """Whatever is reported."""
    kept, model = MemoryReports(), Model()
    for reports, now_us in program:
        assert kept.record_now(reports, now_us) == model.record(reports, now_us)


@settings(max_examples=150)
@given(program=batches())
def test_the_script_says_what_the_pure_function_says(
    server: RedisServer, program: list[tuple[list[Report], int]]
) -> None:
    """The script receives the time; its keys all have a time to live."""
    words, model = ReportCodec(DOMAIN), Model()
    with server.client() as client:
        client.flushall()
        for reports, now_us in program:
            pieces = [
                (limit, key, report.at_us)
                for report in reports
                for limit, key in zip(report.limits, report.keys, strict=True)
            ]
            reply, times_to_live = _eval(client, words.encode(pieces, now_us))
            found = iter(reply)
            assert [
                max([0, *(next(found) for _ in report.limits)]) for report in reports
            ] == model.record(reports, now_us)
            assert all(time != NO_END for time in times_to_live)


MANY: Final = 300
"""More times than the script moves one by one."""
STEP_US: Final = 1_000
"""Between them at least, so that a key outlives a clock that is set by some milliseconds."""


@settings(max_examples=50)
@given(late=st.lists(st.integers(-5, 2 * MANY), min_size=1, max_size=6))
def test_late_ones_among_many(server: RedisServer, late: list[int]) -> None:
    """In memory and in Redis: each finds its place, whatever the number of those behind it."""
    limit = Limit(MANY, 2 * MANY * STEP_US, MANY, "paced_history", scope="reports/many")
    moments = [START_US + number * STEP_US for number in range(0, 2 * MANY, 2)]
    now_us = moments[-1]
    reports = [
        Report((limit,), ("k",), at_us)
        for at_us in [*moments, *(now_us - each * STEP_US for each in late), *moments[-10:]]
    ]
    wanted = Model().record(reports, now_us)
    assert MemoryReports().record_now(reports, now_us) == wanted
    with server.client() as client:
        client.flushall()
        words = ReportCodec(DOMAIN)
        pieces = [(limit, "k", report.at_us) for report in reports]
        reply, _ = _eval(client, words.encode(pieces, now_us))
        assert reply == wanted
        (key,) = client.keys("*")
        times = [int(time) for time in client.lrange(key, 0, -1)]
        assert times == sorted(report.at_us for report in reports)[-MANY:]


def _eval(client: redis.Redis, words: list[bytes]) -> Any:
    """Call the script; afterwards keys live on whatever the clock of the server says."""
    script = WRAPPER % REPORT.source.decode()
    return client.eval(script, int(words[0]), *words[1:], 10**12)


async def fill(kept: Reports, key: str, now_us: int) -> list[Answer]:
    """Six reports of one request each, of two limits."""
    report = Report((SLOW, BUCKET), (key, key), now_us)
    return list(await kept.record([report] * 6, now_us))


async def test_the_longest_wait_of_all_limits_counts(server: RedisServer) -> None:
    """In memory and in Redis: the fifth of the slow limit waits, whatever the other allows."""
    stored = RedisReports(server.url, domain="longest")
    for kept in (MemoryReports(), stored):
        await kept.start()
        async with asyncio.timeout(10):
            await _ready(kept)
        found = await fill(kept, "k", START_US)
        assert [bool(time) for time in found] == [False] * 4 + [True] * 2
        await kept.aclose()


async def _ready(kept: Reports) -> None:
    """Wait until every server of it answers, of whose slots some of these keys are."""
    probes = [Report((BUCKET,), (f"probe{number}",), START_US) for number in range(40)]
    while True:
        with contextlib.suppress(StoreError):
            answers = await kept.record(probes, START_US)
            if all(isinstance(answer, int) for answer in answers):
                return
        await asyncio.sleep(0.01)


async def test_two_on_one_server_are_one(server: RedisServer) -> None:
    """One has the reports of the other; another domain does not."""
    kept = [RedisReports(server.url, domain=name) for name in ("one", "one", "other")]
    for each in kept:
        await each.start()
        await _ready(each)
    report = Report((SLOW,), ("k",), START_US)
    assert await kept[0].record([report] * 3, START_US) == [0, 0, 0]
    found = await kept[1].record([report] * 2, START_US)
    assert found == [0, START_US + SLOW.period_us]
    assert await kept[2].record([report], START_US) == [0]
    for each in kept:
        await each.aclose()


async def _begin(one: Relay, two: Relay, heard: list[bytes]) -> None:
    """Wait until what one says is heard by the other."""
    one.start()
    two.start()
    async with asyncio.timeout(10):
        while b"begin" not in heard:
            one.tell(b"begin", lambda: None)
            await asyncio.sleep(0.01)


async def _carries(one: Relay, two: Relay, heard: list[bytes]) -> None:
    """Wait until what one says is heard by the other, from then on once each."""
    await _begin(one, two, heard)
    missed: set[bool] = set()

    def note_missed() -> None:
        missed.add(True)

    async with asyncio.timeout(10):
        for data in (*(b"%d" % number for number in range(100)), b"end"):
            # So many are not on their way at a time.
            missed.add(True)
            while missed:
                missed.clear()
                one.tell(data, note_missed)
                await asyncio.sleep(0)
        while b"end" not in heard:  # noqa: ASYNC110 - the server says so
            await asyncio.sleep(0.01)
    assert [data for data in heard if data != b"begin"] == [
        *(b"%d" % number for number in range(100)),
        b"end",
    ]


async def test_messages_are_carried_between_those_who_share(server: RedisServer) -> None:
    """Those of one domain, one database and one name; without a server, none waits."""
    heard: list[bytes] = []
    strange: list[bytes] = []
    url = server.url
    names = [(url, "one"), (url, "one"), (url, "two"), (url.replace("/0", "/1"), "one")]
    kept = [RedisReports(url, domain=domain) for url, domain in names]
    for each in kept:
        await each.start()
        await _ready(each)
    relays = [each.relay("a", strange.append) for each in kept[2:]]
    relays.append(kept[0].relay("b", strange.append))
    for relay in relays:
        relay.start()
    relays += [kept[0].relay("a", lambda _: None), kept[1].relay("a", heard.append)]
    await _carries(relays[-2], relays[-1], heard)
    for relay in relays:
        await relay.aclose()
    for each in kept:
        await each.aclose()
    assert not strange
    away = RedisReports("redis://127.0.0.1:1/0", domain="away")
    await away.start()
    missed: list[bool] = []
    away.relay("a", heard.append).tell(b"nobody hears it", lambda: missed.append(True))
    assert missed
    await away.aclose()


async def test_a_server_that_is_away_is_an_error(server: RedisServer) -> None:
    """At once, and nothing else."""
    kept = RedisReports("redis://127.0.0.1:1/0", domain="away")
    await kept.start()
    with pytest.raises(StoreError):
        await kept.record([Report((SLOW,), ("k",), START_US)], START_US)
    await kept.aclose()


async def test_a_server_that_does_not_answer_is_given_up(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First no more calls are made, then the connection is replaced."""
    monkeypatch.setattr(redis_reports, "STALLED_US", 20_000)
    monkeypatch.setattr(redis_reports, "LOST_US", 100_000)
    kept = RedisReports(redis_server.url, domain="stalled")
    await kept.start()
    await _ready(kept)
    redis_server.freeze()
    report = Report((SLOW,), ("k",), START_US)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await kept.record([report], START_US)
    reasons: list[str] = []
    while len(set(reasons)) < 2:
        with pytest.raises(StoreError) as failure:
            await kept.record([report], START_US)
        reasons.append(failure.value.reason)
        await asyncio.sleep(0.01)
    assert reasons[0] == "stalled"
    redis_server.thaw()
    await _ready(kept)
    await kept.aclose()


async def test_a_cluster_takes_down_each_key_where_it_belongs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Keys of many slots in one batch, each answered in its place; and messages to all."""
    servers = ClusterServers(tmp_path_factory.mktemp("cluster-reports"), replicas=False)
    servers.start()
    try:
        kept = RedisClusterReports(servers.url, domain="cluster")
        await kept.start()
        await _ready(kept)
        names = [f"k{number}" for number in range(40)]
        reports = [Report((SLOW, BUCKET), (name, "all"), START_US) for name in names]
        model = Model()
        for _ in range(6):
            assert await kept.record(reports, START_US) == model.record(reports, START_US)
        heard: list[bytes] = []
        one, two = kept.relay("a", lambda _: None), kept.relay("a", heard.append)
        await _carries(one, two, heard)
        await one.aclose()
        await two.aclose()
        # Where a server is away the others go on, with what it is to take down and to carry.
        servers.primaries[2].kill()
        single = [Report((SLOW,), (name,), START_US) for name in names]
        answers = await kept.record(single, START_US)
        assert {type(answer) for answer in answers} == {int, StoreUnavailable}
        assert {answer > START_US for answer in answers if isinstance(answer, int)} == {True}
        heard.clear()
        one, two = kept.relay("a", lambda _: None), kept.relay("a", heard.append)
        await _begin(one, two, heard)
        await one.aclose()
        await two.aclose()
        await kept.aclose()
    finally:
        servers.stop()


def test_memory_is_bounded_in_keys() -> None:
    """New ones push out old ones; one that has to wait stays if another can go."""
    kept = MemoryReports(max_keys=10)
    report = Report((SLOW,), ("held",), START_US)
    assert kept.record_now([report] * 5, START_US)[-1] > START_US
    for number in range(100):
        kept.record_now([Report((SLOW,), (f"k{number}",), START_US)], START_US)
        assert len(kept) <= 10
    assert kept.record_now([Report((SLOW,), ("held",), START_US)], START_US)[0] > START_US


def test_memory_is_bounded_in_times() -> None:
    """A limit with a large burst remembers fewer keys."""
    kept = MemoryReports(max_times=20)
    large = replace(SLOW, burst=10)
    for number in range(50):
        kept.record_now([Report((large,), (f"k{number % 5}",), START_US)] * 3, START_US)
    assert len(kept) < 5


@pytest.mark.parametrize("burst", [1, 20])
def test_memory_takes_no_more_than_is_said(burst: int) -> None:
    """However many times were dropped and not taken out yet."""
    kept, limit = MemoryReports(), replace(SLOW, burst=burst)
    tracemalloc.start()
    try:
        keys = [f"client-{number:08}" for number in range(200)]
        for turn in range(burst + SPARED + 1):
            kept.record_now(
                [Report((limit,), (key,), START_US + turn) for key in keys], START_US + turn
            )
        assert tracemalloc.get_traced_memory()[0] <= kept.used_bytes
    finally:
        tracemalloc.stop()


def test_what_does_not_matter_any_more_is_forgotten() -> None:
    """Without another request for it."""
    kept = MemoryReports()
    short = replace(SLOW, period_us=SECOND_US)
    for number in range(100):
        kept.record_now([Report((short,), (f"k{number}",), START_US)], START_US)
    later_us = START_US + 100 * SECOND_US
    for number in range(100):
        kept.record_now([Report((short,), (f"n{number}",), later_us)], later_us)
    assert len(kept) == 100
