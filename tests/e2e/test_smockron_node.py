"""Smockron's frames with the ZeroMQ of Node, which its own programs use, on either side."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from gateway.base.clock import wall_us
from tests.conftest import StartGateway
from tests.e2e.signs import wait_for_metric
from tests.e2e.test_smockron import client, gatekeeper_config, master_config
from tests.processes import free_pair

FOLDER: Final = Path(__file__).parents[1] / "node"
WAIT_S: Final = 20.0
HOUR_MS: Final = 3_600_000


class Node:
    """A program of Node that says lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(json.loads(line))

    def tell(self, line: str) -> None:
        """One line of its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def wait_for(self, is_it: Callable[[dict[str, Any]], object], within_s: float = WAIT_S) -> Any:
        """The next thing it says of this kind; None if it does not."""
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                said = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if is_it(said):
                return said
        return None

    def join(self) -> None:
        """Return when it has said everything."""
        self._reader.join()


@contextmanager
def node(program: str, *arguments: object) -> Iterator[Node]:
    """A program of tests/node that runs, and is ready."""
    command = shutil.which("node")
    assert command, "make test-packages installs Node"
    assert (FOLDER / "node_modules").is_dir(), "make test-packages installs its ZeroMQ"
    with subprocess.Popen(
        [command, str(FOLDER / program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        peer = Node(process)
        try:
            assert peer.wait_for(lambda said: said == {"ready": True})
            yield peer
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT_S)
            peer.join()


def test_a_gatekeeper_in_node_obeys_our_master(start_gateway: StartGateway) -> None:
    """The burst is accepted, what follows rejected, or delayed where that is not for long."""
    port = free_pair()
    master = start_gateway(master_config(port, "api: 1/h burst 5, quick: 1/s burst 2"))
    with node("gatekeeper.js", port, "api", 5000) as peer:
        number = 0
        # What is sent before both connections stand is lost.
        while not peer.wait_for(lambda said: said.get("command") == "DELAY_UNTIL", 0.2):
            peer.tell(f"warm-{number // 5}")
            number += 1
        before_ms = wall_us() // 1000
        for _ in range(5):
            peer.tell("k")
            said = peer.wait_for(lambda said: said.get("identifier") == "k")
            assert said == {"identifier": "k", "status": "ACCEPTED", "until": 0}
        said = peer.wait_for(
            lambda said: said.get("identifier") == "k" and said.get("command") == "DELAY_UNTIL"
        )
        assert said["topic"] == "api\0"
        assert said["until"] >= before_ms + HOUR_MS
        peer.tell("k")
        assert peer.wait_for(lambda said: said.get("status"))["status"] == "REJECTED"
        wait_for_metric(
            master, "sluice_decisions_total", 1, policy="smockron/api", decision="refuse"
        )
    with node("gatekeeper.js", port, "quick", 5000) as peer:
        deadline = time.monotonic() + WAIT_S
        did: dict[str, Any] = {}
        while did.get("status") != "DELAYED" and time.monotonic() < deadline:
            peer.tell("k")
            did = peer.wait_for(lambda said: said.get("status"))
        assert did["status"] == "DELAYED"
        after = peer.wait_for(
            lambda heard: (
                heard.get("command") == "DELAY_UNTIL" and heard["until"] >= did["until"] + 1000
            )
        )
        assert after, "a delayed request counts when it goes on"


def test_our_gatekeeper_obeys_a_master_in_node(start_gateway: StartGateway) -> None:
    """It reports in six frames, is heard, and hears."""
    port = free_pair()
    with node("master.js", port, HOUR_MS, 5) as peer:
        gateway = start_gateway(gatekeeper_config(port, "1/h burst 5"))
        with client(gateway) as one:
            for _ in range(5):
                assert one.get("k") == (200, 0)
            said = peer.wait_for(lambda said: said.get("identifier") == "k")
            assert abs(int(said.pop("received")) - wall_us() // 1000) < WAIT_S * 1000
            assert said == {
                "frames": 6,
                "topic": "api\0",
                "status": "ACCEPTED",
                "identifier": "k",
                "delayed": "",
                "info": "GET 127.0.0.1 test",
            }
            assert 3_500 < one.until_refused("k") <= 3_601
            assert peer.wait_for(lambda said: said.get("status") == "REJECTED")
