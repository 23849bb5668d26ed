"""Sockets that a service manager opens, and what it hears; it is one of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
import requests

from tests.e2e.raw import RawClient, get
from tests.processes import PYTHON_PATH, ServerProcess, answers, free_port
from tests.workers.family import is_there, wait_until
from tests.workers.succession import Load, Manager, UnixClient, takes_connections

ROUTE: Final = (
    "log: {{ access: off }}\nserver: {{ workers: {workers} }}\n"
    "routes: {{ /**: {{ respond: {{ status: 200, body: ok }} }} }}\n"
)


def _command(config: Path, descriptors: Sequence[int], names: str = "") -> list[str]:
    """Runs the gateway as systemd would: its descriptors are those from 3 on."""
    # Moved away first, so that none of them is overwritten.
    moves = [f"exec {60 + at}<&{number}" for at, number in enumerate(descriptors)]
    moves += [f"exec {3 + at}<&{60 + at} {60 + at}<&-" for at in range(len(descriptors))]
    moves += [
        f"export LISTEN_FDS={len(descriptors)} LISTEN_PID=$$ LISTEN_FDNAMES={names}",
        f"exec {sys.executable} -m gateway run {config}",
    ]
    # POSIX allows one digit only.
    return ["bash", "-c", "; ".join(moves)]


class _Service:
    """A gateway whose sockets belong to the test."""

    def __init__(self, folder: Path, text: str, sockets: Sequence[socket.socket]) -> None:
        self.manager = Manager("@sluice-test-" + folder.name + str(os.getpid()))
        self.config = folder / "sluice.yaml"
        self.config.write_text(text)
        for one in sockets:
            one.set_inheritable(True)
        self._starts = 0
        self._folder = folder
        self._sockets = sockets

    def start(self, admin: int, names: str = "web.socket") -> ServerProcess:
        """Start it, and wait until it serves."""
        self._starts += 1
        server = ServerProcess(
            f"service-{self._starts}",
            _command(self.config, [one.fileno() for one in self._sockets], names),
            self._folder,
            lambda: answers(admin, "/readyz"),
            {"PYTHONPATH": PYTHON_PATH, **self.manager.environment},
            keeps_files=True,
        )
        self.manager.main = server.pid
        self.manager.wait_for(READY="1")
        return server


@contextmanager
def _listening(*addresses: tuple[str, int] | str) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        found = []
        for address in addresses:
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            one = stack.enter_context(socket.socket(family))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
            one.listen(128)
            found.append(one)
        yield found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_restart_loses_no_connection(tmp_path: Path, workers: int) -> None:
    """Connections that come before the gateway is there, or while it is away, are served."""
    port, admin, path = free_port(), free_port(), str(tmp_path / "s.sock")
    text = f"listen: ['127.0.0.1:{port}', 'unix:{path}']\nadmin: 127.0.0.1:{admin}\n"
    with _listening(("127.0.0.1", port), path, ("127.0.0.1", admin)) as sockets:
        service = _Service(tmp_path, text + ROUTE.format(workers=workers), sockets)
        with service.manager, RawClient(port) as early:
            early.request()
            server = service.start(admin)
            assert early.read().status == 200
            inode = Path(path).stat().st_ino
            assert server.stop() == 0
            assert service.manager.wait_for(STOPPING="1")
            with RawClient(port) as between, UnixClient(path) as local:
                between.request()
                local.request()
                server = service.start(admin)
                assert between.read().status == 200
                assert local.read().status == 200
            assert server.stop() == 0
            assert Path(path).stat().st_ino == inode


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_beside_that_of_an_inherited_socket_is_explained(
    tmp_path: Path, workers: int
) -> None:
    """It is the gateway itself that has the port: the problem says what to do about it."""
    port, admin = free_port(), free_port()
    text = f"listen: '127.0.0.1:{port}'\nadmin: 127.0.0.1:{admin}\n"
    with _listening(("127.0.0.1", port)) as sockets:
        service = _Service(tmp_path, text + ROUTE.format(workers=workers), sockets)
        with service.manager:
            server = service.start(admin)
            wide = text.replace(f"127.0.0.1:{port}", f"0.0.0.0:{port}")
            service.config.write_text(wide + ROUTE.format(workers=workers))
            headers = {"Content-Type": "application/json"}
            url = f"http://127.0.0.1:{admin}/reload"
            (problem,) = requests.post(url, headers=headers, timeout=20).json()["problems"]
            assert "an address that this gateway listens on already" in problem["message"]
            assert "ReusePort=yes" in problem["hint"]
            assert get(port).body == b"ok"
            assert server.stop() == 0


@pytest.mark.parametrize("workers", [(1, 2), (2, 1)], ids=str)
def test_what_a_service_manager_has_opened_is_handed_on(
    tmp_path: Path, workers: tuple[int, int]
) -> None:
    """By an upgrade, and by the next one; the file of a Unix socket stays the service manager's."""
    port, admin, path = free_port(), free_port(), str(tmp_path / "s.sock")
    text = f"listen: ['127.0.0.1:{port}', 'unix:{path}']\nadmin: 127.0.0.1:{admin}\n"
    with _listening(("127.0.0.1", port), path) as sockets:
        service = _Service(tmp_path, text + ROUTE.format(workers=workers[0]), sockets)
        with service.manager as manager:
            server = service.start(admin)
            with Load(lambda: RawClient(port)) as load:
                for count in (workers[1], workers[0]):
                    service.config.write_text(text + ROUTE.format(workers=count))
                    pid = manager.main
                    os.kill(pid, signal.SIGUSR2)
                    assert "MAINPID" in manager.wait_for(READY="1")
                    variables = Path(f"/proc/{manager.main}/environ").read_bytes()
                    assert b"\0LISTEN_" not in variables
                    load.wait_for_more()
                    wait_until(
                        lambda pid=pid: not is_there(pid),  # type: ignore[misc]
                        "the old one does not end",
                    )
                    load.wait_for_more()
            assert load.failures == []
            assert server.process.wait(20) == 0
            os.kill(manager.main, signal.SIGTERM)
            wait_until(lambda: not is_there(manager.main), "it does not end")
            assert takes_connections(path)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_socket_without_a_listener_waits_for_one(tmp_path: Path, workers: int) -> None:
    """A reload removes its listener, an upgrade follows, and a reload adds the listener again."""
    port, other, admin, path = free_port(), free_port(), free_port(), str(tmp_path / "s.sock")
    less = f"listen: ['127.0.0.1:{port}']\nadmin: 127.0.0.1:{admin}\n"
    more = f"listen: ['127.0.0.1:{port}', '127.0.0.1:{other}', 'unix:{path}']\n"
    more += f"admin: 127.0.0.1:{admin}\n"
    route = ROUTE.format(workers=workers)
    with _listening(("127.0.0.1", port), ("127.0.0.1", other), path) as sockets:
        service = _Service(tmp_path, more + route, sockets)
        with service.manager as manager:
            server = service.start(admin, "web.socket:other.socket:local.socket")
            unused = f"inherited socket 127.0.0.1:{other} (other.socket): connections wait there"
            local = f"inherited socket unix:{path} (local.socket): connections wait there"

            def reload(text: str) -> None:
                service.config.write_text(text + route)
                os.kill(manager.main, signal.SIGHUP)
                manager.wait_for(RELOADING="1")
                manager.wait_for(READY="1")

            reload(less)
            wait_until(lambda: server.stdout.count(unused) == 1, "nothing is said")
            wait_until(lambda: server.stdout.count(local) == 1, "nothing is said")
            with RawClient(other) as waiting, UnixClient(path) as also:
                waiting.request()
                also.request()
                before = manager.main
                os.kill(before, signal.SIGUSR2)
                assert "MAINPID" in manager.wait_for(READY="1")
                wait_until(lambda: server.stdout.count(unused) == 2, "nothing is said")
                wait_until(lambda: not is_there(before), "the old one does not end")
                reload(more)
                assert waiting.read().status == 200
                assert also.read().status == 200
            # Its file remains the service manager's.
            reload(less)
            reload(more)
            with UnixClient(path) as client:
                assert client.get().status == 200
            assert server.process.wait(20) == 0
            os.kill(manager.main, signal.SIGTERM)
            wait_until(lambda: not is_there(manager.main), "it does not end")
            assert takes_connections(path)


