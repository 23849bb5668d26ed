"""The application behind the gateways of these tests, and gateways shared by a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mariadb import MariaDB
from tests.processes import Gateway, ServerProcess, answers, free_port
from tests.servers import RedisServer
from tests.upstreams import Upstream

ROOT: Final = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    """The Flask application of `tests.e2e.application`, for all tests of the run."""
    folder = tmp_path_factory.mktemp("application")
    port = free_port()
    server = ServerProcess(
        "application",
        [
            *(sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}"),
            *("--threads", "16", "--keep-alive", "30", "--worker-tmp-dir", str(folder)),
            *("--pythonpath", str(ROOT), "tests.e2e.application:app"),
        ],
        folder,
        lambda: answers(port, "/ready"),
    )
    yield Upstream(f"http://127.0.0.1:{port}", folder, server)
    server.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis that nothing bad happens to, for tests that use a domain of their own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def mysql_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A MariaDB that nothing bad happens to, likewise."""
    server = MariaDB(tmp_path_factory.mktemp("mariadb"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(params=["memory", "redis", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The lines of a configuration that name a store, one kind after the other."""
    if request.param == "memory":
        return "store: memory://\n"
    url = request.getfixturevalue(f"{request.param}_url")
    # A loaded machine is no reason to decide alone in tests of what is decided together.
    return f"store: {{ url: '{url}', deadline: 20s }}\ndomain: t{free_port()}\n"


@pytest.fixture(scope="module")
def files_gateway(
    nginx_upstream: Upstream,
    application: Upstream,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """A gateway with all features on: what is no path of the application is a file of nginx."""
    folder = tmp_path_factory.mktemp("gateway")
    gateway = Gateway.start(
        f"""
routes:
  /**: {{ upstream: {nginx_upstream.url}, limit: 100000/s }}
  /ready: {{ upstream: {application.url}, limit: 100000/s }}
  /echo/**: {{ upstream: {application.url}, limit: 100000/s }}
  /hash: {{ upstream: {application.url}, limit: 100000/s }}
  /status/**: {{ upstream: {application.url}, limit: 100000/s }}
  /events/**: {{ upstream: {application.url}, limit: 100000/s }}
""",
        folder,
    )
    yield gateway
    gateway.stop()
