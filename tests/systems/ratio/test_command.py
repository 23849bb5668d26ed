"""`sluice ratio`: the command with nothing but an environment."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.processes import PYTHON_PATH, ServerProcess, answers, free_port
from tests.ratio import OK, OVER_LIMIT, PATH, request

Start = Callable[..., ServerProcess]


@pytest.fixture
def start_ratio(tmp_path: Path) -> Iterator[Start]:
    """Starts `sluice ratio`; what is given are its variables."""
    running: list[ServerProcess] = []

    def start(is_ready: Callable[[], bool], **variables: str) -> ServerProcess:
        argv = [sys.executable, "-m", "gateway", "ratio"]
        env = {"PYTHONPATH": PYTHON_PATH, **variables}
        running.append(ServerProcess("ratio", argv, tmp_path, is_ready, env))
        return running[-1]

    yield start
    for server in running:
        assert server.stop() == 0
        assert "Traceback" not in server.stderr


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_is_a_ratio_server_with_metrics_where_they_are_wished(start_ratio: Start) -> None:
    """The limit, the port and the storage are those of the variables."""
    port, admin = free_port(), free_port()
    start_ratio(
        lambda: answers(admin, "/readyz"),
        RATIO_PORT=str(port),
        RATIO_STORAGE="inmemory://",
        RATIO_LIMIT="2/HOUR",
        SLUICE_ADMIN=f"127.0.0.1:{admin}",
    )
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Any = channel.unary_unary(PATH)
        assert [method(request()) for _ in range(3)] == [OK, OK, OVER_LIMIT]


def test_without_its_storage_every_call_is_an_error(start_ratio: Start) -> None:
    """As with ratio; the server is reachable all the same, and reports that it does not serve."""
    port, nobody = free_port(), free_port()
    start_ratio(
        lambda: _listens(port),
        RATIO_HOST="127.0.0.1",
        RATIO_PORT=str(port),
        RATIO_STORAGE=f"redis://127.0.0.1:{nobody}/0",
    )
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Any = channel.unary_unary(PATH)
        with pytest.raises(grpc.RpcError) as error:
            method(request())
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_port_that_is_taken_is_told_with_its_variable(tmp_path: Path) -> None:
    """And the command has failed."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env = {
            "PYTHONPATH": PYTHON_PATH,
            "RATIO_HOST": "127.0.0.1",
            "RATIO_PORT": str(taken.getsockname()[1]),
            "RATIO_STORAGE": "inmemory://",
        }
        argv = [sys.executable, "-m", "gateway", "ratio"]
        with pytest.raises(AssertionError, match="ended with 1") as error:
            ServerProcess("ratio", argv, tmp_path, lambda: False, env)
    assert "RATIO_PORT" in str(error.value)
    assert "already in use" in str(error.value)
