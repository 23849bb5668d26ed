"""Real processes for the tests: a free port, a start, a wait until ready, an orderly end.

Everything listens on the loopback interface. What a process writes goes to files, so that it
never blocks on a full pipe and a failing test can show it.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gateway

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = Path(gateway.__file__).parent.parent
"""The folder of the package under test: `ROOT`, or where its hot modules are compiled."""
PYTHON_PATH: Final = os.pathsep.join(dict.fromkeys((str(PACKAGE), str(ROOT))))
"""For processes: the package under test, then the tests themselves."""


def _own_ports() -> Iterator[int]:
    """Ports that neither the system gives away by itself nor another process of the tests."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(10_000 + worker, 32_000, workers)
    # Another run may be under way.
    begin = random.Random(os.getpid()).randrange(len(ports))
    return itertools.cycle((*ports[begin:], *ports[:begin]))


_ports = _own_ports()


def _own_pairs() -> Iterator[int]:
    """Likewise of two ports next to each other the lower one; none that a default names."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(5_000 + 2 * worker, 7_900, 2 * workers)
    begin = random.Random(os.getpid()).randrange(len(ports))
    return itertools.cycle((*ports[begin:], *ports[:begin]))


_pairs = _own_pairs()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, and that nobody else will be given."""
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a cycle has no end")


def free_pair() -> int:
    """The lower of two ports of 127.0.0.1 next to each other; as `free_port`."""
    for port in _pairs:
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("a cycle has no end")


def _loopbacks() -> tuple[str, ...]:
    """Its addresses on this machine: a container often has no IPv6."""
    found = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.bind((host, 0))
            found.append(host)
    return tuple(found)


LOOPBACKS: Final = _loopbacks()
"""The addresses of loopback that there are here."""


def answers(port: int, path: str = "/") -> bool:
    """Whether an HTTP server on this port answers `path` with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class ServerProcess:
    """A server started for a test.

    Args:
        name: the stem of the files that its output goes to.
        argv: the command.
        folder: where it runs and where its output is kept.
        is_ready: asked until it says yes; AssertionError with the output if it never does.
        env: variables added to the test's own.
        keeps_files: whether it inherits files that the test made inheritable.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        folder: Path,
        is_ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        *,
        keeps_files: bool = False,
    ) -> None:
        self.name = name
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self.process = subprocess.Popen(
                argv,
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                close_fds=not keeps_files,
            )
        self._wait_until(is_ready)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """All that it wrote to its standard output so far."""
        return self._out.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The lines of its standard output that are whole by now: the last may be half written."""
        return self.stdout.split("\n")[:-1]

    @property
    def stderr(self) -> str:
        """All that it wrote to its standard error so far."""
        return self._err.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop it, and return when all of its threads have stopped: some may go on for a moment."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self.signal(signal.SIGCONT)

    def stop(self) -> int:
        """End it with SIGTERM (SIGKILL when it does not go) and return its exit status."""
        if self.process.poll() is None:
            # A stopped process does not see SIGTERM before it goes on.
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end on SIGTERM:\n{self.stderr}") from None

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_ready():
            status = self.process.poll()
            if status is not None:
                raise AssertionError(f"{self.name} ended with {status}:\n{self._output()}")
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.name} did not become ready:\n{self._output()}")
            time.sleep(0.02)

    def _output(self) -> str:
        return self.stdout + self.stderr


class OwnServer:
    """A server of a test's own, which may be started, ended, killed and frozen any number of times.

    Attributes:
        port: where it is, each time.
    """

    def __init__(self) -> None:
        self._process: ServerProcess | None = None
        self._starts = 0
        self.port = free_port()

    @property
    def process(self) -> ServerProcess:
        """The running server."""
        assert self._process is not None, "the server was not started"
        return self._process

    def start(self) -> None:
        """Start it; each kind of server does that in its own way."""
        raise NotImplementedError

    def revive(self) -> None:
        """See that it has not ended by itself; otherwise start it again, for the tests to come.

        Raises:
            AssertionError: it had; how, and what it said at last.
        """
        status = None if self._process is None else self._process.process.poll()
        if self._process is None or status is None:
            return
        said = self._process.stderr[-3000:]
        name, self._process = self._process.name, None
        self.start()
        raise AssertionError(f"{name} had ended with {status}, by itself; it said:\n{said}")

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the running server."""
        return self.process.pid

    def stop(self) -> None:
        """End in order, if it runs."""
        if self._process is not None and self._process.process.poll() is None:
            self._process.stop()
        self._process = None

    def kill(self) -> None:
        """End at once, without a word to clients."""
        self.process.process.kill()
        self.process.process.wait(20)
        self._process = None

    def freeze(self) -> None:
        """Stop working, with all connections open."""
        self.process.freeze()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self.process.thaw()


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs as a process of its own.

    Attributes:
        url: where clients reach it, without a slash at the end.
        admin_url: where /healthz, /readyz and /metrics are.
        port: the port of `url`.
        server: the process.
    """

    url: str
    admin_url: str
    port: int
    server: ServerProcess

    @classmethod
    def start(
        cls,
        config: str,
        folder: Path,
        env: Mapping[str, str] | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
        before: Sequence[str] = (),
        listener: str = "",
    ) -> Gateway:
        """Run `config`, a configuration without `listen` and `admin`, and wait until ready.

        The command is put after the words of `before`, such as `prlimit --nofile=64`. Each listener
        has what `listener` says, such as `redirect_to_https: true`.
        """
        port, admin_port = free_port(), free_port()
        path = folder / f"gateway-{port}.yaml"
        addresses = ", ".join(f'{{ address: "{host}:{port}", {listener} }}' for host in hosts)
        listeners = f"listen: [{addresses}]\nadmin: {{ listen: 127.0.0.1:{admin_port} }}\n"
        path.write_text(listeners + config)
        server = ServerProcess(
            f"gateway-{port}",
            [*before, sys.executable, "-m", "gateway", "run", "-c", str(path)],
            folder,
            lambda: answers(admin_port, "/readyz"),
            # The gateway under test, whichever is installed.
            {"PYTHONPATH": PYTHON_PATH, **(env or {})},
        )
        return cls(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}", port, server)

    def stop(self) -> None:
        """End it as an operator would, and look at how it went.

        Raises:
            AssertionError: it did not end, ended badly, or left a traceback.
        """
        status = self.server.stop()
        errors = self.server.stderr
        assert "Traceback" not in errors, errors
        assert '"traceback"' not in self.server.stdout, self.server.stdout
        assert "never awaited" not in errors, errors
        assert "never retrieved" not in errors, errors
        assert status in {0, -signal.SIGKILL}, f"exit status {status}\n{errors}"
