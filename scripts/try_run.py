"""Starts `make run`, asks it one question, and ends it as Ctrl-C does; exits 0 if all is well."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

START_S = 900
"""For the packages of the gateway, which are fetched first."""
STOP_S = 30


def free_port() -> int:
    """A port that nobody has: on the usual one there may be something of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(process: subprocess.Popen[bytes], output: Path) -> str:
    """What the gateway says when it is asked, as soon as it says where it listens.

    Raises:
        RuntimeError: it does not come to that.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        told = re.search(r"listens on http://(\S+?),", output.read_text())
        if told:
            connection = HTTPConnection(told[1], timeout=STOP_S)
            connection.request("GET", "/hello")
            answer = connection.getresponse()
            if answer.status == 200 and b"Hello from the upstream." in answer.read():
                return f"GET http://{told[1]}/hello: 200"
            raise RuntimeError(f"make run answered {answer.status}")
        time.sleep(0.2)
    raise RuntimeError("make run did not start")


def main() -> int:
    """Run it."""
    output = Path(tempfile.mkdtemp()) / "output"
    command = ["make", "run", f"ARGS=--listen 127.0.0.1:{free_port()}"]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    problem = ""
    try:
        print(ask(process, output), flush=True)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(STOP_S)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    text = output.read_text()
    if "Traceback" in text:
        problem = problem or "make run left a traceback"
    if problem:
        print(f"{problem}; it printed:\n{text}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
