"""The Redis store keeps the contract of all stores, over every way of connecting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.base.errors import StoreError
from gateway.stores.base import Store
from gateway.stores.opening import open_store
from gateway.stores.redis.store import RedisStore
from tests.certificates import Authority
from tests.servers import Certificate, ClusterServers, RedisServer, SentinelServers, until
from tests.stores.contract import BUCKET, StoreContract, ask
from tests.stores.making import ready, says


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for all tests of this module."""
    running = RedisServer(tmp_path_factory.mktemp("redis"), password="s3cret-word")
    running.start()
    yield running
    running.stop()


class TestRedis(StoreContract):
    """One connection, with a password."""

    @pytest.fixture
    async def store(self, server: RedisServer) -> AsyncIterator[RedisStore]:
        """A store in an empty database."""
        with server.client() as client:
            client.flushall()
        store = RedisStore(server.url, domain="contract", deadline_us=2_000_000)
        await store.start()
        await until(lambda: store.is_ready)
        yield store
        await store.aclose()
        assert server.keys_without_ttl() == []


class TestRedisWithManyConnections(TestRedis):
    """Batches spread over several connections."""

    @pytest.fixture
    async def store(self, server: RedisServer) -> AsyncIterator[RedisStore]:
        """A store with four connections, in another database."""
        with server.client() as client:
            client.flushall()
        url = server.url.removesuffix("/0") + "/3"
        store = RedisStore(url, domain="contract", deadline_us=2_000_000, connections=4)
        await store.start()
        await until(lambda: "down" not in repr(store))
        yield store
        await store.aclose()


@pytest.mark.parametrize("way", ["unix", "tls", "sentinel", "cluster"])
async def test_other_ways_in(tmp_path: Path, way: str) -> None:
    """A Unix socket, and TLS with a checked certificate, to one server and to several."""
    tls = None if way == "unix" else Certificate.make(tmp_path / "certificate")
    socket = tmp_path / "redis.sock"
    running: RedisServer | SentinelServers | ClusterServers
    match way:
        case "sentinel":
            running = SentinelServers(tmp_path / "servers", tls=tls)
        case "cluster":
            running = ClusterServers(tmp_path / "servers", replicas=False, tls=tls)
        case _:
            running = RedisServer(tmp_path / "server", ("--unixsocket", str(socket)), tls=tls)
    running.start()
    url = running.url if tls is not None else f"unix://{socket}?db=2"
    try:
        async with opened(url) as store:
            await ready(store)
            await StoreContract().test_as_many_as_the_limit_pass(store)
        if tls is not None:
            # The same name, but nobody signed the server's certificate with that key.
            stranger = Certificate.make(tmp_path / "server").file
            async with opened(url.replace(str(tls.file), str(stranger)), 300_000) as store:
                await store.start()
                with pytest.raises(StoreError):
                    await store.decide([ask(BUCKET)])
    finally:
        running.stop()


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("option", ["", "&ssl_strict=false", "&ssl_strict=true"])
async def test_certificates_that_lack_extensions(
    tmp_path: Path, is_complete: bool, option: str
) -> None:
    """Every Python accepts them, unless `ssl_strict=true`; then the error names the extension."""
    private = Authority(tmp_path / "ca", is_complete=is_complete)
    shown = private.issue("127.0.0.1")
    running = RedisServer(tmp_path / "server", tls=Certificate(shown.key, shown.cert))
    running.start()
    url = running.url.replace(str(shown.cert), str(private.file)) + option
    try:
        async with opened(url) as store:
            if is_complete or "true" not in option:
                await ready(store)
                await StoreContract().test_as_many_as_the_limit_pass(store)
            else:
                await store.start()
                await says(store, "Missing Authority Key Identifier")
    finally:
        running.stop()


@contextlib.asynccontextmanager
async def opened(url: str, deadline_us: int = 2_000_000) -> AsyncIterator[Store]:
    """A store that is yet to be started."""
    # Reading certificates blocks, so it is done as an application would: not in the loop.
    store = await asyncio.to_thread(open_store, url, domain="contract", deadline_us=deadline_us)
    try:
        yield store
    finally:
        await store.aclose()
