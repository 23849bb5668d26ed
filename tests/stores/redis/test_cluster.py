"""The store of a Redis Cluster: three primaries, real ones, that move slots, fail and come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.limiter.decider import Decider
from gateway.limiter.outcome import Outcome
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, ShardedStore
from gateway.stores.memory.store import MemoryStore
from gateway.stores.migrating import chosen, moving_store
from gateway.stores.opening import open_store
from gateway.stores.redis.cluster import RedisClusterStore
from gateway.stores.redis.slots import slot_of
from tests.limiter.test_decider import rule
from tests.servers import ClusterServers, RedisServer, becomes, replicated, run, until
from tests.stores.contract import BUCKET, DAY_US, LOG, StoreContract, ask, decide, remaining
from tests.stores.making import making, ready

LIMIT = replace(BUCKET, count=1000, burst=1000)
OTHER = replace(BUCKET, count=1000, burst=1000, scope="contract/other")
SLOTS_HELD = Limit(5, DAY_US, 5, "concurrency", scope="contract/held")

MakeStore = Callable[..., RedisClusterStore]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    """A Cluster for tests that leave it as it was."""
    servers = ClusterServers(tmp_path_factory.mktemp("cluster"))
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ClusterServers]:
    """A Cluster of the test's own, which it may break; with a replica for each primary."""
    servers = ClusterServers(tmp_path / "own", node_timeout_ms=800)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
async def make_store() -> AsyncIterator[MakeStore]:
    """Makes stores that are closed when the test is over."""
    async with making(RedisClusterStore, domain="cluster", deadline_us=5_000_000) as make:
        yield make


@pytest.fixture
async def store(cluster: ClusterServers, make_store: MakeStore) -> RedisClusterStore:
    """A store in an empty Cluster, connected to all of it."""
    cluster.flush()
    return await ready(make_store(cluster.url))


def key_in(server_of: Callable[[int], RedisServer], server: RedisServer, prefix: str = "k") -> str:
    """An identity whose slot a server has."""
    return next(
        key
        for key in (f"{prefix}{number}" for number in range(1000))
        if server_of(slot_of(key)) is server
    )


async def answers(store: RedisClusterStore, key: str) -> str:
    """The reason why a look failed; empty if it did not."""
    try:
        async with asyncio.timeout(20):
            await remaining(store, LIMIT, key)
    except StoreError as error:
        return error.reason
    return ""


async def recovers(store: RedisClusterStore, *keys: str) -> None:
    """Ask until all of these keys are answered for."""
    for key in keys:
        await becomes(partial(answers, store, key), "")


class TestCluster(StoreContract):
    """Three primaries keep the contract of all stores."""

    @pytest.fixture
    async def store(self, cluster: ClusterServers) -> AsyncIterator[RedisClusterStore]:
        """A store in an empty Cluster."""
        cluster.flush()
        store = RedisClusterStore(cluster.url, domain="contract", deadline_us=2_000_000)
        yield await ready(store)
        await store.aclose()
        assert [server.keys_without_ttl() for server in cluster.primaries] == [[], [], []]


def test_a_url_opens_it(cluster: ClusterServers) -> None:
    """The scheme leads here, and a store of shards is what comes."""
    store = open_store(cluster.url, domain="cluster", deadline_us=20_000)
    assert isinstance(store, RedisClusterStore)
    assert isinstance(store, ShardedStore)


async def test_limits_of_different_identities_are_spent_together_or_not_at_all(
    cluster: ClusterServers, store: RedisClusterStore
) -> None:
    """Across servers too: what one of them took for an ask that another refused is given back."""
    keys = tuple(key_in(cluster.owner, server) for server in cluster.primaries)
    narrow = replace(BUCKET, burst=1, scope="contract/narrow")
    limits = (LIMIT, OTHER, narrow)
    question = Ask(limits, keys, 1, 0)
    for number in range(20):
        (verdict,) = await decide(store, question)
        assert verdict.allowed is (number == 0)
        assert [decision.allowed for decision in verdict.decisions] == [True, True, number == 0]
        assert await remaining(store, LIMIT, keys[0]) >= 998
    left = [await remaining(store, limit, key) for limit, key in zip(limits, keys, strict=True)]
    assert left == [999, 999, 0]
    assert isinstance(store.shard(question), frozenset)


async def test_what_is_taken_across_servers_can_be_given_back_and_renewed(
    cluster: ClusterServers, store: RedisClusterStore
) -> None:
    """`give_back` and `renew` reach each limit on its server."""
    keys = tuple(key_in(cluster.owner, server) for server in cluster.primaries)
    log, held = replace(LOG, scope="contract/a"), SLOTS_HELD
    question = Ask((log, held, replace(held, scope="contract/held-2")), keys, 2, 0)
    (verdict,) = await decide(store, question)
    assert await store.renew(question, verdict)
    await store.give_back(question, verdict)
    assert not await store.renew(question, verdict)
    (verdict,) = await decide(store, question)
    assert [decision.remaining for decision in verdict.decisions] == [3, 3, 3]


