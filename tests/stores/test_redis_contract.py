"""The Redis store keeps the contract of all stores, over every way of connecting."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.stores.redis import RedisStore
from tests.processes import free_port
from tests.servers import RedisServer, until
from tests.stores.contract import StoreContract


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


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for 127.0.0.1, signed by itself."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = shutil.which("openssl")
    assert command, "openssl makes the certificate of this test"
    subprocess.run(
        [
            *(command, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"),
            *("-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return key, cert


@pytest.mark.parametrize("way", ["unix", "tls"])
async def test_other_ways_in(tmp_path: Path, way: str) -> None:
    """A Unix socket and TLS with a checked certificate lead to the same database."""
    key, cert = certificate(tmp_path)
    socket, tls_port = tmp_path / "redis.sock", free_port()
    options = (
        *("--unixsocket", str(socket), "--tls-port", str(tls_port), "--tls-auth-clients", "no"),
        *("--tls-key-file", str(key), "--tls-cert-file", str(cert)),
        *("--tls-ca-cert-file", str(cert)),
    )
    running = RedisServer(tmp_path / "server", options)
    running.start()
    urls = {
        "unix": f"unix://{socket}?db=2",
        "tls": f"rediss://127.0.0.1:{tls_port}/2?ssl_ca_certs={cert}",
    }
    # Reading certificates blocks, so it is done as an application would: not in the loop.
    store = await asyncio.to_thread(RedisStore, urls[way], domain="contract", deadline_us=2_000_000)
    try:
        await store.start()
        await until(lambda: store.is_ready)
        await StoreContract().test_as_many_as_the_limit_pass(store)
        with running.client() as client:
            assert client.info("keyspace")["db2"]["keys"] >= 2
    finally:
        await store.aclose()
        running.stop()
