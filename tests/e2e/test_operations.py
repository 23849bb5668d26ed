"""A gateway as its operator sees it: what stops it, what does not, what keeps it from starting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import requests

from gateway.routing.methods import METHODS, NEVER_FORWARDED
from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import PATIENCE_S, log_lines, metric, wait_for_metric
from tests.processes import PYTHON_PATH, Gateway, free_port


def _messages(gateway: Gateway) -> list[str]:
    return [line["message"] for line in log_lines(gateway) if "message" in line]


def _wait_for_message(gateway: Gateway, words: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [message for message in _messages(gateway) if words in message]
        if found:
            return found[0]
        assert time.monotonic() < deadline, _messages(gateway)
        time.sleep(0.01)


def test_balancers_are_told_before_connections_are_refused(start_gateway: StartGateway) -> None:
    """For `shutdown_delay` the gateway is not ready and serves; then it ends."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"server: {{ shutdown_delay: 2s }}\nroutes:\n  /**: {{ upstream: {upstream.url} }}\n"
        )
        gateway.server.signal(signal.SIGTERM)
        _wait_for_message(gateway, "no longer ready")
        readiness = requests.get(f"{gateway.admin_url}/readyz", timeout=10)
        assert (readiness.status_code, readiness.json()["phase"]) == (503, "draining")
        assert get(gateway.port).status == 200
        assert gateway.server.process.wait(10) == 0
    assert _messages(gateway)[-2:] == ["draining: 0 requests in flight", "stopped"]


def test_what_is_cut_off_is_counted_in_the_log(start_gateway: StartGateway) -> None:
    """Draining says how many requests are under way, and how many did not end in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gateway = start_gateway(
            "server: { shutdown_timeout: 200ms }\n"
            f"routes:\n  /**: {{ upstream: http://127.0.0.1:{silent.getsockname()[1]} }}\n"
        )
        with RawClient(gateway.port) as client:
            client.request()
            assert wait_for_metric(gateway, "sluice_upstream_requests_total", 1)
            gateway.server.signal(signal.SIGTERM)
            assert gateway.server.process.wait(10) == 0
    assert "draining: 1 requests in flight" in _messages(gateway)
    assert "1 requests took too long and were cut off" in _messages(gateway)


def test_a_gateway_that_is_alone_is_one(start_gateway: StartGateway) -> None:
    """`sluice_store_gateways` says how many share the store; the memory of one is its own."""
    gateway = start_gateway("routes:\n  /**: { upstream: http://127.0.0.1:9, limit: 1/s }\n")
    assert metric(gateway, "sluice_store_gateways", store="main") == 1


def _statuses(port: int, methods: Iterable[str]) -> dict[str, int]:
    """What requests with these methods are answered."""

    def status(method: str) -> int:
        target = "a:443" if method == "CONNECT" else "/"
        with RawClient(port) as client:
            client.send(f"{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            return client.read(method).status

    return {method: status(method) for method in methods}


def test_the_server_knows_the_methods_that_routes_may_name(start_gateway: StartGateway) -> None:
    """Each of them arrives upstream; the forbidden ones are 405, others are 501."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        assert _statuses(gateway.port, METHODS) == dict.fromkeys(METHODS, 200)
        assert {head.partition(b" ")[0].decode() for head in upstream.heads} == {*METHODS}
        assert set(_statuses(gateway.port, NEVER_FORWARDED).values()) == {405}
        others = ("LIST", "BAN", "GTE", "get", "DESCRIBE", "PRI", "VERSION_CONTROL")
        assert set(_statuses(gateway.port, others).values()) == {501}


def test_methods_of_ones_own(start_gateway: StartGateway) -> None:
    """Those of `server.methods` are routed, limited, logged and sent on as any other."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(f"""
server: {{ methods: [LIST, BAN] }}
upstreams: {{ u: {upstream.url} }}
routes:
  LIST /**: {{ upstream: u, limit: 1/h burst 1 per all }}
  GET /**: {{ upstream: u }}
""")
        asked = ("GET", "LIST", "BAN", "PURGE", "LISTS")
        assert list(_statuses(gateway.port, asked).values()) == [200, 200, 405, 405, 501]
        assert _statuses(gateway.port, ("LIST",)) == {"LIST": 429}
        assert [head.partition(b" ")[0].decode() for head in upstream.heads] == ["GET", "LIST"]
        with RawClient(gateway.port) as client:
            client.send(
                b"BAN / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\n"
            )
            assert client.read().status == 405
            client.send(b"Host: a\r\n\r\n")
            assert client.read().status == 200


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = folder / "sluice.yaml"
    path.write_text(text + "routes:\n  /**: { upstream: http://127.0.0.1:9 }\n")
    return subprocess.run(
        [sys.executable, "-m", "gateway", "run", str(path)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "listen: 127.0.0.1:{taken}\n",
            ("listen: 127.0.0.1:{taken} is already in use", "ss -ltnp"),
        ),
        (
            "listen: ['127.0.0.1:{free}', '127.0.0.1:{taken}']\n",
            ("listen[1]: 127.0.0.1:{taken} is already in use", "another port"),
        ),
        ("admin: 127.0.0.1:{taken}\nlisten: :{free}\n", ("admin.listen: ", "is already in use")),
        ("listen: 192.0.2.1:{free}\n", ("not an address of this machine", ":{free}")),
        ("listen: no-such-host.invalid:{free}\n", ("the host 'no-such-host.invalid'",)),
        ("log: {{output: ./none/a.log}}\n", ("log.output: the folder", "mkdir -p")),
        ("log: {{output: ./}}\n", ("log.output: ./ is a folder",)),
        (
            "store: rediss://h?ssl_ca_certs=/none\n",
            ("store.url: the URL of the store cannot be used: an ssl_... option",),
        ),
    ],
)
def test_what_cannot_be_had_is_named(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """Exit status 1, the field, what is wrong and a way out; no traceback, and no log line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = {"taken": server.getsockname()[1], "free": free_port()}
        done = _run(tmp_path, text.format(**ports))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(str(tmp_path / "sluice.yaml"))
    for word in words:
        assert word.format(**ports) in done.stderr, done.stderr


def test_a_start_that_fails_leaves_the_log_of_another_alone(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """A second gateway by mistake writes nothing into the log of the first."""
    log = tmp_path / "gateway.log"
    gateway = start_gateway(
        f"log: {{ output: '{log}' }}\nroutes:\n  /**: {{ upstream: http://127.0.0.1:9 }}\n"
    )
    before = log.read_text()

    done = _run(tmp_path, f"listen: 127.0.0.1:{gateway.port}\nlog: {{ output: '{log}' }}\n")

    assert done.returncode == 1
    assert log.read_text() == before


def test_stopping_leaves_websockets_open_for_a_while(start_gateway: StartGateway) -> None:
    """For `shutdown_timeout` all of them go on; then they are closed, and the gateway ends."""

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        while word := connection.read_body(5):
            connection.send(word)

    with RawUpstream(serve) as upstream, ExitStack() as clients:
        gateway = start_gateway(
            f"server: {{ shutdown_timeout: 2s }}\nroutes:\n  /**: {{ upstream: {upstream.url} }}\n"
        )
        sockets = [clients.enter_context(RawClient(gateway.port)) for _ in range(50)]
        for client in sockets:
            assert client.get("/", "Connection: Upgrade", "Upgrade: websocket").status == 101
        gateway.server.signal(signal.SIGTERM)
        _wait_for_message(gateway, "draining: 50 requests in flight")
        for client in sockets:
            client.send(b"hello")
        for client in sockets:
            assert client.sock.recv(5, socket.MSG_WAITALL) == b"hello"
        for client in sockets[:10]:
            client.close()
        assert gateway.server.process.wait(10) == 0
        for client in sockets[10:]:
            with suppress(ConnectionResetError):
                assert client.sock.recv(1) == b""
    assert "40 requests took too long and were cut off" in _messages(gateway)
