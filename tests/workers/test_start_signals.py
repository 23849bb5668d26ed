"""Signals during a start: none is lost, and a start that is told to end leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes import PYTHON_PATH, free_port
from tests.workers.family import PATIENCE_S, is_there, wait_until

CONFIG: Final = """
listen: ['127.0.0.1:{port}', 'unix:{folder}/clients.sock']
admin: off
log: {{ output: '{folder}/log' }}
server: {{ workers: {workers} }}
routes:
  /**: {{ respond: {{ status: 200, body: "{body}" }} }}
"""
HANDED_OVER: Final = """
import os, signal
from gateway.workers.start_signals import NOTED, StartSignals

start, heard = StartSignals(), []
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), number)
is_ending = start.is_ending
with start.handed_over():
    for number in NOTED:
        signal.signal(number, lambda number, _: heard.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
print(is_ending, sorted(heard) == sorted((signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)))
"""
TWICE: Final = """
import os, signal
from gateway.workers.start_signals import StartSignals

start = StartSignals()
os.kill(os.getpid(), signal.SIGTERM)
print("once", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("twice", flush=True)
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_handlers_get_what_came_before_them() -> None:
    """Each signal once, also one that comes while handlers are exchanged."""
    assert _run(HANDED_OVER).stdout == "True True\n"


def test_the_second_one_ends_a_start_immediately() -> None:
    """Whatever the start waits for."""
    done = _run(TWICE)
    assert (done.stdout, done.returncode) == ("once\n", -signal.SIGTERM)


_BEGUN: Final[list[subprocess.Popen[bytes]]] = []


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """What a test that failed has left running is killed: it would be the fault of another."""
    yield
    while _BEGUN:
        process = _BEGUN.pop()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class _Start:
    """A gateway that starts, in a process group of its own.

    Args:
        folder: where its files are.
        workers: how many.
        file: its configuration.
    """

    def __init__(self, folder: Path, workers: int, file: Path) -> None:
        self.folder = folder
        self.text = CONFIG.format(port=free_port(), folder=folder, workers=workers, body="one")
        self._command = [sys.executable, "-m", "gateway", "run", str(file)]
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, first: Path | None = None) -> subprocess.Popen[bytes]:
        """Start it; modules in a folder come before all others."""
        path = PYTHON_PATH if first is None else f"{first}:{PYTHON_PATH}"
        env = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(
            self._command, env=env, stderr=subprocess.PIPE, start_new_session=True
        )
        _BEGUN.append(self.process)
        return self.process

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the status when it has ended and left nothing behind."""
        assert self.process is not None
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        assert errors == b""
        assert not (self.folder / "clients.sock").exists()
        with pytest.raises(ProcessLookupError):
            os.killpg(self.process.pid, 0)
        return self.process.returncode


def _handles(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
    return bool(int(status, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_that_is_told_to_end_before_it_has_read_its_file(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    """It opens nothing, says nothing, and its status is 0."""
    file = tmp_path / "gateway.yaml"
    os.mkfifo(file)
    start = _Start(tmp_path, workers, file)
    process = start.begin()
    wait_until(lambda: _handles(process.pid), "no handler")
    process.send_signal(number)
    file.write_text(start.text)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, b"")
    assert {one.name for one in tmp_path.iterdir()} == {"gateway.yaml"}


MOMENTS: Final[dict[str, Callable[[int, Path], bool]]] = {
    "handled": lambda pid, _: _handles(pid),
    "bound": lambda _, folder: (folder / "clients.sock").exists(),
    "logs": lambda _, folder: (folder / "log").exists(),
    "serves": lambda _, folder: (folder / "log").exists() and (folder / "log").stat().st_size > 0,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_that_is_told_to_end(tmp_path: Path, workers: int, moment: str) -> None:
    """However far it has come: its status is 0, and there is neither a process nor a socket."""
    file = tmp_path / "gateway.yaml"
    start = _Start(tmp_path, workers, file)
    file.write_text(start.text)
    process = start.begin()
    wait_until(lambda: MOMENTS[moment](process.pid, tmp_path), f"it never {moment}")
    assert start.end(signal.SIGTERM) == 0
    assert not is_there(process.pid)


HELD_IMPORT: Final = """
import os, sys

if not os.path.exists({folder!r} + "/held"):
    open({folder!r} + "/held", "w").close()
    open({folder!r} + "/go").read()
del sys.modules["argparse"]
sys.path.remove(os.path.dirname(__file__))
import argparse
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_that_come_before_the_modules_of_the_command(tmp_path: Path, workers: int) -> None:
    """None ends the start: it reloads, reopens its log and upgrades when it serves."""
    file, shadows = tmp_path / "gateway.yaml", tmp_path / "shadows"
    start = _Start(tmp_path, workers, file)
    file.write_text(start.text)
    os.mkfifo(tmp_path / "go")
    shadows.mkdir()
    (shadows / "argparse.py").write_text(HELD_IMPORT.format(folder=str(tmp_path)))
    process = start.begin(shadows)
    wait_until((tmp_path / "held").exists, "it does not import")
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    (tmp_path / "go").write_text("")
    # Only the last process of all has no successor.
    assert process.wait(30) == 0
    log = (tmp_path / "log").read_text()
    assert "upgraded: the new process serves" in log
    assert "configuration reloaded: nothing has changed" in log
    (successor,) = _upgrading(tmp_path / "log")
    _end_in_silence(successor, process)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_successor_notes_signals_from_its_first_moment(tmp_path: Path, workers: int) -> None:
    """Before it runs any code of its own: they wait in the system."""
    file = tmp_path / "gateway.yaml"
    start = _Start(tmp_path, workers, file)
    file.write_text(start.text)
    process = start.begin()
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "listening" in log.read_text(), "it does not start")
    process.send_signal(signal.SIGUSR2)
    wait_until(lambda: bool(_upgrading(log)), "no upgrade")
    (successor,) = _upgrading(log)
    for number in (signal.SIGHUP, signal.SIGUSR1):
        os.kill(successor, number)
    assert process.wait(30) == 0
    assert is_there(successor)
    _end_in_silence(successor, process)


def _end_in_silence(successor: int, process: subprocess.Popen[bytes]) -> None:
    os.kill(successor, signal.SIGTERM)
    wait_until(lambda: not is_there(successor), "the successor does not end")
    assert process.communicate()[1] == b""


def _upgrading(log: Path) -> list[int]:
    return [
        int(pid) for pid in re.findall(r"upgrading: process (\d+) is starting", log.read_text())
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_that_is_asked_for_during_a_start_follows_it(tmp_path: Path, workers: int) -> None:
    """Though the configuration was not even read when SIGHUP came."""
    file = tmp_path / "gateway.yaml"
    start = _Start(tmp_path, workers, file)
    file.write_text(start.text)
    process = start.begin()
    wait_until(lambda: _handles(process.pid), "no handler")
    process.send_signal(signal.SIGHUP)
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "reloaded: nothing has" in log.read_text(), "no reload")
    assert start.end(signal.SIGTERM) == 0
