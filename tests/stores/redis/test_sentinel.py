"""The Redis store behind Sentinels: finding the primary, following a failover, being let in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gateway.base.errors import StoreError
from gateway.stores.opening import open_store
from gateway.stores.redis.address import parse_redis_url
from gateway.stores.redis.sentinel import Sentinels
from gateway.stores.redis.store import RedisStore
from tests.processes import free_port
from tests.servers import SentinelServers, becomes, replicated, run, until
from tests.stores.contract import BUCKET, ask, decide, remaining

LIMIT = replace(BUCKET, count=100, burst=100)


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[SentinelServers]:
    """A primary, its replica and three Sentinels."""
    servers = SentinelServers(tmp_path / "sentinels", sentinel_password="s3cret-word")
    servers.start()
    yield servers
    servers.stop()


async def answers(store: RedisStore) -> bool:
    """Whether a look is answered."""
    try:
        async with asyncio.timeout(5):
            await remaining(store, LIMIT)
    except (StoreError, TimeoutError):
        return False
    return True


async def recovers(store: RedisStore) -> None:
    """Ask until the store answers."""
    await becomes(partial(answers, store), True, 20)


async def test_a_failover(sentinels: SentinelServers) -> None:
    """The new primary is found; what passes in all is the limit and what it never heard of.

    The replica is frozen and cut off while the last requests are counted, so all of them are
    lost. The old primary, when it comes back, is not believed.
    """
    store = open_store(sentinels.url, domain="sentinel", deadline_us=500_000)
    assert isinstance(store, RedisStore)
    await store.start()
    try:
        await until(lambda: store.is_ready)
        passed = sum(verdict.allowed for verdict in await decide(store, *[ask(LIMIT)] * 30))
        await replicated(sentinels.primary, sentinels.replica)
        sentinels.replica.freeze()
        run(sentinels.primary, "CLIENT", "KILL", "TYPE", "replica")
        unheard = sum(verdict.allowed for verdict in await decide(store, *[ask(LIMIT)] * 40))
        sentinels.primary.kill()
        sentinels.replica.thaw()
        await until(lambda: not store.is_ready)
        with pytest.raises(StoreError):
            await store.decide([ask(LIMIT)])
        await until(lambda: sentinels.primary_port() == sentinels.replica.port, 20)
        await recovers(store)
        sentinels.primary.start()
        after = await decide(store, *[ask(LIMIT)] * 200)
        passed += unheard + sum(verdict.allowed for verdict in after)
        assert unheard == 40
        assert passed == 100 + unheard
        assert await remaining(store, LIMIT) == 0
    finally:
        await store.aclose()


async def test_a_planned_failover_is_followed_without_losing_a_count(
    sentinels: SentinelServers,
) -> None:
    """Sentinels that name another primary are enough: the old connection need not break."""
    store = RedisStore(sentinels.url, domain="sentinel", deadline_us=500_000, heartbeat_s=60)
    await store.start()
    try:
        await until(lambda: store.is_ready)
        await decide(store, *[ask(LIMIT)] * 30)
        await replicated(sentinels.primary, sentinels.replica)
        run(sentinels.sentinels[0], "SENTINEL", "FAILOVER", sentinels.SERVICE)
        await until(lambda: sentinels.primary_port() == sentinels.replica.port, 20)

        async def is_asked() -> bool:
            stats = run(sentinels.replica, "INFO", "commandstats")
            return await answers(store) and "cmdstat_evalsha" in stats

        await becomes(is_asked, True)
        assert await remaining(store, LIMIT) == 70
    finally:
        await store.aclose()


async def test_sentinels_that_are_away(sentinels: SentinelServers) -> None:
    """A working connection needs none of them; a new one needs one that answers."""
    store = RedisStore(sentinels.url, domain="sentinel", deadline_us=500_000)
    await store.start()
    try:
        await until(lambda: store.is_ready)
        for sentinel in sentinels.sentinels:
            sentinel.freeze()
        run(sentinels.primary, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: "(sentinel)" in repr(store))
        assert not await answers(store)
        sentinels.sentinels[2].thaw()
        await recovers(store)
    finally:
        await store.aclose()


async def test_who_names_nobody_is_told_so(tmp_path: Path) -> None:
    """No Sentinel there, or one that knows no such service: the reason is `sentinel`."""
    place = Sentinels(
        [parse_redis_url(f"redis://127.0.0.1:{free_port()}")],
        "counts",
        parse_redis_url("redis://localhost"),
    )
    with pytest.raises(StoreError) as caught:
        await place.locate()
    assert caught.value.reason == "sentinel"


async def test_a_replica_that_is_named_is_not_used(sentinels: SentinelServers) -> None:
    """A Sentinel that has not noticed the change yet does not lead to a replica."""
    store = RedisStore(sentinels.url, domain="sentinel", deadline_us=500_000)
    run(sentinels.primary, "REPLICAOF", "127.0.0.1", free_port())
    await store.start()
    try:
        await until(lambda: "(readonly)" in repr(store))
        assert not await answers(store)
        run(sentinels.primary, "REPLICAOF", "NO", "ONE")
        await recovers(store)
    finally:
        await store.aclose()
