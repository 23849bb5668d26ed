"""Several targets, real processes all of them, that are killed, stopped, fail and come back."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.raw import RawClient, get
from tests.e2e.signs import metric
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, answers, free_port

WAIT_S: Final = 20.0
CONFIG: Final = """
log: {{ access: off }}
upstreams:
  checked: {{ targets: {urls}, health: {{ path: /healthz, {often} }} }}
  connected: {{ targets: {urls}, health: {{ {often} }}, eject: off }}
  judged:
    targets: {urls}
    eject: {{ failures: 2, duration: 2s }}
    timeouts: {{ first_byte: 2s }}
  retried: {{ targets: {urls}, retry: 2, eject: {{ failures: 3, duration: 2s }} }}
  hashed:
    targets: {urls}
    balance: {{ hash: header:x-user }}
    health: {{ path: /healthz, {often} }}
  guarded:
    targets: {first}
    breaker: {{ failures: 50%, min_requests: 4, open: 2s, trials: 1 }}
routes:
  /checked: {{ upstream: checked }}
  /connected: {{ upstream: connected }}
  /judged: {{ upstream: judged }}
  /retried: {{ upstream: retried }}
  /hashed: {{ upstream: hashed }}
  /guarded: {{ upstream: guarded }}
"""


OFTEN: Final = "every: 50ms, timeout: 2s, unhealthy_after: 2, healthy_after: 2"


class Target:
    """One target, on a port that it keeps over its deaths."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._server: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens while it lives."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def server(self) -> ServerProcess:
        """The process."""
        assert self._server is not None
        return self._server

    def start(self) -> None:
        """Start, or start again."""
        argv = [sys.executable, "-m", "tests.e2e.target", str(self.port)]
        self._server = ServerProcess(
            f"target-{self.port}",
            argv,
            self._folder,
            lambda: answers(self.port, "/healthz"),
            {"PYTHONPATH": PYTHON_PATH},
        )

    def kill(self) -> None:
        """End without a word."""
        self.server.process.kill()
        self.server.process.wait(WAIT_S)

    def say(self, status: int) -> None:
        """Answer with this status from now on."""
        assert get(self.port, f"/say/{status}").status == 200


class Fleet:
    """Three targets and the gateway before them."""

    def __init__(self, gateway: Gateway, targets: list[Target]) -> None:
        self.gateway = gateway
        self.targets = targets

    def whom(self, path: str, count: int) -> Counter[int]:
        """Who answers so many requests: places of targets; -1 for 502 to 504."""
        return Counter(self.row(path, [""] * count))

    def row(self, path: str, fields: Sequence[str]) -> list[int]:
        """The same, one after the other, for a request with each of these fields."""
        places = {str(target.port).encode(): place for place, target in enumerate(self.targets)}
        row = []
        with RawClient(self.gateway.port) as client:
            for field in fields:
                answer = client.get(path, *([field] if field else []))
                row.append(-1 if answer.status >= 500 else places[answer.body])
        return row

    def gauge(self, name: str, upstream: str, place: int) -> float:
        """What the gateway says of a target."""
        target = f"127.0.0.1:{self.targets[place].port}"
        return metric(self.gateway, f"sluice_target_{name}", upstream=upstream, target=target)

    def wait_until(self, name: str, upstream: str, place: int, value: int) -> None:
        """Return when the gateway says that."""
        _wait_until(lambda: self.gauge(name, upstream, place) == value)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


@pytest.fixture(scope="module", name="fleet")
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """All of it, for one test after the other; each leaves all targets well."""
    folder = tmp_path_factory.mktemp("fleet")
    targets = [Target(folder) for _ in range(3)]
    for target in targets:
        target.start()
    urls = f"[{', '.join(target.url for target in targets)}]"
    gateway = Gateway.start(CONFIG.format(urls=urls, first=targets[0].url, often=OFTEN), folder)
    yield Fleet(gateway, targets)
    gateway.stop()
    for target in targets:
        target.server.stop()


@contextmanager
def _restarted(target: Target) -> Iterator[None]:
    """Killed at the beginning, and there again at the end."""
    target.kill()
    try:
        yield
    finally:
        target.start()


