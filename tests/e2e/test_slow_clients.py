"""slowhttptest against the gateway, while a client as any other is served.

What is asserted holds however slow the machine is: every other client has its answers, the slow
ones are ended by their timeouts, memory is bounded and nothing is left behind. How long the other
client's answers take meanwhile, `python -m bench slow` measures.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.memory import peak_mib, reset_peak
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, header_values
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway
from tests.upstreams import Upstream

COUNT: Final = 200
PATIENCE_S: Final = 40.0

MODES: Final[dict[str, tuple[list[str], str, str]]] = {
    "headers": (["-H", "-i", "1", "-x", "10"], "/taken", "header_timeout"),
    "body": (["-B", "-i", "1", "-x", "4", "-s", "8192"], "/taken", "body_timeout"),
    # Windows of less than a kilobyte, 32 bytes a second, three requests in a row.
    "read": (
        ["-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3"],
        "/files/100m",
        "send_timeout",
    ),
}
"""What slowhttptest is told, what it asks for, and what its requests fail with."""


def _take(connection: RawConnection) -> None:
    """Read requests with their bodies, and answer them."""
    while head := connection.read_head():
        for size in header_values(head, "Content-Length"):
            if connection.discard_body(int(size)) < int(size):
                return
        connection.send(OK)


@pytest.fixture(scope="module")
def gateway(
    nginx_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One with short timeouts, before files and before an upstream that reads bodies."""
    folder = nginx_upstream.folder / "files" / "files"
    folder.mkdir()
    for name in ("1k", "100m"):
        (folder / name).symlink_to(f"../{name}")
    with ExitStack() as stack:
        taking = stack.enter_context(RawUpstream(_take))
        gateway = Gateway.start(
            "log: { access: off }\n"
            "server: { header_timeout: 1s, body_timeout: 1s, min_rate: 10kB/s }\n"
            "upstreams:\n"
            f"  files: {{ targets: '{nginx_upstream.url}', keepalive: 300ms }}\n"
            f"  taking: {{ targets: '{taking.url}', keepalive: 300ms }}\n"
            "routes:\n"
            "  /files/**: { upstream: files }\n"
            "  /**: { upstream: taking }\n",
            tmp_path_factory.mktemp("gateway"),
        )
        yield gateway
        gateway.stop()


def _becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def _attack(gateway: Gateway, options: list[str], path: str) -> Iterator[None]:
    """Slow clients, which stay until they are ended, or for as long as they are wanted."""
    argv = ["slowhttptest", *options, "-c", str(COUNT), "-r", str(COUNT), "-l", "60", "-v", "0"]
    with subprocess.Popen(
        [*argv, "-u", gateway.url + path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as attack:
        try:
            yield
        finally:
            attack.kill()


@pytest.mark.parametrize("mode", MODES)
def test_slow_clients_keep_nobody_from_being_served(gateway: Gateway, mode: str) -> None:
    """Another client has every answer; the slow ones end; memory and connections are as before."""
    options, path, error = MODES[mode]
    pid = gateway.server.pid
    files = Path(f"/proc/{pid}/fd")
    with RawClient(gateway.port) as client:
        # What serving takes is there before anything is counted.
        assert [client.get(one).status for one in ("/", "/files/1k")] == [200, 200]
        assert wait_for_metric(gateway, "sluice_upstream_connections", 0)
        open_files = len(list(files.iterdir()))
        failed = metric(gateway, "sluice_client_errors_total", kind=error)
        reset_peak(pid)
        before = peak_mib(pid)
        is_over = threading.Event()
        statuses: list[int] = []

        def ask() -> None:
            while not is_over.wait(0.005):
                statuses.append(client.get("/").status)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            with _attack(gateway, options, path):
                assert _becomes(
                    lambda: (
                        metric(gateway, "sluice_client_errors_total", kind=error) - failed >= COUNT
                    )
                )
        finally:
            is_over.set()
            asking.join(20)
        grown = peak_mib(pid) - before
        assert len(statuses) > 20
        assert set(statuses) == {200}
        # As for 500 of them in 100 MiB, and something for what they share.
        assert grown < COUNT / 5 + 20
        assert wait_for_metric(gateway, "sluice_client_connections", 1)
        assert wait_for_metric(gateway, "sluice_upstream_connections", 0)
        assert _becomes(lambda: len(list(files.iterdir())) <= open_files)