def test_a_socket_for_both_families_is_enough_for_a_port_alone(tmp_path: Path) -> None:
    """As `ListenStream=8080` makes them; clients of IPv4 have their own addresses."""
    port, admin = free_port(), free_port()
    text = f"listen: :{port}\nadmin: 127.0.0.1:{admin}\n" + ROUTE.format(workers=1)
    with socket.socket(socket.AF_INET6) as one:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.bind(("::", port))
        one.listen(128)
        service = _Service(tmp_path, text, [one])
        with service.manager:
            server = service.start(admin)
            assert get(port).status == 200
            assert requests.get(f"http://[::1]:{port}/", timeout=10).status_code == 200
            assert server.stop() == 0


def _run(config: Path, numbers: Sequence[int]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(config, numbers, "web.socket:more.socket"),
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        pass_fds=numbers,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_socket_that_no_listener_wants_is_an_error(tmp_path: Path, workers: int) -> None:
    """Clients would wait there for ever; it is named, and what to do."""
    config, port, other = tmp_path / "sluice.yaml", free_port(), free_port()
    config.write_text(f"listen: 127.0.0.1:{port}\nadmin: off\n" + ROUTE.format(workers=workers))
    with _listening(("127.0.0.1", port), ("127.0.0.1", other)) as sockets:
        done = _run(config, [one.fileno() for one in sockets])
    assert done.returncode == 1
    assert f"the inherited socket 127.0.0.1:{other} (more.socket)" in done.stderr
    assert "hint: add such a listener" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_not_a_listening_socket_is_named(tmp_path: Path) -> None:
    """A datagram socket is an error; a file may be there for the log."""
    config = tmp_path / "sluice.yaml"
    config.write_text("listen: 127.0.0.1:0\nadmin: off\n" + ROUTE.format(workers=1))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        done = _run(config, [one.fileno()])
    assert done.returncode == 1
    assert "the inherited descriptor 3 web.socket is not a socket that listens" in done.stderr
    assert "Traceback" not in done.stderr