async def test_a_caller_that_gives_up_leaves_nothing_taken_on_one_server_only(
    own_cluster: ClusterServers, make_store: MakeStore
) -> None:
    """If one server hangs, what others took for the same ask is given back on leaving."""
    cluster = own_cluster
    store = await ready(make_store(cluster.url))
    first, second = cluster.primaries[:2]
    keys = (key_in(cluster.owner, first), key_in(cluster.owner, second))
    await decide(store, ask(LIMIT, keys[0]), ask(OTHER, keys[1]))
    second.freeze()
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.decide([Ask((LIMIT, OTHER), keys, 1, 0)]), 0.1)
        await becomes(partial(remaining, store, LIMIT, keys[0]), 999)
    finally:
        second.thaw()


async def test_scripts_that_were_forgotten(
    cluster: ClusterServers, store: RedisClusterStore
) -> None:
    """Every server receives the script again in the same call."""
    for server in cluster.primaries:
        run(server, "SCRIPT", "FLUSH")
    verdicts = await decide(store, *[ask(LIMIT, f"k{number}") for number in range(50)])
    assert {verdict.decisions[0].remaining for verdict in verdicts} == {999}


async def test_a_slot_that_has_moved(cluster: ClusterServers, store: RedisClusterStore) -> None:
    """`MOVED` is followed at once and remembered; no count is lost."""
    source, target = cluster.primaries[:2]
    key = key_in(cluster.owner, source, "moved")
    slot = slot_of(key)
    assert (await decide(store, ask(LIMIT, key)))[0].allowed
    cluster.move(slot, source, target)
    try:
        assert await remaining(store, LIMIT, key) == 999
        assert store.shard(ask(LIMIT, key)) == f"127.0.0.1:{target.port}"
    finally:
        cluster.move(slot, target, source)
    assert await remaining(store, LIMIT, key) == 999


async def test_a_slot_that_is_moving(cluster: ClusterServers, store: RedisClusterStore) -> None:
    """Keys that are here, there (`ASK`) or half of each (`TRYAGAIN`) are all decided on exactly."""
    source, target = cluster.primaries[:2]
    key = key_in(cluster.owner, source, "moving")
    slot = slot_of(key)
    both = Ask((LIMIT, OTHER), (key, key), 1, 0)
    assert (await decide(store, ask(LIMIT, key)))[0].allowed
    cluster.begin_move(slot, source, target)
    try:
        # LIMIT's key is at the source, OTHER's nowhere: in one call that would be TRYAGAIN.
        verdict = (await decide(store, both))[0]
        assert [decision.remaining for decision in verdict.decisions] == [998, 999]
        for left in (997, 996):
            (verdict,) = await decide(store, both)
            assert verdict.allowed
            assert [decision.remaining for decision in verdict.decisions] == [left, left + 1]
        (refused,) = await decide(store, both._replace(cost=997))
        assert [decision.allowed for decision in refused.decisions] == [False, True]
        assert await remaining(store, LIMIT, key) == 996
        await store.give_back(both, verdict)
        cluster.move_keys(slot, source, target)
        (verdict,) = await decide(store, both)
        assert [decision.remaining for decision in verdict.decisions] == [996, 997]
    finally:
        cluster.move_keys(slot, source, target)
        cluster.end_move(slot, target)
        cluster.move(slot, target, source)
    assert await remaining(store, LIMIT, key) == 996


async def test_gateways_count_each_other(cluster: ClusterServers, make_store: MakeStore) -> None:
    """As in one server: the sign of life is kept by one of them."""
    cluster.flush()
    stores = [await ready(make_store(cluster.url, heartbeat_s=0.1)) for _ in range(2)]
    await until(lambda: [store.gateways for store in stores] == [2, 2])
    await stores[1].aclose()
    await until(lambda: stores[0].gateways == 1)


