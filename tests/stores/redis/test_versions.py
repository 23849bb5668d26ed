"""The Redis store on other servers than the one that is installed: Redis 6.2 and 8, Valkey.

Where there is no package of them for a platform, these tests have nothing to run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.stores.redis.cluster import RedisClusterStore
from gateway.stores.redis.store import RedisStore
from tests.programs import PROGRAMS, program
from tests.servers import ClusterServers, RedisServer, run, until
from tests.stores.contract import StoreContract
from tests.stores.redis.records import check_version_2, check_version_5
from tests.stores.twins import check_sequence


@pytest.fixture(scope="module", params=PROGRAMS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """A server of each kind."""
    name: str = request.param
    running = RedisServer(tmp_path_factory.mktemp(name), command=program(name))
    running.start()
    info = run(running, "INFO", "server")
    field = "valkey_version" if name.startswith("valkey") else "redis_version"
    assert str(info[field]).startswith(PROGRAMS[name][2])
    yield running
    running.stop()


@pytest.fixture(scope="module", params=["redis-8", "valkey-8"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterServers]:
    """A Cluster of three primaries of each kind that can be told its ports."""
    name: str = request.param
    servers = ClusterServers(
        tmp_path_factory.mktemp(f"cluster-{name}"), replicas=False, command=program(name)
    )
    servers.start()
    yield servers
    servers.stop()


class TestVersions(StoreContract):
    """The contract of all stores."""

    @pytest.fixture
    async def store(self, server: RedisServer) -> AsyncIterator[RedisStore]:
        """A store in an empty database."""
        run(server, "FLUSHALL")
        store = RedisStore(server.url, domain="contract", deadline_us=2_000_000)
        await store.start()
        await until(lambda: store.is_ready)
        yield store
        await store.aclose()
        assert server.keys_without_ttl() == []


class TestClusterVersions(StoreContract):
    """The contract of all stores, in a Cluster."""

    @pytest.fixture
    async def store(self, cluster: ClusterServers) -> AsyncIterator[RedisClusterStore]:
        """A store in an empty Cluster."""
        cluster.flush()
        store = RedisClusterStore(cluster.url, domain="contract", deadline_us=2_000_000)
        await store.start()
        await until(lambda: store.is_ready and "down" not in repr(store))
        yield store
        await store.aclose()
        assert [server.keys_without_ttl() for server in cluster.primaries] == [[], [], []]


@settings(max_examples=25)
@given(data=st.data())
def test_the_scripts_equal_their_originals(server: RedisServer, data: st.DataObject) -> None:
    """As on the installed server, field by field and state by state."""
    with server.client() as client:
        check_sequence(client, data)


@settings(max_examples=15)
@given(data=st.data())
def test_records_of_throttr_are_as_their_models_say(
    server: RedisServer, data: st.DataObject
) -> None:
    """As on the installed server, in both versions and to the last of 64 bits."""
    with server.client() as client:
        check_version_2(client, data)
        check_version_5(client, data, 64)
