"""A configuration that cannot be read stops nothing but the reload."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import get
from tests.workers.family import PATIENCE_S, is_there, wait_until, workers_of
from tests.workers.succession import HeldFile, Upgradable, upgradable

CONFIG: Final = (
    "log: {{ access: off }}\nserver: {{ workers: {} }}\n"
    "routes: {{ /**: {{ respond: {{ status: 200, body: first }} }} }}\n"
)


def _reading(running: Upgradable, outcomes: list[dict[str, Any]]) -> tuple[HeldFile, Thread]:
    """Ask for a reload that reads a pipe."""
    held = running.hold()
    asking = running.post_reload(outcomes)
    held.wait_for_reader()
    return held, asking


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_never_ends_is_given_up(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """A pipe that nothing is written to: the reload fails with that reason, and the next works."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        outcomes: list[dict[str, Any]] = []
        _, asking = _reading(running, outcomes)
        running.change("first", "second")
        asking.join(PATIENCE_S)
        assert not outcomes[0]["applied"]
        (problem,) = outcomes[0]["problems"]
        assert problem["message"] == "it cannot be read: no end after 20 s"
        assert "a pipe that nothing writes to" in problem["hint"]
        assert get(running.gateway.port).body == b"first"
        running.post_reload(outcomes).join(PATIENCE_S)
        assert outcomes[1]["applied"]
        assert get(running.gateway.port).body == b"second"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_stops_while_it_reads(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """Its caller hears why there is no reload."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        outcomes: list[dict[str, Any]] = []
        _, asking = _reading(running, outcomes)
        running.gateway.server.signal(signal.SIGTERM)
        assert running.gateway.server.process.wait(PATIENCE_S) == 0
        asking.join(PATIENCE_S)
        assert outcomes[0]["status"] == 503


def test_processes_are_restarted_while_a_configuration_is_read(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """One that dies, and one that hangs; then the reload is made."""
    config = CONFIG.format("2, watchdog: 1s")
    with upgradable(start_gateway, config, tmp_path) as running:
        outcomes: list[dict[str, Any]] = []
        killed, stopped = workers_of(running.gateway)
        held, asking = _reading(running, outcomes)
        os.kill(killed, signal.SIGKILL)
        os.kill(stopped, signal.SIGSTOP)
        for pid in (killed, stopped):
            wait_until(
                lambda pid=pid: running.says(f"({pid})", "has been restarted"),  # type: ignore[misc]
                "it is not restarted",
            )
            assert not is_there(pid)
        held.release(held.text.replace("first", "second"))
        asking.join(PATIENCE_S)
        assert outcomes[0]["applied"]
        assert get(running.gateway.port).body == b"second"
