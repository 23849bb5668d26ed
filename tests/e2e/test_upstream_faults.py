"""Upstreams that fail in each phase of an exchange, under load.

Every client has a right answer, a clean error or a connection that breaks off in the middle of an
answer, within its timeouts; what may not be sent twice is not, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import requests

from tests.e2e.crowd import Crowd
from tests.e2e.faulty import FAULTS
from tests.e2e.memory import peak_mib, reset_peak
from tests.e2e.raw import get
from tests.e2e.rude import be_rude
from tests.e2e.signs import wait_for_metric
from tests.e2e.test_failures import black_hole
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, answers, free_port

CLEAN: Final = {"200", "502", "503", "504"}
CLIENTS: Final = 24


class Site(NamedTuple):
    """A gateway and the upstream behind it."""

    gateway: Gateway
    upstream: ServerProcess
    port: int
    folder: Path

    def counts(self) -> dict[str, int]:
        """How often each id has arrived at the upstream."""
        answer: dict[str, int] = requests.get(
            f"http://127.0.0.1:{self.port}/counts", timeout=20
        ).json()
        return answer

    def files(self) -> int:
        """Open files of the gateway."""
        return len(list(Path(f"/proc/{self.gateway.server.pid}/fd").iterdir()))


def _start_upstream(folder: Path, port: int, name: str = "faulty") -> ServerProcess:
    return ServerProcess(
        name,
        [sys.executable, "-m", "tests.e2e.faulty", str(port)],
        folder,
        lambda: answers(port, "/counts"),
        {"PYTHONPATH": PYTHON_PATH},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway with short timeouts; routes to nobody, and to who never accepts, too."""
    folder = tmp_path_factory.mktemp("faults")
    port = free_port()
    with ExitStack() as stack:
        hole = stack.enter_context(black_hole())
        upstream = _start_upstream(folder, port)
        gateway = Gateway.start(
            f"""
log: {{ access: off }}
server: {{ header_timeout: 800ms, body_timeout: 800ms }}
defaults: {{ timeouts: {{ connect: 300ms, first_byte: 800ms, idle: 800ms }} }}
upstreams:
  faulty: {{ targets: 'http://127.0.0.1:{port}', max_connections: 64, keepalive: 300ms }}
routes:
  /hole/**: {{ upstream: '{hole}' }}
  /refused/**: {{ upstream: 'http://127.0.0.1:{free_port()}' }}
  /**: {{ upstream: faulty }}
""",
            folder,
        )
        yield Site(gateway, upstream, port, folder)
        gateway.stop()
        upstream.stop()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(site: Site) -> Iterator[None]:
    """After each test the gateway is as it was before it."""
    assert wait_for_metric(site.gateway, "sluice_upstream_connections", 0)
    before = site.files()
    yield
    assert wait_for_metric(site.gateway, "sluice_client_connections", 0)
    assert wait_for_metric(site.gateway, "sluice_upstream_connections", 0)
    # The connections that asked for metrics may take a moment more.
    assert _becomes(lambda: site.files() <= before)
    assert get(site.gateway.port, "/ok/alive").status == 200


def _becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _assert_sent_once(crowd: Crowd, counts: dict[str, int]) -> None:
    """POST at most once; GET once more at most, after a connection that was closed when idle."""
    most = {"POST": 1, "GET": 2}
    assert not [note for note in crowd.notes if counts.get(note.id, 0) > most[note.method]]
    # What was answered was sent.
    assert not [n for n in crowd.notes if n.fate == "200" and not counts.get(n.id)]


async def test_faults_in_every_phase_under_load(site: Site) -> None:
    """Each request meets its own fault, among others that meet theirs, on shared connections."""
    crowd = Crowd(site.gateway.port, tuple(FAULTS), 1)
    await crowd.ask(CLIENTS, 16)
    for note in crowd.notes:
        # A POST may meet a connection that ends just then, and is not sent again.
        stale = {"502"} if note.method == "POST" else set()
        assert note.fate in FAULTS[note.fault][1] | stale, note
    assert {note.fault for note in crowd.notes} == set(FAULTS)
    _assert_sent_once(crowd, await asyncio.to_thread(site.counts))


@pytest.mark.parametrize(("path", "status"), [("refused", "502"), ("hole", "504")])
async def test_an_upstream_that_is_not_there(site: Site, path: str, status: str) -> None:
    """Nobody listens, or nobody accepts: all are told so, after the time for a connection."""
    crowd = Crowd(site.gateway.port, (path,), 2)
    await crowd.ask(CLIENTS, 3)
    assert {note.fate for note in crowd.notes} == {status}


async def test_an_upstream_that_is_killed_under_load(site: Site) -> None:
    """Some requests fail while it is away; when it is back, all go well again."""
    crowd = Crowd(site.gateway.port, ("ok", "slow"), 3)
    asking = asyncio.create_task(crowd.ask(CLIENTS, 60))
    await _until(lambda: len(crowd.notes) > 200)
    before = await asyncio.to_thread(site.counts)
    site.upstream.process.kill()
    await asyncio.to_thread(site.upstream.process.wait)
    await asking
    assert {note.fate for note in crowd.notes} <= {*CLEAN, "broken"}
    assert {note.fate for note in crowd.notes} >= {"200", "502"}
    sent_twice = [n for n in crowd.notes if n.method == "POST" and before.get(n.id, 0) > 1]
    assert not sent_twice
    site.upstream.process = (
        await asyncio.to_thread(_start_upstream, site.folder, site.port, "faulty-again")
    ).process
    crowd = Crowd(site.gateway.port, ("ok",), 4)
    await crowd.ask(CLIENTS, 5)
    assert {note.fate for note in crowd.notes} == {"200"}


async def test_an_upstream_that_is_frozen_under_load(site: Site) -> None:
    """504 while it stands still; what it took meanwhile it sees once, and all goes well again."""
    crowd = Crowd(site.gateway.port, ("ok", "slow"), 5)
    asking = asyncio.create_task(crowd.ask(CLIENTS, 30))
    await _until(lambda: len(crowd.notes) > 100)
    site.upstream.freeze()
    try:
        await _until(lambda: sum(note.fate == "504" for note in crowd.notes) > CLIENTS)
    finally:
        site.upstream.thaw()
    await asking
    assert {note.fate for note in crowd.notes} <= {*CLEAN, "broken"}
    _assert_sent_once(crowd, await asyncio.to_thread(site.counts))
    crowd = Crowd(site.gateway.port, ("ok",), 6)
    await crowd.ask(CLIENTS, 5)
    assert {note.fate for note in crowd.notes} == {"200"}


async def test_a_mix_of_all_faults_leaves_no_trace(site: Site) -> None:
    """Upstreams and clients fail at random; from one such time to the next nothing grows."""
    pid = site.gateway.server.pid

    async def once(seed: int) -> None:
        crowd = Crowd(site.gateway.port, tuple(FAULTS), seed)
        async with asyncio.TaskGroup() as group:
            group.create_task(crowd.ask(CLIENTS // 2, 12))
            for number in range(CLIENTS // 2):
                group.create_task(be_rude(site.gateway.port, seed + number, 8))
        for note in crowd.notes:
            assert note.fate in {*CLEAN, "broken"}, note
        _assert_sent_once(crowd, await asyncio.to_thread(site.counts))

    await once(100)
    reset_peak(pid)
    before = peak_mib(pid)
    await once(200)
    await once(300)
    assert peak_mib(pid) - before < 3


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.005)
