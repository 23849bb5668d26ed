"""The servers that tests start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mariadb import MariaDB
from tests.processes import OwnServer
from tests.servers import RedisServer, run


def _redis(folder: Path) -> tuple[OwnServer, Callable[[], object]]:
    server = RedisServer(folder)
    return server, lambda: run(server, "PING")


def _mariadb(folder: Path) -> tuple[OwnServer, Callable[[], object]]:
    server = MariaDB(folder)
    return server, lambda: server.sql("SELECT 1")


@pytest.mark.parametrize("make", [_redis, _mariadb])
def test_a_server_that_ends_by_itself_costs_one_test(
    tmp_path: Path, make: Callable[[Path], tuple[OwnServer, Callable[[], object]]]
) -> None:
    """How it ended is what that test fails with; it is there again for the next."""
    server, ask = make(tmp_path / "server")
    server.start()
    try:
        assert ask()
        os.kill(server.pid, signal.SIGABRT)
        server.process.process.wait(30)
        with pytest.raises(AssertionError, match=r"had ended with -\d+, by itself"):
            ask()
        assert ask()
    finally:
        server.stop()
