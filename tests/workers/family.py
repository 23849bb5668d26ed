"""The processes of one gateway, as the system shows them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.processes import Gateway, answers

PATIENCE_S: Final = 90.0
ESTABLISHED: Final = "01"


def children(pid: int) -> list[int]:
    """The children of a process, the oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def limiter_of(gateway: Gateway) -> int:
    """The limiter, as long as no process was started again: it is the first."""
    return children(gateway.server.pid)[0]


def workers_of(gateway: Gateway) -> list[int]:
    """The workers, as long as the limiter was not started again."""
    return children(gateway.server.pid)[1:]


def is_there(pid: int) -> bool:
    """Whether a process runs (one that has ended and was not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when something is true; AssertionError if it does not become so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def wait_until_ready(gateway: Gateway, processes: int) -> None:
    """Until the gateway is ready and has all its processes."""
    wait_until(
        lambda: (
            len(children(gateway.server.pid)) == processes
            and answers(int(gateway.admin_url.rpartition(":")[2]), "/readyz")
        ),
        "the gateway did not become whole again",
    )


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Processes that have stopped, and go on afterwards if they are still there."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            wait_until(lambda pid=pid: _state(pid) in {"T", "Z"}, f"{pid} does not stop")  # type: ignore[misc]
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def clients_of(pid: int, port: int) -> set[int]:
    """The ports of those who are connected to `port` of 127.0.0.1 and served by a process."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(descriptor.readlink()))
        except OSError:
            continue
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        is_client = state == ESTABLISHED and int(local.rpartition(":")[2], 16) == port
        if is_client and f"socket:[{rest[5]}]" in inodes:
            found.add(int(remote.rpartition(":")[2], 16))
    return found


def server_of(gateway: Gateway, client_port: int) -> int:
    """The worker that serves a client."""
    found = [
        pid for pid in children(gateway.server.pid) if client_port in clients_of(pid, gateway.port)
    ]
    assert len(found) == 1, found
    return found[0]
