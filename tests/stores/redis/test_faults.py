"""What the Redis store does when its server fails in every way that servers do.

No failure is ever waited for by a decision, nothing but a `StoreError` comes of it, a call that
nobody waits for any more takes nothing, and when the server is back the store is too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from gateway.base.clock import monotonic_us, wall_us
from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.stores.base import Ask
from gateway.stores.redis.address import parse_redis_url
from gateway.stores.redis.clocked_connection import ServerTime
from gateway.stores.redis.pipe import MAX_CALLS, reply_error
from gateway.stores.redis.store import RedisStore
from tests.breaking import abort
from tests.processes import free_port
from tests.servers import RedisServer, until
from tests.stores.contract import BUCKET, DAY_US, LOG, ask, decide, remaining
from tests.stores.making import making, ready

PASSWORD = "s3cret-word"
LIMIT = replace(BUCKET, count=1000, burst=1000)

MakeStore = Callable[..., RedisStore]


@pytest.fixture
async def make_store() -> AsyncIterator[MakeStore]:
    """Makes stores that are closed when the test is over."""
    async with making(RedisStore, domain="faults", deadline_us=5_000_000) as make:
        yield make


@pytest.fixture
async def store(redis_server: RedisServer, make_store: MakeStore) -> RedisStore:
    """A store that is connected to the test's server."""
    return await ready(make_store(redis_server.url))


@pytest.fixture
def secret_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that wants a password."""
    server = RedisServer(tmp_path / "secret", password=PASSWORD)
    server.start()
    yield server
    server.stop()


async def failure(store: RedisStore) -> StoreError:
    """The error of one decision, which must not take long."""
    async with asyncio.timeout(20):
        with pytest.raises(StoreError) as caught:
            await store.decide([ask(LIMIT, "failing")])
    assert PASSWORD not in f"{caught.value!r} {caught.value} {store!r}"
    return caught.value


async def outcome(store: RedisStore) -> str:
    """The reason why one decision failed; empty if it did not."""
    try:
        await store.decide([ask(LIMIT, "failing")])
    except StoreError as error:
        told = f"{error!r} {error} {store!r}"
        return error.reason if PASSWORD not in told else "a secret was told"
    return ""


async def reason_becomes(store: RedisStore, reason: str) -> None:
    """Ask until the store fails for this reason, or answers if it is empty."""
    async with asyncio.timeout(15):
        # Nothing tells when a server has changed its mind but its answers.
        while (found := await outcome(store)) != reason:
            assert found != "a secret was told"
            await asyncio.sleep(0.01)


async def recovers(store: RedisStore) -> None:
    """Ask until the store answers."""
    await reason_becomes(store, "")


def clients(server: RedisServer) -> set[str]:
    """The addresses from which others are connected to a server."""
    with server.client() as client:
        own = client.client_id()
        return {each["addr"] for each in client.client_list() if int(each["id"]) != own}


async def test_a_server_that_is_not_there_yet(tmp_path: Path, make_store: MakeStore) -> None:
    """Starting does not fail, asking fails at once, and the server is found when it comes."""
    server = RedisServer(tmp_path / "late")
    store = make_store(server.url)
    await store.start()
    assert (await failure(store)).reason == "not_connected"
    await reason_becomes(store, "connect")
    assert not store.is_ready
    assert store.gateways == 1
    server.start()
    try:
        await recovers(store)
        assert store.is_ready
    finally:
        server.stop()


async def test_a_killed_server(redis_server: RedisServer, store: RedisStore) -> None:
    """Calls in flight fail with the connection, later ones immediately; a new server serves."""
    redis_server.freeze()
    calls = [asyncio.create_task(store.decide([ask(LIMIT)])) for _ in range(10)]
    await asyncio.sleep(0)
    redis_server.kill()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert isinstance(await failure(store), StoreUnavailable)
    assert not store.is_ready
    redis_server.start()
    await recovers(store)
    assert await remaining(store, LIMIT) == LIMIT.burst


@pytest.mark.parametrize("is_bounded", [True, False])
async def test_late_calls_take_nothing(
    redis_server: RedisServer, make_store: MakeStore, is_bounded: bool
) -> None:
    """What lay in a frozen server's socket is not spent after its caller has given up.

    Without a deadline the same calls are spent, which shows that they did arrive.
    """
    patient = await ready(make_store(redis_server.url))
    deadline_us = 20_000 if is_bounded else 0
    store = await ready(make_store(redis_server.url, deadline_us=deadline_us, heartbeat_s=60))
    await decide(patient, ask(LIMIT), ask(LOG))
    redis_server.freeze()
    for _ in range(4):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.decide([ask(LIMIT, cost=10), ask(LOG)]), 0.02)
    await _until_all_is_late(store)
    redis_server.thaw()
    with contextlib.suppress(StoreTimeout):
        # Answered, in whatever way, after the others.
        await decide(store, ask(LIMIT, "another"))
    left = (await remaining(patient, LIMIT), await remaining(patient, LOG))
    assert left == ((LIMIT.burst - 1, 4) if is_bounded else (LIMIT.burst - 41, 0))


async def _until_all_is_late(store: RedisStore) -> None:
    """Until the server's clock, as the store knows it, is past the deadline of what was sent."""
    late_us = max(lane.not_after_us(monotonic_us()) for lane in store._lanes)
    await until(lambda: wall_us() > late_us)


