"""Throttr listeners with records in Redis: shared, atomic there, and never a stall without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.clock import monotonic_us, wall_us
from gateway.config.checking.check import check_text
from gateway.stores.redis.clocked_connection import ClockedConnection
from gateway.stores.redis.records import RedisRecords, open_records
from gateway.stores.redis.slots import slot_of_tag
from gateway.systems.throttr.codec import GET, Request
from gateway.systems.throttr.records_store import SharedBook
from tests.conftest import StartGateway
from tests.processes import free_port
from tests.proxy.wire import make_gateway
from tests.servers import ClusterServers, RedisServer, until
from tests.systems.throttr.golden import GOLDEN, KEY2, read
from tests.systems.throttr.models import Model5, requests5
from tests.systems.throttr.running import INSERT, TAKE, Client, Run, connected, running
from tests.systems.throttr.wire import START

NAMES: Final = (
    *("v5 ttl of type 01", "v5 ttl of type 02", "v5 ttl of type 03"),
    *("v2 quota 3, four times the same", "v2 a later insert's quota is ignored"),
)
"""Of the golden table, what cannot be awaited: it tells of times that pass between two messages."""
HOURS: Final = 6
GATEWAYS: Final = 2
CLIENTS: Final = 3


@pytest.fixture(scope="module", autouse=True)
def _read_files_first() -> None:
    """A gateway reads its files before its loop begins; a test that has begun must not."""
    assert open_records is not None
    check_text("listeners: [{ throttr: v2 }]")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis of this module's own."""
    started = RedisServer(tmp_path_factory.mktemp("redis-throttr"))
    started.start()
    yield started
    started.stop()


def settings_of(size: int) -> str:
    """The listener of a golden table: version 2 for a size of 0."""
    return f"{{ version: v5, size: {size} }}" if size else "v2"


@pytest.mark.parametrize("name", [name for name in GOLDEN if name not in NAMES])
async def test_each_message_has_its_answer(server: RedisServer, name: str) -> None:
    """Byte by byte the same as from memory: one after the other, and all at once."""
    size, exchanges = GOLDEN[name]
    said, answered = read(exchanges)
    async with running(settings_of(size), store=server.url) as run, connected(run.port) as client:
        server.client().flushdb()
        for message, wanted in zip(said, answered, strict=True):
            assert await client.ask(message, len(wanted)) == wanted
        server.client().flushdb()
        wanted = b"".join(answered)
        assert await client.ask(b"".join(said), len(wanted)) == wanted


