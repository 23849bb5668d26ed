"""Fixtures that several test modules share; every server behind them is a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.certificates import Authority
from tests.mariadb import MariaDB
from tests.processes import Gateway
from tests.servers import RedisServer
from tests.throttlex import Service
from tests.upstreams import Upstream, start_nginx

# Examples may take as long as real servers take; every test has its timeout.
# A run of the suite tells about the tree, not about luck: its examples change only with the test.
# New ones are what `make fuzz` is for, and the profile `random` for a short look.
settings.register_profile(
    "default", deadline=None, max_examples=40, print_blob=True, derandomize=True
)
settings.register_profile(
    "random", deadline=None, max_examples=200, print_blob=True, derandomize=False
)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=20_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

LONGEST: Final = ("model", "workers")
"""Folders whose files take longest."""

StartGateway = Callable[..., Gateway]
"""`start_gateway(config, env=None, hosts=("127.0.0.1",))`: see the fixture of this name."""


@pytest.fixture(autouse=True)
def _never_block_the_loop() -> Iterator[None]:
    """A blocking call of the gateway's own code inside the event loop fails the test."""
    with blockbuster_ctx("gateway"):
        yield


@pytest.fixture(scope="session")
def nginx_upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    """Nginx with files of `tests.upstreams.FILE_SIZES`, for all tests of the run."""
    upstream = start_nginx(tmp_path_factory.mktemp("nginx"))
    yield upstream
    upstream.server.stop()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, which it may stop, freeze and restart."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A MariaDB of the module's own, whose collation takes A for a, as that of most does."""
    options = ("--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci")
    server = MariaDB(tmp_path_factory.mktemp("mariadb"), options)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def _throttlex_tables(mariadb: MariaDB) -> Service:
    service = Service(mariadb)
    service.make_tables()
    return service


@pytest.fixture
def throttlex_service(mariadb: MariaDB, _throttlex_tables: Service) -> Service:
    """ThrottleX's service, in a database that it has made, without counts and policies."""
    mariadb.empty()
    return _throttlex_tables


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Starts gateways as processes, and ends them as an operator would.

    The configuration is given without `listen` and `admin`, which are free ports of loopback.
    A gateway that leaves a traceback, or does not end on SIGTERM, fails the test.
    """
    running: list[Gateway] = []

    def start(
        config: str,
        env: Mapping[str, str] | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
    ) -> Gateway:
        gateway = Gateway.start(config, tmp_path, env, hosts)
        running.append(gateway)
        return gateway

    yield start
    for gateway in running:
        gateway.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that gateways and their clients trust."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest begin first, lest one process goes on alone at the end."""
    items.sort(key=lambda item: item.path.parent.name not in LONGEST)