async def test_a_late_call_is_told_so(redis_server: RedisServer, make_store: MakeStore) -> None:
    """A caller that is still there when the server gets to a late call gets a timeout."""
    patient = await ready(make_store(redis_server.url))
    store = await ready(make_store(redis_server.url, deadline_us=1000))
    await decide(patient, ask(LIMIT))
    redis_server.freeze()
    call = asyncio.create_task(store.decide([ask(LIMIT)]))
    await asyncio.sleep(0)
    await _until_all_is_late(store)
    redis_server.thaw()
    with pytest.raises(StoreTimeout) as caught:
        await call
    assert caught.value.reason == "late"
    assert await remaining(patient, LIMIT) == LIMIT.burst - 1


async def test_a_frozen_server(redis_server: RedisServer, make_store: MakeStore) -> None:
    """It is not called ready for long, its connection is given up, and after a thaw it serves."""
    store = await ready(make_store(redis_server.url, heartbeat_s=0.3))
    redis_server.freeze()
    call = asyncio.create_task(store.decide([ask(LIMIT)]))
    with pytest.raises(StoreUnavailable) as caught:
        await asyncio.wait_for(call, 10)
    assert caught.value.reason == "stalled"
    assert not store.is_ready
    await failure(store)
    redis_server.thaw()
    await recovers(store)


async def test_unanswered_calls_do_not_pile_up(
    redis_server: RedisServer, make_store: MakeStore
) -> None:
    """A server that does not answer is not given ever more to do."""
    store = await ready(make_store(redis_server.url, heartbeat_s=60))
    redis_server.freeze()
    calls = [asyncio.create_task(store.decide([ask(LIMIT)])) for _ in range(MAX_CALLS + 20)]
    await asyncio.sleep(0)
    assert (await failure(store)).reason == "backlog"
    redis_server.thaw()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, StoreUnavailable) for result in results) >= 20
    assert await remaining(store, LIMIT) >= LIMIT.burst - MAX_CALLS


