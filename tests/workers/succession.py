"""Gateways that are upgraded, under the eyes of a service manager, and clients that never stop."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import requests

from tests.e2e.raw import RawClient
from tests.e2e.signs import log_lines
from tests.processes import Gateway
from tests.workers.family import PATIENCE_S, is_there, wait_until

PAUSES_S: Final = (0, 0, 0, 0.01, 0.1)
"""What clients that keep their connections do between two requests, in turns."""


class Manager:
    """What is told to a service manager, as systemd hears it.

    Args:
        address: the path of its socket, or `@` and an abstract name.

    Attributes:
        main: the process that is watched and signalled.
        said: everything that was said, but for its times.
        times_us: these times, of reloads and upgrades, by the monotonic clock.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)
        self.environment = {"NOTIFY_SOCKET": address}
        self.main = 0
        self.said: list[dict[str, str]] = []
        self.times_us: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def wait_for(self, **wanted: str) -> dict[str, str]:
        """The next message that says this; those before it are noted, too."""
        while True:
            lines = self._socket.recv(4096).decode().split("\n")
            message = dict(line.split("=", 1) for line in lines)
            if "MONOTONIC_USEC" in message:
                self.times_us.append(int(message.pop("MONOTONIC_USEC")))
            self.said.append(message)
            self.main = int(message.get("MAINPID", self.main))
            if wanted.items() <= message.items():
                return message


class HeldFile:
    """A file whose next reader gets nothing until the test says what is in it.

    Args:
        path: the file, which is a pipe until it is being read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.text = path.read_text()
        self._writer = -1
        pipe = path.with_suffix(".pipe")
        os.mkfifo(pipe)
        pipe.replace(path)

    def wait_for_reader(self) -> None:
        """Until a process reads it; for any other it is the file from before again."""
        wait_until(self._is_read, "nothing reads the file")
        file = self._path.with_suffix(".file")
        file.write_text(self.text)
        file.replace(self._path)

    def _is_read(self) -> bool:
        with suppress(OSError):
            self._writer = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        return self._writer >= 0

    def release(self, text: str) -> None:
        """Let the reader have this."""
        os.write(self._writer, text.encode())
        os.close(self._writer)


class Upgradable:
    """A gateway and its successors.

    Args:
        gateway: the first of them, which is served under the eyes of `manager`.
        manager: the service manager.

    Attributes:
        gateway: as given.
        manager: as given.
    """

    def __init__(self, gateway: Gateway, manager: Manager) -> None:
        self.gateway = gateway
        self.manager = manager
        self._config = Path(gateway.server.process.args[-1])  # type: ignore[index, arg-type]
        manager.main = gateway.server.pid
        manager.wait_for(READY="1")

    @property
    def pid(self) -> int:
        """The process that is the main one now."""
        return self.manager.main

    def change(self, old: str, new: str) -> None:
        """Change the configuration file."""
        text = self._config.read_text()
        assert old in text
        self._config.write_text(text.replace(old, new))

    def ask(self) -> None:
        """Ask for an upgrade, and do not wait for it."""
        os.kill(self.pid, signal.SIGUSR2)

    def upgrade(self) -> int:
        """Upgrade it; returns the process that was replaced, when another has told to serve."""
        before = self.pid
        self.ask()
        self.wait_for_successor(before)
        return before

    def wait_for_successor(self, before: int) -> None:
        """Until the next process to say that it serves does; it is another than before."""
        message = self.manager.wait_for(READY="1")
        assert "MAINPID" in message, f"not upgraded:\n{self.gateway.server.stdout[-2000:]}"
        assert self.pid != before

    def hold(self) -> HeldFile:
        """Let the next reader of the configuration wait."""
        return HeldFile(self._config)

    def reload(self) -> None:
        """Reload by a signal; returns when that has ended, whatever came of it."""
        os.kill(self.pid, signal.SIGHUP)
        self.manager.wait_for(RELOADING="1")
        self.wait_for_ready()

    def post_reload(self, outcomes: list[dict[str, Any]]) -> threading.Thread:
        """Ask for a reload at the admin listener, in the background."""
        headers = {"Content-Type": "application/json"}
        url = f"{self.gateway.admin_url}/reload"

        def work() -> None:
            outcomes.append(requests.post(url, headers=headers, timeout=PATIENCE_S).json())

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def says(self, *texts: str) -> bool:
        """Whether the log has a message with these texts."""
        lines = [line.get("message", "") for line in log_lines(self.gateway)]
        return any(all(text in line for text in texts) for line in lines)

    def wait_for_ready(self) -> None:
        """Until the service manager hears that the gateway serves, whichever process it is."""
        self.manager.wait_for(READY="1")

    def wait_for_end(self, pid: int) -> None:
        """Until a process that was replaced has ended."""
        if pid == self.gateway.server.pid:
            assert self.gateway.server.process.wait(PATIENCE_S) == 0
        else:
            wait_until(lambda: not is_there(pid), f"{pid} does not end")

    def stop(self) -> None:
        """End the last of them, as an operator would."""
        pid = self.pid
        if is_there(pid):
            os.kill(pid, signal.SIGTERM)
        self.wait_for_end(pid)


@contextmanager
def upgradable(
    start: Callable[..., Gateway], config: str, folder: Path, address: str = ""
) -> Iterator[Upgradable]:
    """A gateway that is stopped at the end, whichever process it is by then."""
    with Manager(address or str(folder / "notify")) as manager:
        gateway = start(config, manager.environment)
        running = Upgradable(gateway, manager)
        try:
            yield running
        finally:
            running.stop()


class Load:
    """Clients that ask all the time: some keep their connections, and some use each once.

    Attributes:
        answered: how many requests were answered with 200.
        failures: what went wrong with others.
    """

    def __init__(self, connect: Callable[[], RawClient]) -> None:
        self._connect = connect
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._keep, self._keep, self._keep, self._renew, self._renew)
        ]
        self.answered = 0
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def wait_for_more(self, count: int = 200) -> None:
        """Until so many more requests were answered."""
        wanted = self.answered + count
        wait_until(lambda: self.answered >= wanted or bool(self.failures), "nothing is answered")

    def _ask(self, client: RawClient) -> bool:
        """Whether the connection goes on."""
        answer = client.get()
        with self._lock:
            self.answered += answer.status == 200
            if answer.status != 200:
                self.failures.append(f"status {answer.status}")
        return answer.all("Connection") != ["close"]

    def _note(self, error: Exception) -> None:
        with self._lock:
            self.failures.append(repr(error))

    def _renew(self) -> None:
        while not self._is_over.is_set():
            try:
                with self._connect() as client:
                    self._ask(client)
            except (OSError, http.client.HTTPException) as error:
                self._note(error)

    def _keep(self) -> None:
        while not self._is_over.is_set():
            try:
                with self._connect() as client:
                    turn = 0
                    while not self._is_over.is_set() and self._ask(client):
                        turn += 1
                        self._is_over.wait(PAUSES_S[turn % len(PAUSES_S)])
            except (OSError, http.client.HTTPException) as error:
                self._note(error)


class UnixClient(RawClient):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        try:
            self.sock.connect(path)
        except OSError:
            self.close()
            raise


def takes_connections(path: str) -> bool:
    """Whether somebody listens at a Unix socket's file."""
    with suppress(OSError), UnixClient(path):
        return True
    return False
