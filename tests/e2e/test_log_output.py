"""The log under service managers: stdout as a socket, a pipe or a file, by any of its names."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.processes import PYTHON_PATH, answers, free_port

WAIT_S: Final = 30
NAMES: Final = ("stdout", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "stderr", "/dev/stderr")


class Stream(NamedTuple):
    """What a process is started with, and what is read at its other end."""

    given: int
    read_from: int


def _socket(_folder: Path) -> Stream:
    """A stream as systemd has it."""
    ours, theirs = socket.socketpair()
    return Stream(theirs.detach(), ours.detach())


def _pipe(_folder: Path) -> Stream:
    reader, writer = os.pipe()
    return Stream(writer, reader)


def _file(folder: Path) -> Stream:
    path = folder / "log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT)
    return Stream(writer, os.open(path, os.O_RDONLY))


@pytest.mark.parametrize(
    ("output", "make", "workers"),
    [
        ("stdout", _socket, 1),
        ("/dev/stdout", _socket, 1),
        ("/dev/stdout", _socket, 2),
        ("/dev/stdout", _pipe, 1),
        ("/dev/stdout", _file, 1),
        ("/dev/fd/1", _socket, 1),
        ("/proc/self/fd/1", _socket, 1),
        ("/dev/stderr", _socket, 1),
        ("/dev/stderr", _pipe, 1),
    ],
)
def test_the_log_goes_to_what_the_process_was_started_with(
    output: str, make: Callable[[Path], Stream], workers: int, tmp_path: Path
) -> None:
    """A request is logged there, whatever it is and whatever it is called."""
    port, admin = free_port(), free_port()
    path = tmp_path / "sluice.yaml"
    path.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nlog: {{output: {output}}}\n"
        f"server: {{workers: {workers}}}\nroutes: {{/**: {{respond: here}}}}\n"
    )
    stream = make(tmp_path)
    is_stderr = "stderr" in output
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "run", path],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        stdout=subprocess.DEVNULL if is_stderr else stream.given,
        stderr=stream.given if is_stderr else subprocess.DEVNULL,
    )
    os.close(stream.given)
    end = time.monotonic() + WAIT_S
    try:
        while not answers(port, "/wanted") and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.05)
        received = b""
        while b"/wanted" not in received and time.monotonic() < end:
            if select.select([stream.read_from], [], [], 0.1)[0]:
                received += os.read(stream.read_from, 65_536)
        lines = [json.loads(line) for line in received.splitlines() if b"/wanted" in line]
        assert lines
        assert lines[0]["path"] == "/wanted"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
        os.close(stream.read_from)


@pytest.mark.parametrize(
    ("output", "said"),
    [("/dev/fd/987", "is not open in this process"), ("SOCKET", "is a socket")],
)
def test_what_cannot_be_logged_to_is_said(output: str, said: str, tmp_path: Path) -> None:
    """A descriptor that nobody opened, and a socket that waits for connections."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "log.sock"))
    path = tmp_path / "sluice.yaml"
    output = output.replace("SOCKET", str(tmp_path / "log.sock"))
    path.write_text(
        f"listen: 127.0.0.1:{free_port()}\nadmin: off\nlog: {{output: {output}}}\n"
        "routes: {/**: {respond: here}}\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "gateway", "run", path],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    listener.close()

    assert done.returncode == 1
    assert said in done.stderr
