"""A name that changes under a running gateway, as its own resolver reads it.

nss_wrapper gives one process a file of hosts of its own, behind the same function of the C library
that asks DNS.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from tests.certificates import Authority
from tests.e2e.raw import get
from tests.processes import Gateway, free_port

ADDRESSES: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
PATIENCE_S: Final = 20.0


class _Handler(BaseHTTPRequestHandler):
    """Tells which address was connected to, on a connection for each request."""

    def do_GET(self) -> None:
        """Answer."""
        body = str(self.connection.getsockname()[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Say nothing."""


@pytest.fixture(name="port")
def _port() -> Iterator[int]:
    """A port with a server at each of the addresses."""
    port = free_port()
    with ExitStack() as stack:
        for address in ADDRESSES:
            server = stack.enter_context(ThreadingHTTPServer((address, port), _Handler))
            thread = Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield port


class Hosts:
    """The file of hosts of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = itertools.count(1)
        self.write()

    def write(self, *addresses: str) -> None:
        """The addresses of app.test from now on."""
        self._replace("".join(f"{address} app.test\n" for address in addresses))

    def write_names(self, address: str, *names: str) -> None:
        """The names of an address from now on."""
        self._replace(f"{address} {' '.join(names)}\n")

    def _replace(self, lines: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(lines)
        # It is read again when its time, in whole seconds, has changed.
        version = next(self._versions)
        os.utime(new, (version, version))
        new.replace(self.path)


def test_a_name_that_changes(tmp_path: Path, port: int) -> None:
    """Unknown at the start, then two addresses, then another: requests follow without a restart."""
    hosts = Hosts(tmp_path / "hosts")
    gateway = Gateway.start(
        f"""
upstreams:
  app: {{ targets: "http://app.test:{port}", resolve_every: 1s }}
routes:
  /**: {{ upstream: app }}
""",
        tmp_path,
        {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_HOSTS": str(hosts.path)},
    )
    try:
        assert get(gateway.port).status == 502
        hosts.write(*ADDRESSES[:2])
        _wait(gateway, {b"127.0.0.2"})
        assert {get(gateway.port).body for _ in range(4)} == {b"127.0.0.2", b"127.0.0.3"}
        hosts.write(ADDRESSES[2])
        _wait(gateway, {b"127.0.0.4"})
        assert {get(gateway.port).body for _ in range(4)} == {b"127.0.0.4"}
        hosts.write()
        assert {get(gateway.port).body for _ in range(4)} == {b"127.0.0.4"}
    finally:
        gateway.stop()
    assert "app.test cannot be resolved" in gateway.server.stdout
    assert "app.test is resolved again: 127.0.0.2, 127.0.0.3" in gateway.server.stdout


def _wait(gateway: Gateway, bodies: set[bytes]) -> None:
    """Ask until one of these is the answer."""
    due = time.monotonic() + PATIENCE_S
    while get(gateway.port).body not in bodies:
        assert time.monotonic() < due, gateway.server.stdout
        time.sleep(0.02)


def test_an_absolute_name_is_verified_without_its_dot(tmp_path: Path, authority: Authority) -> None:
    """DNS is asked for `web.test.`, TLS for `web.test`, which is what certificates hold."""
    hosts = Hosts(tmp_path / "hosts")
    hosts.write_names("127.0.0.1", "web.test.", "web.test")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = authority.server_context(authority.issue("web.test"))
    asked: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        gateway = Gateway.start(
            f"""
upstreams:
  app:
    targets: "https://web.test.:{server.server_port}"
    tls: {{ ca: {authority.file} }}
routes:
  /**: {{ upstream: app }}
""",
            tmp_path,
            {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_HOSTS": str(hosts.path)},
        )
        try:
            assert get(gateway.port).status == 200
        finally:
            gateway.stop()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert set(asked) == {"web.test"}
