"""Real server processes: started on a CPU, waited for until they answer, always stopped."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import proc
from bench.errors import BenchError
from bench.machine import pinned

START_SECONDS = 60.0
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.001
_WORKING = (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers_http(port: int) -> bool:
    """Whether a GET is passed or refused; some say 404 or 503 until their routes are loaded."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status in _WORKING


def accepts_tcp(port: int) -> bool:
    """Whether a connection is accepted."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@dataclass(slots=True)
class Server:
    """One server process with its children, used as a context manager.

    Attributes:
        name: for messages.
        argv: the command; it must stay in the foreground.
        port: the port of 127.0.0.1 that it will listen on.
        cpu: the CPU that it is held to.
        directory: an existing directory of its own; output goes to `stdout.log`, `stderr.log`.
        env: variables added to the environment.
        is_ready: asked with the port until it says yes.
    """

    name: str
    argv: list[str]
    port: int
    cpu: int
    directory: Path
    env: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[int], bool] = answers_http
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def session(self) -> int:
        """The session its processes live in, for the functions of `bench.proc`."""
        if self._process is None:
            raise BenchError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> float:
        """Start and wait for the first answer; seconds from one to the other.

        Raises:
            BenchError: it ended, or did not answer in time; the end of its output is told.
        """
        with (
            (self.directory / "stdout.log").open("ab") as out,
            (self.directory / "stderr.log").open("ab") as err,
        ):
            begun = time.perf_counter()
            self._process = subprocess.Popen(
                pinned(self.cpu, self.argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.directory,
                env={**os.environ, **self.env},
                start_new_session=True,
            )
        try:
            return self._wait_ready(begun)
        except BaseException:
            self.stop()
            raise

    def expect_alive(self) -> None:
        """Make sure that it still runs.

        Raises:
            BenchError: it ended by itself; the end of its output is told.
        """
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise BenchError(f"{self.name} ended with {code} under load: {self._last_words()}")

    def stop(self) -> None:
        """Ask it to end, and end it if it does not. Stopping twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        self._signal(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        # The leader may have gone before its workers.
        self._signal(process.pid, signal.SIGKILL)
        process.wait()
        while proc.members(process.pid):
            time.sleep(_POLL_SECONDS)

    def _wait_ready(self, begun: float) -> float:
        while not self.is_ready(self.port):
            waited = time.perf_counter() - begun
            if self._process is None or self._process.poll() is not None:
                raise BenchError(f"{self.name} ended while starting: {self._last_words()}")
            if waited > START_SECONDS:
                raise BenchError(f"{self.name} did not answer: {self._last_words()}")
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - begun

    def _last_words(self) -> str:
        texts = [
            (self.directory / name).read_text(encoding="utf-8", errors="replace")
            for name in ("stdout.log", "stderr.log")
        ]
        return " / ".join("".join(texts).strip().splitlines()[-5:]) or "it said nothing"

    @staticmethod
    def _signal(group: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, number)


@dataclass(frozen=True, slots=True)
class CpuShares:
    """How the time of a server's CPU was spent during some work; 1.0 is all of it.

    Attributes:
        own: by the server.
        others: by other processes, or taken by the host of a virtual machine; a measurement
            on a quiet machine has next to none.
    """

    own: float
    others: float


def cpu_shares(server: Server, work: Callable[[], None]) -> CpuShares:
    """Do the work, and see what became of the server's CPU meanwhile."""
    own, everybody = proc.cpu_seconds(server.session), proc.cpu_seconds_of_all(server.cpu)
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    own = proc.cpu_seconds(server.session) - own
    everybody = proc.cpu_seconds_of_all(server.cpu) - everybody
    return CpuShares(own / seconds, max(0.0, everybody - own) / seconds)
