"""How a gateway of several workers begins and ends, and what its operator may do meanwhile."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import requests

from gateway.workers.cpus import usable_cpus
from tests.conftest import StartGateway
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import log_lines
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, free_port
from tests.workers.family import (
    children,
    frozen,
    is_there,
    limiter_of,
    server_of,
    wait_until,
    wait_until_ready,
    workers_of,
)

CONFIG: Final = "server: {{ workers: 3{more} }}\nroutes:\n  /**: {{ upstream: {url} }}\n"


class _Slow(RawUpstream):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.may_answer = threading.Event()
        super().__init__(self._serve_slowly)

    def _serve_slowly(self, connection: RawConnection) -> None:
        while connection.read_head():
            self.asked.put(None)
            assert self.may_answer.wait(30)
            connection.send(OK)


def _messages(gateway: Gateway) -> list[str]:
    return [line["message"] for line in log_lines(gateway) if "message" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_under_way_end_before_the_gateway_does(
    start_gateway: StartGateway, number: signal.Signals
) -> None:
    """With a signal to the whole process group, as from a terminal: each worker finishes."""
    with _Slow() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        clients = [RawClient(gateway.port) for _ in range(12)]
        for client in clients:
            client.request()
            upstream.asked.get(timeout=20)
        family = children(gateway.server.pid)
        for pid in (*family, gateway.server.pid):
            os.kill(pid, number)

        def phase() -> str:
            found: str = requests.get(f"{gateway.admin_url}/readyz", timeout=10).json()["phase"]
            return found

        wait_until(lambda: phase() == "draining", "it is not told that the gateway ends")
        wait_until(lambda: not _takes(gateway.port), "connections are still taken")
        upstream.may_answer.set()
        assert [client.read().status for client in clients] == [200] * 12
        assert gateway.server.process.wait(20) == 0
        for client in clients:
            client.close()
    assert not [pid for pid in family if is_there(pid)]
    assert _messages(gateway).count("stopped") == 3


def _takes(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_balancers_are_told_before_connections_are_refused(start_gateway: StartGateway) -> None:
    """For `shutdown_delay` every worker accepts connections, while `/readyz` returns 503."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=", shutdown_delay: 5s"))
        gateway.server.signal(signal.SIGTERM)
        wait_until(
            lambda: sum("no longer ready" in line for line in _messages(gateway)) == 3,
            "nobody drains",
        )
        readiness = requests.get(f"{gateway.admin_url}/readyz", timeout=10)
        assert (readiness.status_code, readiness.json()["phase"]) == (503, "draining")
        assert {get(gateway.port).status for _ in range(20)} == {200}
        assert gateway.server.process.wait(20) == 0


def test_a_second_signal_ends_all_at_once(start_gateway: StartGateway) -> None:
    """Requests in flight are not waited for, and no process stays."""
    with _Slow() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        with RawClient(gateway.port) as client:
            client.request()
            upstream.asked.get(timeout=20)
            family = children(gateway.server.pid)
            gateway.server.signal(signal.SIGTERM)
            wait_until(lambda: any("draining" in line for line in _messages(gateway)), "no drain")
            gateway.server.signal(signal.SIGTERM)
            assert gateway.server.process.wait(10) == -signal.SIGTERM
            assert not [pid for pid in family if is_there(pid)]
            upstream.may_answer.set()
        # Ended by a signal, as it was asked to: `stop` of the fixture would take that for a fault.
        gateway.server.process.returncode = 0


@pytest.mark.parametrize("is_busy", [False, True])
def test_nothing_outlives_the_supervisor(start_gateway: StartGateway, *, is_busy: bool) -> None:
    """Killed without a word, it takes all its children along, even if they have work."""
    with _Slow() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        with RawClient(gateway.port) as client:
            if is_busy:
                client.request()
                upstream.asked.get(timeout=20)
            family = children(gateway.server.pid)
            assert len(family) == 4
            gateway.server.signal(signal.SIGKILL)
            gateway.server.process.wait()
            wait_until(
                lambda: not any(is_there(pid) for pid in family), "a child outlives its supervisor"
            )
            upstream.may_answer.set()