async def test_a_server_that_is_full_and_one_that_hangs_up(
    cluster: ClusterServers, store: RedisClusterStore
) -> None:
    """Each fails its own keys only, for its own reason, and is used again when it can be."""
    full, hanging = cluster.primaries[:2]
    keys = [key_in(cluster.owner, server) for server in cluster.primaries]
    await decide(store, *[ask(LIMIT, key) for key in keys])
    run(full, "CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.decide([ask(LIMIT, keys[0])])
        assert caught.value.reason == "oom"
        run(hanging, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert (await decide(store, ask(LIMIT, keys[2])))[0].decisions[0].remaining == 998
    finally:
        run(full, "CONFIG", "SET", "maxmemory", 0)
    await recovers(store, *keys)
    assert [await remaining(store, LIMIT, key) for key in keys] == [999, 999, 998]


@pytest.mark.parametrize("is_from_cluster", [True, False])
async def test_a_shard_that_is_lost_while_counts_move(
    own_cluster: ClusterServers, make_store: MakeStore, *, is_from_cluster: bool
) -> None:
    """A lost server of the old store concerns its own keys only, one of the new store no key.

    Of the new one, too, its own keys are missed and no others.
    """
    there, here = await ready(make_store(own_cluster.url)), MemoryStore()
    old, new = (there, here) if is_from_cluster else (here, there)
    main, other = StoreMetrics(), StoreMetrics()
    moving = moving_store(old, new, chosen(PARTS_PER_WHOLE), deadline_us=500_000, metrics=other)
    decider = Decider(moving, deadline_us=500_000, share=1, max_waiting=1, metrics=main)
    keys = [key_in(own_cluster.owner, server) for server in own_cluster.primaries]
    own_cluster.servers[4].kill()
    own_cluster.servers[1].kill()
    await until(lambda: "down" in repr(there))

    async def is_alone(key: str) -> bool:
        outcome = decider.decide(ask(LIMIT, key), [rule(LIMIT)])
        return (outcome if isinstance(outcome, Outcome) else await outcome).alone

    for _ in range(20):
        alone = await asyncio.gather(*map(is_alone, keys))
        assert alone == [False, is_from_cluster, False]
    assert other.missed == (0 if is_from_cluster else 20)
    assert decider.is_ready
    await decider.aclose()


async def test_a_shard_that_is_lost(own_cluster: ClusterServers, make_store: MakeStore) -> None:
    """Only its own keys fail, at once; the others are decided on, alone or in one batch apart."""
    store = await ready(make_store(own_cluster.url))
    lost, replica = own_cluster.servers[1], own_cluster.servers[4]
    keys = [key_in(own_cluster.owner, server) for server in own_cluster.primaries]
    replica.kill()
    lost.kill()
    await until(lambda: "down" in repr(store))
    for _ in range(50):
        assert await answers(store, keys[0]) == ""
        assert await answers(store, keys[2]) == ""
        assert await answers(store, keys[1]) != ""
    shards = {store.shard(ask(LIMIT, key)) for key in keys}
    assert len(shards) == 3
    both = Ask((LIMIT, OTHER), (keys[0], keys[1]), 1, 0)
    with pytest.raises(StoreUnavailable):
        await store.decide([both])
    assert await remaining(store, LIMIT, keys[0]) == 1000
    assert store.is_ready
    lost.start()
    await recovers(store, *keys)


async def test_a_cluster_that_is_down_says_so(
    own_cluster: ClusterServers, make_store: MakeStore
) -> None:
    """A slot without a server is `clusterdown`; when it has one, it is answered."""
    store = await ready(make_store(own_cluster.url))
    primary = own_cluster.primaries[0]
    key = key_in(own_cluster.owner, primary)
    slot = slot_of(key)
    for server in own_cluster.servers:
        with contextlib.suppress(Exception):
            run(server, "CLUSTER", "DELSLOTS", slot)
    await becomes(partial(answers, store, key), "clusterdown")
    run(primary, "CLUSTER", "ADDSLOTS", slot)
    await recovers(store, key)


async def test_a_failover_loses_no_more_than_what_was_never_replicated(
    own_cluster: ClusterServers, make_store: MakeStore
) -> None:
    """The replica takes over by itself; what passes in all is the limit and what it never heard.

    The replica is frozen and cut off while the last requests are counted, so all of them are lost.
    """
    store = await ready(make_store(own_cluster.url, heartbeat_s=0.5))
    primary, replica = own_cluster.servers[2], own_cluster.servers[5]
    key = key_in(own_cluster.owner, primary)
    limit = replace(LIMIT, count=100, burst=100)
    passed = sum(verdict.allowed for verdict in await decide(store, *[ask(limit, key)] * 30))
    await replicated(primary, replica)
    replica.freeze()
    run(primary, "CLIENT", "KILL", "TYPE", "replica")
    unheard = sum(verdict.allowed for verdict in await decide(store, *[ask(limit, key)] * 40))
    primary.kill()
    replica.thaw()
    await until(lambda: own_cluster.owner(slot_of(key), asked=0) is replica)
    await recovers(store, key)
    after = await decide(store, *[ask(limit, key)] * 200)
    passed += unheard + sum(verdict.allowed for verdict in after)
    assert unheard == 40
    assert passed == 100 + unheard


async def test_a_planned_failover_loses_nothing(
    own_cluster: ClusterServers, make_store: MakeStore
) -> None:
    """Primary and replica change places under load; exactly the limit passes."""
    store = await ready(make_store(own_cluster.url))
    primary, replica = own_cluster.servers[0], own_cluster.servers[3]
    key = key_in(own_cluster.owner, primary)
    limit = replace(LIMIT, count=200, burst=200)
    passed = 0
    for number in range(120):
        if number == 40:
            run(replica, "CLUSTER", "FAILOVER")
        with contextlib.suppress(StoreError):
            passed += sum(
                verdict.allowed for verdict in await decide(store, *[ask(limit, key)] * 4)
            )
        await asyncio.sleep(0.005)
    await until(lambda: store.shard(ask(limit, key)) == f"127.0.0.1:{replica.port}")
    await recovers(store, key)
    assert passed <= 200
    assert passed + await remaining(store, limit, key) <= 200