@pytest.mark.parametrize("upstream", ["checked", "connected"])
def test_a_target_that_is_killed_and_started_again(fleet: Fleet, upstream: str) -> None:
    """From when checks find it out there is no request for it and no error; then it is back."""
    assert fleet.whom(f"/{upstream}", 9) == {0: 3, 1: 3, 2: 3}
    with _restarted(fleet.targets[1]):
        fleet.wait_until("healthy", upstream, 1, 0)
        assert fleet.whom(f"/{upstream}", 40) == {0: 20, 2: 20}
        assert fleet.gauge("checks_failed_total", upstream, 1) >= 2
    fleet.wait_until("healthy", upstream, 1, 1)
    assert fleet.whom(f"/{upstream}", 9) == {0: 3, 1: 3, 2: 3}
    log = fleet.gateway.server.stdout
    name = f"upstream {upstream}: 127.0.0.1:{fleet.targets[1].port}"
    assert f"{name} is left out: checks fail, the last: connect" in log
    assert f"{name} is used again" in log


def test_a_target_that_hangs(fleet: Fleet) -> None:
    """A stopped process still accepts connections; what it does not do is answer."""
    fleet.targets[2].server.freeze()
    try:
        fleet.wait_until("healthy", "checked", 2, 0)
        assert fleet.whom("/checked", 20) == {0: 10, 1: 10}
        assert fleet.whom("/judged", 12)[-1] <= 3, "two requests found out, and one tried again"
        assert fleet.gauge("ejected", "judged", 2) == 1
    finally:
        fleet.targets[2].server.thaw()
    fleet.wait_until("healthy", "checked", 2, 1)
    assert fleet.whom("/checked", 9) == {0: 3, 1: 3, 2: 3}
    _wait_until(lambda: fleet.whom("/judged", 3) == {0: 1, 1: 1, 2: 1})


def test_a_target_that_is_killed_without_checks(fleet: Fleet) -> None:
    """Requests find out: two fail, and no more until its time is over; then it is back."""
    with _restarted(fleet.targets[0]):
        fleet.whom("/judged", 6)
        assert fleet.gauge("ejected", "judged", 0) == 1
        assert fleet.gauge("healthy", "judged", 0) == 1, "nobody checks it"
    _wait_until(lambda: fleet.whom("/judged", 3) == {0: 1, 1: 1, 2: 1})
    assert fleet.gauge("ejected", "judged", 0) == 0


def test_with_retries_nobody_sees_a_target_die(fleet: Fleet) -> None:
    """Three tries find it out, and each is followed by one elsewhere."""
    assert fleet.whom("/retried", 9) == {0: 3, 1: 3, 2: 3}
    with _restarted(fleet.targets[1]):
        seen = fleet.whom("/retried", 60)
        assert set(seen) == {0, 2}
        assert fleet.gauge("ejections_total", "retried", 1) >= 1
    _wait_until(lambda: fleet.whom("/retried", 3) == {0: 1, 1: 1, 2: 1})


def test_a_target_that_says_503(fleet: Fleet) -> None:
    """It is left out, and comes back when its time is over and it has something else to say."""
    before = fleet.gauge("ejections_total", "judged", 1)
    fleet.targets[1].say(503)
    try:
        assert fleet.whom("/judged", 6)[-1] == 2
        assert fleet.gauge("ejections_total", "judged", 1) == before + 1
    finally:
        fleet.targets[1].say(200)
    _wait_until(lambda: fleet.whom("/judged", 3) == {0: 1, 1: 1, 2: 1})


def test_keys_keep_their_targets_while_one_dies(fleet: Fleet) -> None:
    """Only the keys of the dead one move; when it is back, they are where they were."""
    # That one of three targets has none of so many keys is one chance in a million.
    fields = [f"X-User: {number}" for number in range(40)]

    before = fleet.row("/hashed", fields)
    assert {*before} == {0, 1, 2}
    assert fleet.row("/hashed", fields) == before
    with _restarted(fleet.targets[0]):
        fleet.wait_until("healthy", "hashed", 0, 0)
        for old, new in zip(before, fleet.row("/hashed", fields), strict=True):
            assert (new == old) == (old != 0)
            assert new > 0
    fleet.wait_until("healthy", "hashed", 0, 1)
    assert fleet.row("/hashed", fields) == before


def test_a_breaker_guards_an_upstream(fleet: Fleet) -> None:
    """It opens when the target fails, refuses at once with Retry-After, and closes again."""
    fleet.targets[0].say(503)
    try:
        fleet.whom("/guarded", 4)
        fleet.targets[0].say(200)
        answer = get(fleet.gateway.port, "/guarded")
        assert (answer.status, answer.field("Content-Type")) == (503, "application/problem+json")
        assert b'"breaker_open"' in answer.body
        assert 1 <= int(answer.field("Retry-After")) <= 2
        _wait_until(lambda: get(fleet.gateway.port, "/guarded").status == 200)
        assert fleet.whom("/guarded", 9) == {0: 9}
    finally:
        fleet.targets[0].say(200)
