"""An application behind a Unix socket, as most of them are run on one machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.raw import RawClient, get
from tests.processes import Gateway, ServerProcess
from tests.workers.family import wait_until


@pytest.fixture(scope="module", name="socket_path")
def _socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where gunicorn listens."""
    folder = tmp_path_factory.mktemp("s")
    path = folder / "app.sock"
    server = ServerProcess(
        "application",
        [
            *(sys.executable, "-m", "gunicorn", "--bind", f"unix:{path}"),
            *("--threads", "4", "--keep-alive", "30", "--worker-tmp-dir", str(folder)),
            *("--pythonpath", str(ROOT), "tests.e2e.application:app"),
        ],
        folder,
        path.exists,
    )
    yield path
    server.stop()


@pytest.fixture(scope="module", name="gateway")
def _gateway(socket_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in front of it, and of a socket that is not there."""
    gateway = Gateway.start(
        f"""
upstreams:
  both: {{ targets: ["unix:{socket_path}.gone", "unix:{socket_path}"], retry: 2 }}
routes:
  /echo/again: {{ upstream: both }}
  /**: {{ upstream: "unix:{socket_path}", limit: 1000/s }}
  /ready/nobody: {{ upstream: "unix:{socket_path}.gone" }}
""",
        tmp_path_factory.mktemp("gateway"),
    )
    yield gateway
    gateway.stop()


def test_requests_go_through_a_socket(gateway: Gateway) -> None:
    """Both ways, over a connection that is used again, with the host that the client named."""
    with RawClient(gateway.port) as client:
        for _ in range(3):
            assert client.get("/ready").body == b"ready"
        told = json.loads(client.get("/echo").body)
        assert ["Host", "gateway.test"] in told["headers"]
        head = b"PUT /hash HTTP/1.1\r\nHost: a.test\r\nContent-Length: 300000\r\n\r\n"
        client.send(head + b"x" * 300_000)
        assert json.loads(client.read().body)["size"] == 300_000
        # HTTP/1.0 has no Host; a server that wants one gets localhost.
        client.send(b"GET /echo HTTP/1.0\r\n\r\n")
        assert ["Host", "localhost"] in json.loads(client.read().body)["headers"]


def test_a_socket_that_is_not_there(gateway: Gateway) -> None:
    """Is a target that refuses connections."""
    answer = get(gateway.port, "/ready/nobody")
    assert (answer.status, json.loads(answer.body)["error"]) == (502, "connect")


def test_another_target_is_tried(gateway: Gateway, socket_path: Path) -> None:
    """The client notices nothing; metrics and the log say what it took."""
    with RawClient(gateway.port) as client:
        for _ in range(2):
            assert client.get("/echo/again", method="POST").status == 200
    metrics = urlopen(f"{gateway.admin_url}/metrics").read().decode()  # noqa: S310 - our own
    assert 'sluice_upstream_retries_total{reason="connect",upstream="both"} 1.0' in metrics
    assert 'sluice_upstream_retries_refused_total{upstream="both"} 0.0' in metrics
    wait_until(lambda: gateway.server.stdout.count('"path":"/echo/again"') == 2, "two lines")
    lines = [json.loads(line) for line in gateway.server.lines]
    tried = [line["upstream"] for line in lines if line.get("path") == "/echo/again"]
    assert sorted(tried) == [f"unix:{socket_path}", f"unix:{socket_path}.gone,unix:{socket_path}"]