class Relay:
    """Between a store and its server: passes everything on, until an answer is to be cut off.

    Attributes:
        bytes_left: how much of what the server says still comes through; None for all.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.bytes_left: int | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL that leads through it."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with listener:
            yield f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._server.port)
        forth = asyncio.create_task(self._pass_on(reader, there[1]))
        with contextlib.suppress(ConnectionError):
            while data := await there[0].read(1 << 16):
                if self.bytes_left is not None:
                    writer.write(data[: self.bytes_left])
                    await writer.drain()
                    break
                writer.write(data)
        # A reset, if there is anything that has not been read; an end otherwise.
        abort(writer)
        there[1].close()
        forth.cancel()

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()


@pytest.mark.parametrize("bytes_left", [0, 1, 7])
async def test_an_answer_that_is_cut_off(
    redis_server: RedisServer, make_store: MakeStore, bytes_left: int
) -> None:
    """The call fails and is not made again: it was counted, and is counted once."""
    direct = await ready(make_store(redis_server.url))
    relay = Relay(redis_server)
    async with relay.listening() as url:
        store = await ready(make_store(url, heartbeat_s=60))
        await decide(store, ask(LIMIT, "cut"))
        relay.bytes_left = bytes_left
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.decide([ask(LIMIT, "cut")]), 5)
        relay.bytes_left = None
        await recovers(store)
        assert await remaining(direct, LIMIT, "cut") == LIMIT.burst - 2
        await store.aclose()


async def test_forgotten_scripts(redis_server: RedisServer, store: RedisStore) -> None:
    """Scripts that the server does not know are sent along in the same call."""
    with redis_server.client() as client:
        for round_number in range(1, 4):
            client.script_flush()
            (verdict,) = await decide(store, ask(LIMIT))
            assert verdict.decisions[0].remaining == LIMIT.burst - round_number
            client.script_flush()
            await store.give_back(ask(LOG), (await decide(store, ask(LOG)))[0])
            assert await remaining(store, LOG) == 5


async def test_a_server_where_script_is_forbidden(
    redis_server: RedisServer, make_store: MakeStore
) -> None:
    """As behind many proxies: EVAL alone is enough."""
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-script", "-ping")
    store = await ready(make_store(redis_server.url))
    (verdict,) = await decide(store, ask(LIMIT))
    assert verdict.allowed
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "+ping")


async def test_a_password_that_changes(secret_server: RedisServer, make_store: MakeStore) -> None:
    """The reason is reported without a secret, and the server is not flooded."""
    store = await ready(make_store(secret_server.url))
    with secret_server.client() as client:
        client.config_set("requirepass", "another")
        client.client_kill_filter(_type="normal", skipme=True)
        await reason_becomes(store, "wrongpass")
        before = client.info("stats")["total_connections_received"]
        for _ in range(50):
            assert (await failure(store)).reason == "wrongpass"
        assert client.info("stats")["total_connections_received"] - before <= 3
        client.config_set("requirepass", PASSWORD)
    await recovers(store)


async def test_a_password_that_is_missing(
    secret_server: RedisServer, make_store: MakeStore
) -> None:
    """A server that requires one reports it immediately."""
    store = make_store(f"redis://127.0.0.1:{secret_server.port}")
    await store.start()
    await reason_becomes(store, "noauth")
    assert not store.is_ready


async def test_rights_that_are_taken_away(redis_server: RedisServer, store: RedisStore) -> None:
    """A user who may not run scripts gets no decisions, until this is allowed again."""
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        await reason_becomes(store, "noperm")
        client.execute_command("ACL", "SETUSER", "default", "+eval", "+evalsha")
    await recovers(store)


async def test_a_full_server(redis_server: RedisServer, store: RedisStore) -> None:
    """Out of memory: nothing is spent, not even part of a batch; the connection stays."""
    await decide(store, ask(LIMIT))
    connected = clients(redis_server)
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable) as caught:
            await store.decide([ask(LIMIT), ask(LOG), ask(LIMIT)])
        assert caught.value.reason == "oom"
        assert await remaining(store, LIMIT) == LIMIT.burst - 1
        client.config_set("maxmemory", 0)
    assert (await decide(store, ask(LIMIT)))[0].allowed
    assert connected <= clients(redis_server)


@pytest.mark.parametrize(
    ("policy", "maxmemory", "warnings"),
    [
        ("allkeys-lru", "50mb", 1),
        ("volatile-ttl", "50mb", 1),
        ("noeviction", "50mb", 0),
        ("allkeys-lru", "0", 0),
    ],
)
async def test_a_server_that_may_forget_counts(
    *,
    tmp_path: Path,
    make_store: MakeStore,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    maxmemory: str,
    warnings: int,
) -> None:
    """The operator gets one warning with the fix; the store still works."""
    options = ("--maxmemory", maxmemory, "--maxmemory-policy", policy)
    server = RedisServer(tmp_path / "evicting", options)
    server.start()
    try:
        store = await ready(make_store(server.url))
        with server.client() as client:
            before = clients(server)
            client.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: not before & clients(server))
        await recovers(store)
    finally:
        server.stop()
    told = [record.getMessage() for record in caplog.records if "maxmemory" in record.getMessage()]
    assert len(told) == warnings
    assert all(f"policy {policy})" in line and "noeviction" in line for line in told)


async def test_a_server_that_does_not_tell_what_it_is_like(
    redis_server: RedisServer, make_store: MakeStore
) -> None:
    """INFO may be forbidden: then nothing is known of that, and nothing else is missing."""
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-info")
    store = await ready(make_store(redis_server.url))
    assert await remaining(store, LIMIT) == LIMIT.burst
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "+info")


async def test_a_primary_without_its_replicas(redis_server: RedisServer, store: RedisStore) -> None:
    """With `min-replicas-to-write` it takes nothing, so that a failover can lose nothing."""
    await decide(store, ask(LIMIT))
    with redis_server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        await reason_becomes(store, "noreplicas")
        client.config_set("min-replicas-to-write", 0)
    await recovers(store)
    assert await remaining(store, LIMIT) == LIMIT.burst - 1


async def test_a_server_that_cannot_save(tmp_path: Path, make_store: MakeStore) -> None:
    """It accepts no writes until it can: the policies apply meanwhile."""
    server = RedisServer(tmp_path, ("--save", "3600 1", "--dbfilename", "taken"))
    server.start()
    try:
        (tmp_path / "taken").mkdir()
        store = await ready(make_store(server.url))
        await decide(store, ask(LIMIT))
        with server.client() as client:
            client.bgsave()
            # A file cannot take the place of a folder.
            await reason_becomes(store, "misconf")
            (tmp_path / "taken").rmdir()
            client.bgsave()
        await recovers(store)
        assert await remaining(store, LIMIT) == LIMIT.burst - 1
    finally:
        server.stop()


async def test_a_replica_that_lost_its_primary(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """One that does not serve stale data replies `MASTERDOWN`, and is not trusted."""
    with redis_server.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", free_port())
        assert await outcome(store) in {"masterdown", "readonly"}
        client.replicaof("NO", "ONE")
    await recovers(store)


async def test_a_primary_that_becomes_a_replica(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """It is left, for its name may lead to the new primary; when it is one again, it serves."""
    with redis_server.client() as client:
        before = clients(redis_server)
        client.replicaof("127.0.0.1", free_port())
        await reason_becomes(store, "readonly")
        await until(lambda: not before & clients(redis_server))
        client.replicaof("NO", "ONE")
    await recovers(store)


async def test_a_server_that_loads(tmp_path: Path, make_store: MakeStore) -> None:
    """While it reads its data from disk the store is not ready, then it is."""
    # 15 s, unless it is told to be quicker.
    options = ("--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024")
    server = RedisServer(tmp_path / "loading", options)
    server.start()
    with server.client() as client:
        client.mset({f"filler:{number}": "x" * 20 for number in range(5000)})
        client.save()
    server.kill()
    store = make_store(server.url)
    server.start(is_loading_enough=True)
    try:
        await store.start()
        await reason_becomes(store, "loading")
        assert not store.is_ready
        with server.client() as client:
            client.config_set("key-load-delay", 0)
        await recovers(store)
    finally:
        server.stop()


async def test_a_server_that_is_busy_with_a_script(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """A runaway script of another program: refused as soon as the server reports it."""
    with redis_server.client() as client, redis_server.client() as culprit:
        client.config_set("busy-reply-threshold", 20)

        def run_away() -> None:
            with pytest.raises(redis.RedisError):
                culprit.eval("while true do end", 0)

        thread = threading.Thread(target=run_away)
        thread.start()
        await reason_becomes(store, "busy")
        client.script_kill()
        thread.join(10)
    await recovers(store)


async def test_cancelled_calls_never_get_each_others_answers(store: RedisStore) -> None:
    """Answers of calls that were given up are read and thrown away, never handed on.

    Every key has its own number of requests left, so an answer that went astray would show.
    """
    keys = [f"key-{number}" for number in range(200)]
    await decide(
        store, *[ask(LIMIT, key, cost=number) for number, key in enumerate(keys) if number]
    )
    dice = random.Random(7)

    async def look(number: int) -> None:
        call = asyncio.create_task(remaining(store, LIMIT, keys[number]))
        if dice.random() < 0.5:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await call == LIMIT.burst - number

    for _ in range(20):
        await asyncio.gather(*[look(dice.randrange(200)) for _ in range(100)])


async def test_two_gateways_admit_exactly_the_limit(
    redis_server: RedisServer, make_store: MakeStore
) -> None:
    """However hard two gateways hammer one key, together they admit the limit."""
    first = await ready(make_store(redis_server.url))
    second = await ready(make_store(redis_server.url, connections=3))
    log = replace(LOG, count=1000, burst=1000)
    passed = {LIMIT.scope: 0, log.scope: 0}

    async def hammer(store: RedisStore) -> None:
        for _ in range(40):
            for limit in (LIMIT, log):
                verdicts = await store.decide([ask(limit)] * 17)
                passed[limit.scope] += sum(verdict.allowed for verdict in verdicts)

    await asyncio.gather(hammer(first), hammer(second), hammer(second))
    assert set(passed.values()) == {1000}
    assert redis_server.keys_without_ttl() == []


async def test_keys_that_would_live_for_ever_are_mended(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """A refusal writes nothing else, but it sees to it that what it refused for will end."""
    await decide(store, ask(BUCKET, cost=5), ask(LOG, cost=5))
    assert redis_server.keys_without_ttl() == []
    with redis_server.client() as client:
        names = list(client.scan_iter("faults:contract/*"))
        assert len(names) == 2
        for name in names:
            client.persist(name)
        verdicts = await decide(store, ask(BUCKET), ask(LOG))
        assert not any(verdict.allowed for verdict in verdicts)
        for name in names:
            assert DAY_US // 1000 - 60_000 < client.pttl(name) <= DAY_US // 1000 + 2


async def test_a_short_life_becomes_longer_with_the_limit(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """A key that was to end soon must not, when its limit has become slower."""
    quick = replace(LOG, period_us=60_000_000)
    await decide(store, ask(quick, cost=5))
    assert not (await decide(store, ask(LOG)))[0].allowed
    with redis_server.client() as client:
        (name,) = client.scan_iter("faults:contract/*")
        assert client.pttl(name) > DAY_US // 1000 - 60_000


async def test_keys_of_another_type_harm_nobody(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """A foreign value in a key's place counts as nothing; the rest of a batch is served."""
    await decide(store, ask(BUCKET, "odd"), ask(LOG, "odd"))
    with redis_server.client() as client:
        names = list(client.scan_iter("faults:contract/*"))
        for value in ("text", "12", "1e5", "", "9" * 400):
            for name in names:
                client.set(name, value)
            verdicts = await decide(
                store, ask(BUCKET), ask(BUCKET, "odd", 0), ask(LOG, "odd"), ask(LOG)
            )
            assert all(verdict.allowed for verdict in verdicts)
        for name in names:
            client.delete(name)
            client.hset(name, "field", "value")
        verdicts = await decide(store, ask(BUCKET, "odd"), ask(LOG, "odd"), ask(LOG, "other"))
        assert [verdict.decisions[0].remaining for verdict in verdicts] == [4, 4, 4]
        for name in names:
            client.delete(name)
            client.rpush(name, "junk", "junk")
        (verdict,) = await decide(store, ask(LOG, "odd"))
        assert verdict.allowed
        await store.give_back(ask(BUCKET, "odd"), verdict)