def is_long(request: bytes, size: int) -> bool:
    """Whether a request of version 5 makes no record that expires while the test runs."""
    if request[0] == 1:
        return request[1 + size // 8] == HOURS
    return request[0] != 5 or request[1] == HOURS


@pytest.mark.parametrize("size", [16, 64])
def test_random_programs_are_answered_as_the_model_says(server: RedisServer, size: int) -> None:
    """Records live for hours here, so that the second at which one is asked does not matter."""
    requests = requests5(size).filter(lambda request: is_long(request, size))

    @settings(
        max_examples=20,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(st.lists(st.lists(requests, min_size=1, max_size=12), min_size=1, max_size=3))
    def check(program: list[list[bytes]]) -> None:
        server.client().flushdb()
        model = Model5(size)

        async def once() -> None:
            async with connected(run.port) as client:
                for said in program:
                    wanted, _ = model.read(b"".join(said), START)
                    assert await client.ask(b"".join(said), len(wanted)) == wanted

        runner.run(once())

    with asyncio.Runner() as runner:
        listener = running(settings_of(size), store=server.url)
        run = runner.run(listener.__aenter__())
        try:
            check()
        finally:
            runner.run(listener.__aexit__(None, None, None))


async def test_many_requests_at_once_are_answered_in_order(server: RedisServer) -> None:
    """More than go into one call of the script, over some connections at a time."""
    server.client().flushdb()
    async with running("v5", store=server.url) as run:

        async def one(number: int) -> None:
            key = b"%04d" % number
            insert = bytes.fromhex("01 ffff 06 0100 04") + key
            take = bytes.fromhex("03 00 02 0100 04") + key
            async with connected(run.port) as client:
                told = await client.ask(insert + (take + b"\2\4" + key) * 1500, 1 + 1500 * 7)
            quotas = [int.from_bytes(told[at + 2 : at + 4], "little") for at in range(1, 10500, 7)]
            assert quotas == list(range(65534, 65534 - 1500, -1))

        await asyncio.gather(*(one(number) for number in range(3)))
        assert run.answers() == {
            ("insert", "yes"): 3,
            ("update", "yes"): 4500,
            ("query", "yes"): 4500,
        }
    assert server.keys_without_ttl() == []


async def test_many_long_buffers_come_a_few_at_a_time(server: RedisServer) -> None:
    """All of them in the end, and each once."""
    server.client().flushdb()
    async with running("v5", store=server.url) as run, connected(run.port) as client:
        value = b"v" * 20_000
        assert await client.ask(bytes.fromhex("05 06 0200 01 204e 6b") + value, 1) == b"\1"
        await client.say(b"\6\1k" * 300 + b"\4\1k")
        for _ in range(300):
            assert await client.hear(6 + 20_000) == bytes.fromhex("01 06 0100 204e") + value
        assert await client.hear(1) == b"\1"
        assert run.answers() == {("set", "yes"): 1, ("get", "yes"): 300, ("purge", "yes"): 1}


async def test_buffers_that_many_ask_for_come_a_few_at_a_time(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Redis must keep for all clients together is bounded; no client is passed over."""
    server.client().flushdb()
    answer = RedisRecords.answer
    asked: list[int] = [0]

    async def counted(self: RedisRecords, requests: Sequence[Request]) -> Sequence[bytes | None]:
        gets = sum(request[0] == GET for request in requests)
        asked.append(asked[-1] + gets)
        try:
            return await answer(self, requests)
        finally:
            asked.append(asked[-1] - gets)

    monkeypatch.setattr(RedisRecords, "answer", counted)
    settings = "{ version: v5, max_message: 8MiB }"
    async with running(settings, store=server.url) as run, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(run.port)) for _ in range(12)]
        assert await clients[0].ask(bytes.fromhex("05 06 0200 01 0300 6b") + b"abc", 1) == b"\1"
        for client in clients:
            await client.say(b"\6\1k" * 5)
        for client in clients:
            assert await client.hear(45) == (bytes.fromhex("01 06 0100 0300") + b"abc") * 5
    assert 0 < max(asked) <= 32 // 8


async def test_a_client_that_was_told_the_end_late_does_not_stay(
    server: RedisServer,
) -> None:
    """One that did not take its last answer at first, and never closes, is cut off as any other."""
    settings = "{ version: v5, size: 32, max_message: 16MiB, message_timeout: 2s }"
    length = 8 << 20
    size = length.to_bytes(4, "little")
    async with running(settings, store=server.url) as run, connected(run.port) as client:
        await client.say(bytes.fromhex("05 06 01000000 01") + size + b"l" + bytes(length))
        client.pause()
        await client.say(b"\6\1l\7")
        await until(lambda: any(each._is_held for each in run.frontend.connections))
        client.resume()
        assert len(await client.rest()) == 1 + 10 + length + 1
        await until(lambda: not run.frontend.connections)


async def test_what_is_no_request_is_answered_in_its_place(server: RedisServer) -> None:
    """After what came before it, though that had to wait for Redis."""
    server.client().flushdb()
    async with running("v5", store=server.url) as run, connected(run.port) as client:
        await client.say(INSERT + TAKE + b"\x07" + TAKE)
        assert await client.rest() == b"\1\1\0"
    async with running("v2", store=server.url) as run, connected(run.port) as client:
        query = b"\2" + bytes.fromhex(KEY2)
        assert (await client.ask(query + b"\0" + query, 19))[18:] == b"\0"
        assert len(await client.ask(query, 18)) == 18


async def test_without_redis_every_request_is_refused_in_order(tmp_path: Path) -> None:
    """In the words of each version, and counted; when it is back, so are its answers."""
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    query = b"\2" + bytes.fromhex(KEY2)
    insert = bytes.fromhex("01 0500000000000000 0100000000000000 02 3c00000000000000") + query[1:]
    nothing = bytes.fromhex("00 0000000000000000 01 0000000000000000")
    async with running("v2", store=redis.url) as run, connected(run.port) as client:
        assert (await client.ask(insert, 18))[0] == 1
        redis.kill()
        refused = bytes.fromhex("00 0000000000000000 02 0000000000000000") + nothing + b"\0\0"
        for _ in range(5):
            purge = b"\4" + query[1:] + b"\0"
            assert await client.ask(insert + query + purge, 38) == refused
        assert run.answers()["insert", "unavailable"] == 5
        redis.start()

        async def is_back() -> bool:
            return (await client.ask(insert, 18))[0] == 1

        async with asyncio.timeout(20):
            while not await is_back():  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)
    redis.stop()


def _lane_of(run: Run) -> ClockedConnection:
    """The connection to Redis, with what is known of the server's clock."""
    book = run.frontend.book
    assert isinstance(book, SharedBook)
    records = book._records
    assert isinstance(records, RedisRecords)
    return records._lane


async def test_a_frozen_redis_stalls_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And executes no abandoned requests when it continues; the log reports it."""
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    async with (
        running("v5", store=redis.url) as patient,
        running("v5", store=redis.url, deadline="20ms") as run,
        connected(patient.port) as other,
        connected(run.port) as client,
    ):
        assert await other.ask(INSERT, 1) == b"\1"
        redis.freeze()
        assert await client.ask(TAKE * 600, 600) == b"\0" * 600
        assert run.answers()["update", "unavailable"] == 600
        assert "requests to throttr were refused" in caplog.text
        # By the server's clock, as the listener knows it, it is too late for all of it.
        late_us = _lane_of(run).not_after_us(monotonic_us())
        await until(lambda: wall_us() > late_us)
        redis.thaw()

        async def quota() -> bytes:
            return await client.ask(b"\2\1k", 1)

        async with asyncio.timeout(20):
            while await quota() != b"\1":  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)
        assert await client.hear(5) == bytes.fromhex("e803 06 0000")
    redis.stop()


async def test_a_frozen_redis_lets_nobody_fill_the_memory(tmp_path: Path) -> None:
    """Little is read from clients meanwhile, and everything is answered afterwards."""
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    async with running("v5", store=redis.url) as run, connected(run.port) as client:
        key = b"\xff" + b"k" * 255
        assert await client.ask(INSERT[:-2] + key, 1) == b"\1"
        (connection,) = run.frontend.connections
        redis.freeze()
        client.writer.write((TAKE[:-2] + key) * 8000)
        transport = connection._transport
        assert transport is not None
        await until(lambda: not transport.is_reading())
        assert connection.waiting < 64 * 1024 + 256 * 1024
        redis.thaw()
        told = await client.hear(8000)
        assert len(told) == 8000
        assert told.count(b"\1") <= 1000
    redis.stop()


async def test_a_full_redis_refuses_what_is_new_and_nothing_else(server: RedisServer) -> None:
    """In any batch: existing records can be read, changed and deleted."""
    redis = server.client()
    redis.flushdb()
    query, purge = b"\2\1k", b"\4\1k"
    insert2 = bytes.fromhex("01 0500000000000000 0100000000000000 02 100e000000000000")
    mine, other = (insert2 + bytes.fromhex(pair) for pair in ("01 01 61 62", "01 01 61 63"))
    try:
        async with (
            running("v5", store=server.url) as run,
            running("v2", store=server.url) as older,
            connected(run.port) as client,
            connected(older.port) as client2,
        ):
            assert await client.ask(INSERT, 1) == b"\1"
            assert (await client2.ask(mine, 18))[:2] == b"\1\4"
            redis.config_set("maxmemory", "1")
            new = INSERT[:-1] + b"l"
            told = await client.ask(new + TAKE + query + new + purge + new + INSERT, 12)
            assert told == b"\0\1" + bytes.fromhex("01 e703 06 0000") + b"\0\1\0\0"
            refused = bytes.fromhex("00 0000000000000000 02 0000000000000000")
            told = await client2.ask(other + mine + other, 54)
            assert (told[:18], told[18:20], told[36:]) == (refused, b"\1\3", refused)
            # A deletion that comes first makes no room for what follows it.
            assert await client2.ask(b"\4" + mine[-4:] + other, 19) == b"\1" + refused
            assert not redis.dbsize()
            assert run.answers()["insert", "no"] == 4
            assert ("insert", "unavailable") not in run.answers()
    finally:
        redis.config_set("maxmemory", "0")


async def test_a_listener_starts_without_its_redis(tmp_path: Path) -> None:
    """Requests are refused until it is there."""
    redis = RedisServer(tmp_path / "redis")
    async with running("v5", store=redis.url) as run, connected(run.port) as client:
        assert await client.ask(INSERT, 1) == b"\0"
        redis.start()
        async with asyncio.timeout(20):
            while await client.ask(INSERT, 1) != b"\1":  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
    redis.stop()


async def test_a_gateway_whose_records_are_away_wants_no_traffic(tmp_path: Path) -> None:
    """Another one may reach them."""
    redis = RedisServer(tmp_path / "redis")
    text = (
        f"store: {redis.url}\nlisteners: [{{ throttr: v5, bind: '127.0.0.1:0' }}]\n"
        f"admin: off\nlog: {{ access: off, output: {tmp_path / 'log'} }}\n"
    )
    gateway = make_gateway(await asyncio.to_thread(lambda: check_text(text).config))
    await gateway.start()
    try:
        readiness = gateway.readiness
        assert not readiness.is_ready
        assert readiness.reasons == ("store main is unavailable and every listener needs it",)
        redis.start()
        await until(lambda: gateway.readiness.is_ready)
    finally:
        await gateway.stop()
        redis.stop()


async def test_records_in_a_cluster_are_those_of_their_slots(tmp_path: Path) -> None:
    """Requests on many records at once, each with its answer in its place."""
    cluster = ClusterServers(tmp_path / "cluster")
    cluster.start()
    try:
        async with running("v5", store=cluster.url) as run, connected(run.port) as client:
            keys = [b"%03d" % number for number in range(200)]
            inserts = b"".join(bytes.fromhex("01 0700 06 0100 03") + key for key in keys)
            takes = b"".join(bytes.fromhex("03 00 02 0400 03") + key for key in keys)
            assert await client.ask(inserts + takes + takes, 600) == b"\1" * 400 + b"\0" * 200
            queries = b"".join(b"\2\3" + key for key in keys)
            told = await client.ask(queries, 200 * 6)
            assert told == bytes.fromhex("01 0300 06 0000") * 200
            slot = slot_of_tag(keys[0])
            source = cluster.owner(slot)
            target = next(each for each in cluster.primaries_now() if each is not source)
            cluster.move(slot, source, target)
            told = await client.ask(queries, 200 * 6)
            assert told == bytes.fromhex("01 0300 06 0000") * 200
    finally:
        cluster.stop()


async def _consume(client: Client, request: bytes, size: int, times: int) -> int:
    """Ask so often, some at a time; how often the first byte of the answer was 01."""
    allowed = 0
    for _ in range(times // 50):
        told = await client.ask(request * 50, size * 50)
        allowed += sum(told[at] for at in range(0, len(told), size))
    return allowed


@pytest.mark.parametrize("version", ["v2", "v5"])
def test_two_gateways_on_one_redis_give_out_exactly_the_quota(
    start_gateway: StartGateway, server: RedisServer, version: str
) -> None:
    """With any number of clients on either of them."""
    server.client().flushdb()
    ports = [free_port() for _ in range(GATEWAYS)]
    for port in ports:
        listener = f"listeners: [{{ throttr: {version}, bind: '127.0.0.1:{port}' }}]\n"
        start_gateway(f"store: {{ url: '{server.url}', deadline: 20s }}\n{listener}")
    if version == "v2":
        request = bytes.fromhex("01 e803000000000000 0100000000000000 02 100e000000000000")
        request, size, quota = request + bytes.fromhex(KEY2), 18, 1000
    else:
        request, size, quota = TAKE, 1, 1000

    async def consume(port: int) -> int:
        async with connected(port) as client:
            return await _consume(client, request, size, 300)

    async def all_of_them() -> list[int]:
        if version == "v5":
            async with connected(ports[0]) as first, connected(ports[1]) as second:
                assert await first.ask(INSERT, 1) == b"\1"
                assert await second.ask(INSERT, 1) == b"\0"
        return await asyncio.gather(*(consume(port) for port in ports * CLIENTS))

    allowed = asyncio.run(all_of_them())
    assert sum(allowed) == quota
    # Each gateway had its part in it.
    assert sum(allowed[0::2])
    assert sum(allowed[1::2])
