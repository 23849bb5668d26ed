"""Gateways as processes, alone and of several workers, behind every kind of listener at once."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from tests.certificates import Authority, Issued
from tests.e2e.raw import RawClient, RecordingUpstream, header_values
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, answers, free_port
from tests.workers.family import children, wait_until

WAIT_S = 30.0


class Setup(NamedTuple):
    """A gateway with four listeners.

    Attributes:
        gateway: its first listener is plain.
        tls, proxied: ports of the one with TLS, and of the one with PROXY headers before TLS.
        path: of its Unix socket.
        authority: whose certificates it has.
        shown: the one that clients are shown.
        upstream: what is behind it.
    """

    gateway: Gateway
    tls: int
    proxied: int
    path: Path
    authority: Authority
    shown: Issued
    upstream: RecordingUpstream


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "workers"])
def setup(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """One for all tests of the module, and one of two workers."""
    folder = tmp_path_factory.mktemp("gateway")
    authority = Authority(folder / "ca")
    shown = authority.issue("a.test")
    plain, tls, proxied, admin = (free_port() for _ in range(4))
    pair = f"cert: {shown.cert}, key: {shown.key}"
    with RecordingUpstream() as upstream:
        config = folder / "sluice.yaml"
        config.write_text(
            "listen:\n"
            f"  - 127.0.0.1:{plain}\n"
            f"  - {{address: '127.0.0.1:{tls}', tls: {{{pair}, client_certificates: optional,"
            f" client_ca: {authority.file}, client_headers: {{subject: X-Client}}}}}}\n"
            f"  - {{address: '127.0.0.1:{proxied}', tls: {{{pair}}}, proxy_protocol: 127.0.0.1}}\n"
            f"  - {{address: 'unix:{folder}/s.sock', mode: 0600}}\n"
            f"admin: 127.0.0.1:{admin}\n"
            f"server: {{workers: {request.param}}}\n"
            f"routes: {{/**: {{upstream: '{upstream.url}'}}}}\n"
        )
        server = ServerProcess(
            "gateway",
            [sys.executable, "-m", "gateway", "run", str(config)],
            folder,
            lambda: answers(admin, "/readyz"),
            {"PYTHONPATH": PYTHON_PATH},
        )
        urls = (f"http://127.0.0.1:{plain}", f"http://127.0.0.1:{admin}")
        gateway = Gateway(*urls, plain, server)
        yield Setup(gateway, tls, proxied, folder / "s.sock", authority, shown, upstream)
        gateway.stop()
    assert not (folder / "s.sock").exists()


def secure(client: RawClient, context: ssl.SSLContext) -> RawClient:
    """The same client, once it has agreed on TLS."""
    client.sock = context.wrap_socket(client.sock, server_hostname="a.test")
    return client


def test_every_listener_serves(setup: Setup) -> None:
    """Each in its way; the upstream is told of each what is true of it."""
    setup.upstream.heads.clear()
    alice = setup.authority.issue("alice")
    for _ in range(4):
        with RawClient(setup.gateway.port) as client:
            assert client.get("/plain").status == 200
        with secure(RawClient(setup.tls), setup.authority.client_context(alice)) as client:
            assert client.get("/tls").status == 200
        with RawClient(setup.proxied) as client:
            client.send(b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2\r\n")
            assert secure(client, setup.authority.client_context()).get("/proxied").status == 200
        with RawClient(setup.gateway.port) as client, closing(client.sock):
            client.sock = socket.socket(socket.AF_UNIX)
            client.sock.connect(str(setup.path))
            assert client.get("/unix").status == 200
    told = {
        (
            head.split()[1].decode(),
            *header_values(head, "X-Forwarded-For"),
            *header_values(head, "X-Forwarded-Proto"),
            *header_values(head, "X-Client"),
        )
        for head in setup.upstream.heads
    }
    assert told == {
        ("/plain", "127.0.0.1", "http"),
        ("/tls", "127.0.0.1", "https", "CN=alice"),
        ("/proxied", "203.0.113.7", "https"),
        ("/unix", "127.0.0.1", "http"),
    }


def test_what_is_said_of_them(setup: Setup) -> None:
    """The log names each with its scheme; the metrics say when the certificate ends."""
    log = setup.gateway.server.stdout
    for words in (
        f"listening on http://127.0.0.1:{setup.gateway.port}",
        f"listening on https://127.0.0.1:{setup.tls}",
        f"listening on https://127.0.0.1:{setup.proxied}",
        f"listening on http://unix:{setup.path}",
    ):
        assert words in log
    end = float(setup.shown.not_after.timestamp())
    assert _ends(setup) == {str(setup.shown.cert): end}


def _ends(setup: Setup) -> dict[str, float]:
    name = "sluice_tls_certificate_not_after_seconds{certificate="
    text = requests.get(f"{setup.gateway.admin_url}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith(name)]
    pairs = (line.removeprefix(name).rsplit("} ", 1) for line in lines)
    return {file.strip('"'): float(value) for file, value in pairs}


def test_sighup_renews_certificates(setup: Setup) -> None:
    """In every process; connections that are open go on."""
    context = setup.authority.client_context()
    new = setup.authority.issue("a.test", "new.test")
    with secure(RawClient(setup.tls), context) as before:
        assert before.get().status == 200
        setup.shown.replace_by(new)
        setup.gateway.server.signal(signal.SIGHUP)
        deadline = time.monotonic() + WAIT_S
        in_a_row = 0
        while in_a_row < 12:
            assert time.monotonic() < deadline, setup.gateway.server.stdout
            with secure(RawClient(setup.tls), context) as client:
                shown = client.sock.getpeercert()  # type: ignore[attr-defined]
                names = [name for _, name in shown["subjectAltName"]]
                in_a_row = in_a_row + 1 if names == ["a.test", "new.test"] else 0
        assert before.get().status == 200
    assert _ends(setup) == {str(setup.shown.cert): float(new.not_after.timestamp())}
    assert "changed certificates are now in use" in setup.gateway.server.stdout


def test_a_certificate_that_is_a_pipe_for_a_while(setup: Setup) -> None:
    """It is not waited for: the log says so, and all processes serve once it is a file again."""
    pid, workers = setup.gateway.server.pid, children(setup.gateway.server.pid)[1:]
    content = setup.shown.cert.read_bytes()
    setup.shown.cert.unlink()
    os.mkfifo(setup.shown.cert)
    setup.gateway.server.signal(signal.SIGHUP)
    wait_until(lambda: "it is not a regular file" in setup.gateway.server.stdout, "it is not told")
    if workers:
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: workers[0] not in children(pid), "the worker is still there")
    setup.shown.cert.unlink()
    setup.shown.cert.write_bytes(content)
    url = f"{setup.gateway.admin_url}/readyz"
    wait_until(lambda: requests.get(url, timeout=10).status_code == 200, "it is not ready again")
    for _ in range(12):
        with secure(RawClient(setup.tls), setup.authority.client_context()) as client:
            assert client.get().status == 200


def test_what_check_says_of_files(tmp_path: Path) -> None:
    """Exit status 1, the place and a way out; `run` says the same and does not start."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("a")._replace(key=authority.issue("b").key)
    config = tmp_path / "sluice.yaml"
    config.write_text(
        f"listen: {{address: ':0', tls: {{cert: {pair.cert}, key: {pair.key}}}}}\nadmin: off\n"
        "routes: {/**: {upstream: http://127.0.0.1:9}}\n"
    )
    for command in ("check", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "gateway", command, str(config)],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 1
        assert f"listen.tls.key: {pair.key} is not the key of {pair.cert}" in done.stderr
        assert "sluice.yaml:1:" in done.stderr
