"""Upgrades and reloads of one gateway: neither begins during the other, and none is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, get
from tests.processes import answers, free_port
from tests.workers.family import PATIENCE_S, children, wait_until
from tests.workers.succession import Load, UnixClient, takes_connections, upgradable

CONFIG: Final = (
    "log: {{ access: off }}\nserver: {{ workers: {} }}\n"
    "routes: {{ /**: {{ respond: {{ status: 200, body: first }} }} }}\n"
)
RELOAD_WAITS: Final = "a reload was requested; it begins when the upgrade in progress has ended"
UPGRADE_WAITS: Final = "an upgrade was requested; it begins when the reload in progress has ended"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_manager_hears_of_every_reload(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """As systemd's `Type=notify-reload` wants it: also if nothing changed, or the file is bad."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        begun_us = time.monotonic_ns() // 1000
        said = running.manager.said
        for old, new in (("first", "first"), ("first", "second"), ("routes", "routers")):
            del said[:]
            running.change(old, new)
            running.reload()
            assert said == [{"RELOADING": "1"}, {"READY": "1"}]
        wait_until(lambda: running.says("is not reloaded"), "it is not said why")
        assert get(running.gateway.port).body == b"second"
        times_us = [begun_us, *running.manager.times_us, time.monotonic_ns() // 1000]
        assert len(times_us) == 5
        assert times_us == sorted(times_us)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_successor_reloads_as_its_predecessor_did(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """A changed route, a new listener, and one that is gone, all of them handed over before."""
    stays, goes, port = tmp_path / "stays.sock", tmp_path / "goes.sock", free_port()
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        running.change("listen: [", f"listen: [unix:{stays}, unix:{goes}, ")
        running.reload()
        running.wait_for_end(running.upgrade())
        inode = stays.stat().st_ino
        with Load(lambda: RawClient(running.gateway.port)) as load:
            load.wait_for_more()
            running.change("first", "second")
            running.change(f"unix:{goes}", f"'127.0.0.1:{port}'")
            running.reload()
            assert get(running.gateway.port).body == get(port).body == b"second"
            assert not goes.exists()
            load.wait_for_more()
            running.wait_for_end(running.upgrade())
            load.wait_for_more()
        assert load.failures == []
        assert answers(port)
        assert stays.stat().st_ino == inode
        with UnixClient(str(stays)) as client:
            assert client.get().body == b"second"
    assert not takes_connections(str(stays))
    assert not stays.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_waits_for_an_upgrade_that_fails(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """Then it is made, and its caller hears what came of it."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        pid, held, outcomes = running.pid, running.hold(), list[dict[str, Any]]()
        running.ask()
        held.wait_for_reader()
        running.change("first", "second")
        asking = running.post_reload(outcomes)
        wait_until(lambda: running.says(RELOAD_WAITS), "nothing is said")
        assert get(running.gateway.port).body == b"first"
        held.release("routes: [")
        asking.join(PATIENCE_S)
        assert outcomes[0]["applied"]
        assert outcomes[0]["changes"]
        assert running.says("not upgraded: ")
        assert get(running.gateway.port).body == b"second"
        assert running.pid == pid


@pytest.mark.parametrize("workers", [(1, 1), (2, 2), (1, 2), (2, 1)], ids=str)
def test_a_reload_during_an_upgrade_is_the_successors(
    start_gateway: StartGateway, tmp_path: Path, workers: tuple[int, int]
) -> None:
    """It has read the file already; the caller hears that, and that the file is read again."""
    with upgradable(start_gateway, CONFIG.format(workers[0]), tmp_path) as running:
        running.change(f"workers: {workers[0]}", f"workers: {workers[1]}")
        before, held, outcomes = running.pid, running.hold(), list[dict[str, Any]]()
        running.ask()
        held.wait_for_reader()
        running.change("first", "second")
        asking = running.post_reload(outcomes)
        wait_until(lambda: running.says(RELOAD_WAITS), "nothing is said")
        held.release(held.text)
        running.wait_for_successor(before)
        asking.join(PATIENCE_S)
        assert outcomes[0]["status"] == 503
        assert "upgraded meanwhile" in outcomes[0]["detail"]
        running.wait_for_ready()
        # The successor serves what it was started with until it has read the file again.
        wait_until(lambda: get(running.gateway.port).body == b"second", "it is not read again")
        # The limiter of several workers writes that a moment later.
        wait_until(lambda: running.says("configuration reloaded"), "nothing is said of the reload")
        running.wait_for_end(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_upgrade_waits_for_a_reload(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """What the reload has changed is in the file that the successor reads, too."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        before, held, outcomes = running.pid, running.hold(), list[dict[str, Any]]()
        family = children(before)
        asking = running.post_reload(outcomes)
        held.wait_for_reader()
        running.change("first", "second")
        running.ask()
        wait_until(lambda: running.says(UPGRADE_WAITS), "nothing is said")
        # A supervisor lets a child read.
        assert len(children(before)) == len(family) + (workers > 1)
        held.release(held.text.replace("first", "second"))
        asking.join(PATIENCE_S)
        assert outcomes[0]["applied"]
        assert outcomes[0]["changes"]
        running.wait_for_ready()
        running.wait_for_successor(before)
        assert running.says(UPGRADE_WAITS)
        assert get(running.gateway.port).body == b"second"
        running.wait_for_end(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_changed_number_of_workers_names_the_upgrade(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """A reload refuses it with that hint, and the upgrade does it."""
    other = 3 - workers
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        running.change(f"workers: {workers}", f"workers: {other}")
        outcomes: list[dict[str, Any]] = []
        running.post_reload(outcomes).join(PATIENCE_S)
        running.wait_for_ready()
        assert outcomes[0]["problems"][0]["key"] == "server.workers"
        assert outcomes[0]["problems"][0]["hint"].endswith("upgrade it with SIGUSR2")
        running.wait_for_end(running.upgrade())
        assert len(children(running.pid)) == (0 if other == 1 else other + 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_upgrade_is_put_off_until_the_gateway_has_started(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    """Asked of a successor while it starts, it is made when that serves."""
    with upgradable(start_gateway, CONFIG.format(workers), tmp_path) as running:
        before, held = running.pid, running.hold()
        family = children(before)
        running.ask()
        held.wait_for_reader()
        (successor,) = set(children(before)) - set(family)
        os.kill(successor, signal.SIGUSR2)
        held.release(held.text)
        running.wait_for_successor(before)
        assert running.pid == successor
        running.wait_for_successor(successor)
        running.wait_for_end(before)
        running.wait_for_end(successor)
        assert get(running.gateway.port).body == b"first"