def test_processes_that_are_stopped_do_not_outlive_the_supervisor(
    start_gateway: StartGateway,
) -> None:
    """Neither a worker nor the limiter: its port is free for the next gateway."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=", watchdog: off"))
        family = children(gateway.server.pid)
        with frozen(*family[:2]):
            gateway.server.signal(signal.SIGKILL)
            gateway.server.process.wait()
            wait_until(
                lambda: not any(is_there(pid) for pid in family), "a child outlives its supervisor"
            )
        socket.create_server(("127.0.0.1", gateway.port)).close()


def test_a_worker_that_is_told_to_end_does_so_in_peace(start_gateway: StartGateway) -> None:
    """Its request ends, and another worker takes its place."""
    with _Slow() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        with RawClient(gateway.port) as client:
            client.request()
            upstream.asked.get(timeout=20)
            pid = server_of(gateway, client.sock.getsockname()[1])
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: any("draining" in line for line in _messages(gateway)), "no drain")
            # While it does, the next one is there already, and nobody waits for the old one.
            wait_until_ready(gateway, 5)
            others = [RawClient(gateway.port) for _ in range(12)]
            for other in others:
                other.request()
                upstream.asked.get(timeout=20)
            upstream.may_answer.set()
            assert client.read().status == 200
            assert [other.read().status for other in others] == [200] * 12
            for other in others:
                other.close()
        wait_until(lambda: not is_there(pid), "it does not end")
        wait_until_ready(gateway, 4)
    wait_until(lambda: any(str(pid) in line for line in _messages(gateway)), "nobody says so")
    told = [line for line in _messages(gateway) if str(pid) in line]
    assert len(told) == 1
    assert told[0].endswith(f"({pid}) was stopped and has been replaced")


def test_the_limiter_is_not_ended_by_a_signal_to_all(start_gateway: StartGateway) -> None:
    """Workers need it until they have ended."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        limiter = limiter_of(gateway)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(limiter, number)
        assert requests.get(f"{gateway.admin_url}/readyz", timeout=10).status_code == 200
        assert limiter_of(gateway) == limiter


def test_every_process_opens_a_renamed_log_again(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """After SIGUSR1 no line goes to the old file, and none is lost or torn."""
    log = tmp_path / "gateway.log"
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"log: {{ output: '{log}' }}\n" + CONFIG.format(url=upstream.url, more="")
        )
        assert {get(gateway.port, f"/{number}").status for number in range(30)} == {200}
        wait_until(lambda: log.read_text().count('"status"') == 30, "lines are missing")
        log.rename(tmp_path / "old.log")
        gateway.server.signal(signal.SIGUSR1)
        wait_until(
            lambda: all(_has_open(pid, log) for pid in children(gateway.server.pid)),
            "somebody writes to the old file",
        )
        assert {get(gateway.port, f"/{number}").status for number in range(30)} == {200}
        wait_until(lambda: log.read_text().count('"status"') == 30, "lines are missing")
        gateway.stop()
    for line in log.read_text().splitlines():
        json.loads(line)
    assert log.read_text().count('"stopped"') == 3


