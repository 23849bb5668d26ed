"""The program is started anew while it serves: no request fails, and no connection is refused."""

from __future__ import annotations

import queue
import select
import signal
import socket
import stat
import subprocess
import threading
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import requests

from gateway.workers.upgrade import Successor
from tests.conftest import StartGateway
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import metric
from tests.processes import answers, free_pair, free_port
from tests.workers.family import PATIENCE_S, children, is_there, wait_until
from tests.workers.succession import Load, UnixClient, takes_connections, upgradable

CONFIG: Final = (
    "log: {{ access: off }}\nserver: {{ workers: {workers} }}\n"
    "routes:\n  /**: {{ upstream: {url} }}\n"
)


@pytest.mark.parametrize("workers", [(1, 1, 1), (2, 2, 2), (3, 1, 2), (1, 2, 3)], ids=str)
def test_no_request_fails_and_no_connection_is_refused(
    start_gateway: StartGateway, tmp_path: Path, workers: tuple[int, ...]
) -> None:
    """Upgraded twice under load, with as many processes, more of them and fewer."""
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers[0], url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            port = running.gateway.port
            with Load(lambda: RawClient(port)) as load:
                load.wait_for_more()
                for before, after in pairwise(workers):
                    running.change(f"workers: {before}", f"workers: {after}")
                    replaced = running.upgrade()
                    load.wait_for_more()
                    running.wait_for_end(replaced)
                    load.wait_for_more()
                    # The limiter, too, if there are several.
                    assert len(children(running.pid)) == (after + 1 if after > 1 else 0)
            assert load.failures == []
            assert load.answered == len(upstream.heads)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_in_flight_ends_as_it_began(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """Under load: a WebSocket goes on, and a request that waits for its turn gets it."""

    def serve(connection: RawConnection) -> None:
        while (head := connection.read_head()) and b"Upgrade:" not in head:
            connection.send(OK)
        if not head:
            return
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        )
        while data := connection.read_some():
            connection.send(data)

    with RawUpstream(serve) as upstream:
        config = (
            f"log: {{ access: off }}\nserver: {{ workers: {workers}, shutdown_delay: 1h }}\n"
            f"routes:\n  /slow: {{ upstream: {upstream.url}, policies: [slow] }}\n"
            f"  /**: {{ upstream: {upstream.url} }}\n"
            "policies: { slow: { limit: 12/m burst 1, queue: { max: 9, max_wait: 60s } } }\n"
        )
        with upgradable(start_gateway, config, tmp_path) as running:
            port = running.gateway.port
            with (
                Load(lambda: RawClient(port)) as load,
                RawClient(port) as talking,
                RawClient(port) as first,
                ExitStack() as stack,
            ):
                talking.request(
                    "/",
                    "Connection: Upgrade",
                    "Upgrade: websocket",
                    "Sec-WebSocket-Version: 13",
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                )
                assert b" 101 " in talking.sock.recv(4096)
                assert first.get("/slow").status == 200
                waiting = [stack.enter_context(RawClient(port)) for _ in range(9)]
                for client in waiting:
                    client.request("/slow")
                load.wait_for_more()
                running.change("shutdown_delay: 1h", "shutdown_delay: 0s")
                replaced = running.upgrade()
                wait_until(lambda: running.says("draining"), "no drain")
                for _ in range(3):
                    talking.send(b"\x81\x82\0\0\0\0hi")
                    assert talking.sock.recv(100) == b"\x81\x82\0\0\0\0hi"
                # Their turns are 5 s apart: some may come before the old gateway drains.
                is_drained = False
                while not is_drained:
                    ready, _, _ = select.select([one.sock for one in waiting], [], [], PATIENCE_S)
                    assert ready, "none gets its turn"
                    (client,) = (one for one in waiting if one.sock is ready[0])
                    waiting.remove(client)
                    answer = client.read()
                    assert answer.status == 200
                    is_drained = answer.all("Connection") == ["close"]
                assert is_there(replaced)
                load.wait_for_more()
            assert load.failures == []
            running.wait_for_end(replaced)


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_cannot_start_changes_nothing(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """The log says why, the service manager hears that all is well, and the next attempt works."""
    with (
        RecordingUpstream() as upstream,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        config = CONFIG.format(workers=workers, url=upstream.url)
        other = taken.getsockname()[1]
        with upgradable(start_gateway, config, tmp_path) as running:
            port, pid = running.gateway.port, running.pid
            faults = [
                ("routes:", "routers:", "routers"),
                ("access: off", "access: off, output: ./none/a.log", "log.output: the folder"),
                ("listen: [", f'listen: [{{ address: "127.0.0.1:{other}" }}, ', "already in use"),
            ]
            with Load(lambda: RawClient(port)) as load:
                family = children(pid)
                for right, wrong, said in faults:
                    running.change(right, wrong)
                    running.ask()
                    running.wait_for_ready()
                    wait_until(
                        lambda said=said: running.says("not upgraded: ", said),  # type: ignore[misc]
                        "it is not said why",
                    )
                    running.change(wrong, right)
                    load.wait_for_more()
                    assert running.pid == pid
                    wait_until(lambda: children(pid) == family, "what failed is still there")
                    failed = requests.get(f"{running.gateway.admin_url}/readyz", timeout=10).json()
                    assert failed["phase"] == "serving"
                    assert said in failed["upgrade"]["problem"]
                    assert failed["upgrade"]["failed_at"] >= failed["config"]["applied_at"]
                assert metric(running.gateway, "sluice_upgrades_failed_total") == len(faults)
                running.wait_for_end(running.upgrade())
                load.wait_for_more()
                assert metric(running.gateway, "sluice_upgrades_failed_total") == 0
                shown = requests.get(f"{running.gateway.admin_url}/readyz", timeout=10).json()
                assert "upgrade" not in shown
            assert load.failures == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_request_is_refused(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """While an upgrade goes on there is no other, and the log says so."""
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers, url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            held, before = running.hold(), running.pid
            running.ask()
            held.wait_for_reader()
            running.ask()
            wait_until(lambda: running.says("another upgrade has not ended"), "nothing is said")
            held.release(held.text)
            running.wait_for_successor(before)
            assert get(running.gateway.port).status == 200
            running.wait_for_end(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_that_is_stopped_takes_its_successor_along(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """SIGTERM during an upgrade ends both: the operator wants none."""
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers, url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            family = children(running.pid)
            held = running.hold()
            running.ask()
            held.wait_for_reader()
            successors = set(children(running.pid)) - set(family)
            running.gateway.server.signal(signal.SIGTERM)
            running.wait_for_end(running.pid)
            wait_until(lambda: not any(map(is_there, successors)), "the successor is still there")
            held.release("")


def test_only_the_one_that_serves_says_how_it_is(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """While the old one finishes its requests, `/readyz` is the new one's."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    may_answer = threading.Event()

    def serve(connection: RawConnection) -> None:
        while connection.read_head():
            asked.put(None)
            assert may_answer.wait(30)
            connection.send(OK)

    for workers in (1, 2):
        may_answer.clear()
        (tmp_path / str(workers)).mkdir()
        with RawUpstream(serve) as upstream:
            config = CONFIG.format(workers=workers, url=upstream.url)
            with upgradable(start_gateway, config, tmp_path / str(workers)) as running:
                with RawClient(running.gateway.port) as client:
                    client.request()
                    asked.get(timeout=20)
                    replaced = running.upgrade()
                    wait_until(lambda: running.says("draining"), "no drain")
                    url = f"{running.gateway.admin_url}/readyz"
                    for _ in range(30):
                        assert requests.get(url, timeout=10).json()["phase"] == "serving"
                    assert is_there(replaced)
                    may_answer.set()
                    assert client.read().status == 200
                running.wait_for_end(replaced)


@pytest.mark.parametrize("workers", [(1, 1), (1, 2), (2, 1)], ids=str)
def test_the_file_of_a_unix_socket_stays_until_the_end(
    start_gateway: StartGateway, tmp_path: Path, workers: tuple[int, int]
) -> None:
    """It is the same file all along, also after a failed upgrade, and the last one removes it."""
    path, gone = tmp_path / "s.sock", tmp_path / "gone.sock"
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers[0], url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            # The addresses are in one line of the file.
            running.change("listen: [", f"listen: [unix:{path}, unix:{gone}, ")
            running.upgrade()
            inode = path.stat().st_ino
            with Load(lambda: UnixClient(str(path))) as load:
                load.wait_for_more()
                running.change("routes:", "routers:")
                running.ask()
                running.wait_for_ready()
                load.wait_for_more()
                running.change("routers:", "routes:")
                running.change(f"unix:{gone}, ", "")
                running.change(f"workers: {workers[0]}", f"workers: {workers[1]}")
                running.wait_for_end(running.upgrade())
                load.wait_for_more()
            assert load.failures == []
            assert path.stat().st_ino == inode
            assert takes_connections(str(path))
            wait_until(lambda: not gone.exists(), "a file is left that nobody serves")
            wait_until(lambda: running.says(f"unix:{gone} is closed"), "it is closed silently")
    wait_until(lambda: not path.exists(), "the file is left")


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_reload_has_opened_is_handed_over(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """Also the file of a Unix socket that the first configuration did not have."""
    path, port = tmp_path / "s.sock", free_port()
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers, url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            running.change("listen: [", f"listen: [unix:{path}, '127.0.0.1:{port}', ")
            running.reload()
            assert takes_connections(str(path))
            assert answers(port)
            inode = path.stat().st_ino
            with (
                Load(lambda: UnixClient(str(path))) as local,
                Load(lambda: RawClient(port)) as load,
            ):
                load.wait_for_more()
                local.wait_for_more()
                running.wait_for_end(running.upgrade())
                load.wait_for_more()
                local.wait_for_more()
            assert load.failures == []
            assert local.failures == []
            assert path.stat().st_ino == inode
    assert not path.exists()


@pytest.mark.parametrize("workers", [(1, 1, 1), (2, 2, 2), (1, 2, 1)], ids=str)
def test_a_unix_socket_that_a_reload_has_bound_anew_is_handed_over(
    start_gateway: StartGateway, tmp_path: Path, workers: tuple[int, ...]
) -> None:
    """With another `mode`: all upgrades after it keep the file, and the last gateway removes it."""
    path = tmp_path / "s.sock"
    with RecordingUpstream() as upstream:
        config = CONFIG.format(workers=workers[0], url=upstream.url)
        with upgradable(start_gateway, config, tmp_path) as running:
            running.change("listen: [", f"listen: [{{ address: 'unix:{path}', mode: 0600 }}, ")
            running.reload()
            running.change("mode: 0600", "mode: 0660")
            running.reload()
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            inode = path.stat().st_ino
            with Load(lambda: UnixClient(str(path))) as load:
                for before, after in pairwise(workers):
                    running.change(f"workers: {before}", f"workers: {after}")
                    load.wait_for_more()
                    running.wait_for_end(running.upgrade())
                    load.wait_for_more()
                    assert path.stat().st_ino == inode
            assert load.failures == []
        assert list(tmp_path.glob("s.sock*")) == []


def test_a_successor_that_says_nothing_is_ended() -> None:
    """After its time it is killed, and the reason says so."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, subprocess.Popen(["sleep", "600"]) as process:
        successor = Successor(process, ours, 1_000)
        assert successor.serves(999) is None
        assert successor.serves(1_000) is False
        assert successor.end() == "it did not serve within 60 s"
        assert process.poll() == -signal.SIGKILL


def test_a_successor_that_dies_without_a_word_is_noticed() -> None:
    """Long before its time is over."""
    for command, reason in (
        (["sh", "-c", "exit 3"], "it ended with status 3"),
        (["sh", "-c", "kill -KILL $$"], "it was killed by SIGKILL"),
    ):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            successor = Successor(process, ours, 1_000)
            wait_until(lambda one=successor: one.serves(0) is False, "not noticed")  # type: ignore[misc]
            assert successor.end() == reason


def test_other_systems_are_served_by_the_successor(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Its listeners have the same addresses, of libraries that bind by themselves as well."""
    ports = [free_port(), free_port(), free_pair()]
    path = tmp_path / "g.sock"
    for count, (before, after) in enumerate([(1, 1), (1, 2), (2, 2), (2, 1)]):
        folder = tmp_path / str(count)
        folder.mkdir()
        config = (
            f"server: {{ workers: {before} }}\n"
            f"listeners:\n  - {{ throttr: v5, bind: '127.0.0.1:{ports[0]}' }}\n"
            f"  - {{ ratio: 100/m, bind: '127.0.0.1:{ports[1]}' }}\n"
            f"  - {{ smockron: {{ domains: {{ default: 1/s }} }}, bind: '127.0.0.1:{ports[2]}' }}\n"
            f"  - {{ ratio: 100/m, bind: 'unix:{path}' }}\n"
        )
        with upgradable(start_gateway, config, folder) as running:
            running.change(f"workers: {before}", f"workers: {after}")
            replaced = running.upgrade()
            running.wait_for_end(replaced)
            for port in ports:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
            assert takes_connections(str(path))
        assert not path.exists()
