"""The MySQL store keeps the contract of all stores, on a real MariaDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.stores.mysql.store import MySQLStore
from tests.mariadb import MariaDB
from tests.servers import until
from tests.stores.contract import StoreContract


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server for all tests of this module."""
    running = MariaDB(tmp_path_factory.mktemp("mariadb"))
    running.start()
    yield running
    running.stop()


class TestMySQL(StoreContract):
    """Over TCP, with the usual number of connections."""

    @pytest.fixture
    async def store(self, server: MariaDB) -> AsyncIterator[MySQLStore]:
        """A store in an empty database."""
        server.empty()
        store = MySQLStore(server.url, domain="contract", deadline_us=5_000_000)
        await store.start()
        await until(lambda: store.is_ready)
        yield store
        await store.aclose()


class TestMySQLWithManyConnections(StoreContract):
    """Over the server's socket, with more connections than there are cores."""

    @pytest.fixture
    async def store(self, server: MariaDB) -> AsyncIterator[MySQLStore]:
        """A store in an empty database."""
        server.empty()
        server.sql(
            "CREATE USER IF NOT EXISTS gateway@localhost IDENTIFIED BY 's3cret/word';"
            "GRANT ALL ON sluice.* TO gateway@localhost"
        )
        url = f"{server.url}?unix_socket={server.socket}&connections=6"
        store = MySQLStore(url, domain="contract", deadline_us=5_000_000)
        await store.start()
        await until(lambda: store.is_ready)
        yield store
        await store.aclose()