def _has_open(pid: int, path: Path) -> bool:
    for one in Path(f"/proc/{pid}/fd").iterdir():
        # It may have been closed since.
        with suppress(FileNotFoundError):
            if one.readlink() == path:
                return True
    return False


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = folder / "sluice.yaml"
    path.write_text(f"server: {{ workers: 3 }}\n{text}routes:\n  /**: {{ upstream: {_NOBODY} }}\n")
    return subprocess.run(
        [sys.executable, "-m", "gateway", "run", str(path)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


_NOBODY: Final = "http://127.0.0.1:9"


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
        ("listen: no-such-host.invalid:{free}\n", ("the host 'no-such-host.invalid'",)),
        ("listen: :{free}\nlog: {{output: ./none/a.log}}\n", ("log.output: the folder", "mkdir")),
        (
            "listen: :{free}\nadmin: off\nstore: rediss://h?ssl_ca_certs=/none\n",
            ("store.url: the URL of the store cannot be used: an ssl_... option",),
        ),
    ],
)
def test_what_cannot_be_had_is_named_once(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    """As with one process: exit status 1, the field, what is wrong, a way out; and no log line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = {"taken": server.getsockname()[1], "free": free_port()}
        done = _run(tmp_path, text.format(**ports))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count(str(tmp_path / "sluice.yaml")) == 1
    for word in words:
        assert done.stderr.count(word.format(**ports)) == 1, done.stderr


def test_two_gateways_do_not_share_a_port_in_silence(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Workers share theirs; a second gateway by mistake is refused it."""
    gateway = start_gateway(CONFIG.format(url=_NOBODY, more=""))
    done = _run(tmp_path, f"listen: 127.0.0.1:{gateway.port}\nadmin: off\n")
    assert done.returncode == 1
    assert "is already in use" in done.stderr


def test_a_port_that_the_system_chooses_is_the_same_for_all(tmp_path: Path) -> None:
    """Port 0 is one port, which the log names, and all workers serve there."""
    config = tmp_path / "sluice.yaml"
    with RecordingUpstream() as upstream:
        text = CONFIG.format(url=upstream.url, more="")
        config.write_text(f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{text}")
        server = ServerProcess(
            "gateway",
            [sys.executable, "-m", "gateway", "run", str(config)],
            tmp_path,
            lambda: (tmp_path / "gateway.out").read_text().count("listening on") == 3,
            {"PYTHONPATH": PYTHON_PATH},
        )
        ports = set(re.findall(r"listening on http://127.0.0.1:(\d+)", server.stdout))
        assert len(ports) == 1
        port = int(ports.pop())
        assert {get(port).status for _ in range(10)} == {200}
        assert server.stop() == 0


def test_auto_takes_the_cpus_that_may_be_used(tmp_path: Path) -> None:
    """Those of the affinity, and no more than the quota of a container, rounded up."""
    mine = len(os.sched_getaffinity(0))
    assert usable_cpus(tmp_path) == mine
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cpus(tmp_path) == mine
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cpus(tmp_path) == 1
    (tmp_path / "cpu.max").write_text(f"{mine * 1000_000} 100000\n")
    assert usable_cpus(tmp_path) == mine
    (tmp_path / "cpu.max").write_text("nonsense\n")
    assert usable_cpus(tmp_path) == mine
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == 1


def test_auto_starts_as_many_workers(start_gateway: StartGateway) -> None:
    """And the limiter; on one CPU there is one process only, as ever."""
    gateway = start_gateway(
        f"server: {{ workers: auto }}\nroutes:\n  /**: {{ upstream: {_NOBODY} }}\n"
    )
    cpus = usable_cpus()
    assert len(children(gateway.server.pid)) == (cpus + 1 if cpus > 1 else 0)


def test_one_worker_is_one_process(start_gateway: StartGateway) -> None:
    """The default starts nothing else."""
    gateway = start_gateway(
        f"server: {{ workers: 1 }}\nroutes:\n  /**: {{ upstream: {_NOBODY} }}\n"
    )
    assert children(gateway.server.pid) == []


def test_what_dies_again_and_again_is_started_again_more_and_more_rarely(
    start_gateway: StartGateway,
) -> None:
    """Pauses grow, and the others serve meanwhile."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, more=""))
        supervisor = gateway.server.pid
        others = workers_of(gateway)[1:]
        limiter = limiter_of(gateway)
        killed: set[int] = set()
        begin = time.monotonic()
        while time.monotonic() - begin < 3:
            for pid in set(children(supervisor)) - {*others, limiter} - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.005)
        # 0, 0.1, 0.2, 0.4, 0.8, 1.6 s: five or six in three seconds, and not hundreds.
        assert 3 <= len(killed) <= 8
        wait_until_ready(gateway, 4)
        assert set(others) <= set(children(supervisor))


@pytest.mark.parametrize("files", range(16, 26, 2))
def test_too_few_files_are_named_as_what_they_are(tmp_path: Path, files: int) -> None:
    """However far a start gets with them, what ends it is a message."""
    config = tmp_path / "sluice.yaml"
    listen = ", ".join(f"127.0.0.1:{free_port()}" for _ in range(4))
    config.write_text(
        f"listen: [{listen}]\nadmin: off\nserver: {{ workers: 3 }}\n"
        "routes: { /**: { upstream: http://127.0.0.1:9, limit: 1/s } }\n"
    )
    words = f"ulimit -n {files}; exec {sys.executable} -m gateway run {config}"
    done = subprocess.run(
        ["timeout", "-s", "TERM", "60", "sh", "-c", words],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr
    assert re.search("open files|files can be opened|No file descriptors", done.stderr)