async def test_gateways_count_each_other(redis_server: RedisServer, make_store: MakeStore) -> None:
    """Those that beat are counted, one that signs off is not, one that falls silent neither."""
    first, second, third = (make_store(redis_server.url, heartbeat_s=0.2) for _ in range(3))
    for store in (first, second, third):
        await ready(store)
    await until(lambda: {first.gateways, second.gateways, third.gateways} == {3})
    await third.aclose()
    await until(lambda: {first.gateways, second.gateways} == {2})
    with redis_server.client() as client:
        client.zadd("faults:{gateways}", {"silent": time.time() * 1000 - 10_000, "future": 10**14})
        # Each beat sets it.
        await until(lambda: 0 < client.pttl("faults:{gateways}") <= 600)
    await until(lambda: first.gateways == 2)
    redis_server.kill()
    await until(lambda: not first.is_ready)
    assert first.gateways == 2


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n" * 99, b""])
async def test_a_server_that_is_no_redis(make_store: MakeStore, answer: bytes) -> None:
    """Whatever answers at that address, it is never ready and nothing but a `StoreError` comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        store = make_store(f"redis://:{PASSWORD}@127.0.0.1:{port}")
        await store.start()
        await until(lambda: "(not_connected)" not in repr(store))
        assert isinstance(await failure(store), StoreUnavailable)
        assert not store.is_ready
        await store.aclose()


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("READONLY You can't write against a read only replica.", StoreUnavailable, "readonly"),
        ("MISCONF Redis is configured to save RDB snapshots", StoreUnavailable, "misconf"),
        (
            "ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed",
            StoreUnavailable,
            "oom",
        ),
        ("ERR user_script:3: attempt to index a nil value", StoreReplyError, "reply"),
        ("MOVED 866 10.0.0.1:6379", StoreUnavailable, "moved"),
    ],
)
def test_error_answers_are_told_apart(text: str, kind: type[StoreError], reason: str) -> None:
    """The word that a server begins an error with is the reason; older ones hide it inside."""
    error = reply_error(redis.ResponseError(text))
    assert (type(error), error.reason) == (kind, reason)


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@host",
        f"redis://:{PASSWORD}@host/name",
        f"redis://:{PASSWORD}@host:port",
        f"redis://:{PASSWORD}@host:99999999",
        f"redis://host?password={PASSWORD}&colour=blue",
        f"redis://host?db={PASSWORD}",
        f"redis://:{PASSWORD}@host?ssl_ca_certs=/x",
        f"rediss://:{PASSWORD}@host?ssl_ca_certs=/does/not/exist",
        f"rediss://:{PASSWORD}@host?ssl_cert_reqs=perhaps",
        f"unix://?password={PASSWORD}",
        f"redis://:{PASSWORD}@[::1",
    ],
)
def test_unusable_urls_are_refused_without_telling_secrets(url: str) -> None:
    """The operator learns what is wrong, a log never learns the password."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every text is looked at
        parse_redis_url(url)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_usable_urls() -> None:
    """Everything that may be in one is found; the password is not shown."""
    address = parse_redis_url(f"redis://user:{PASSWORD}%40@[::1]:7000/4")
    assert (address.host, address.port, address.db) == ("::1", 7000, 4)
    assert (address.username, address.password) == ("user", f"{PASSWORD}@")
    assert PASSWORD not in f"{address!r} {address}"
    assert str(address) == "[::1]:7000"
    assert str(parse_redis_url("unix:///run/redis.sock?db=1")) == "/run/redis.sock"
    assert str(parse_redis_url("redis://localhost")) == "localhost:6379"


def test_the_estimate_of_the_servers_clock_errs_on_the_late_side() -> None:
    """It is bounded by the latest possible moment, narrows, and believes a clock that was set."""
    estimate = ServerTime()
    assert estimate.latest_us(0) is None
    estimate.observe(100, 200, 5_150)
    assert estimate.latest_us(200) == 5_250
    estimate.observe(300, 310, 5_305)
    assert estimate.latest_us(310) == 5_315
    estimate.observe(400, 900, 5_890)
    assert estimate.latest_us(900) == 5_905
    estimate.observe(1_000, 1_010, 99_000)
    assert estimate.latest_us(1_010) == 99_010
    estimate.forget()
    assert estimate.latest_us(1_010) is None


async def test_giving_back_to_a_store_that_is_away_fails(
    redis_server: RedisServer, store: RedisStore
) -> None:
    """It stays spent, and the caller gets an error: too few pass then, never too many."""
    question = Ask((LIMIT, LOG), ("k", "k"), 1, 0)
    (verdict,) = await decide(store, question)
    redis_server.kill()
    await until(lambda: not store.is_ready)
    with pytest.raises(StoreUnavailable):
        await store.give_back(question, verdict)
