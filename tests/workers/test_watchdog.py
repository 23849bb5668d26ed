"""Processes that hang are killed and started again; those that the machine holds up are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest
import requests

from gateway.base.clock import US
from gateway.config.models.service import LEAST_WATCHDOG_US
from gateway.workers.watchdog import BEAT_S, START_US, STARVED, Sample, Watchdog
from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.signs import log_lines
from tests.workers.family import children, frozen, is_there, limiter_of, wait_until, workers_of

LIMIT_US = 5 * US
CONFIG = """
server: {{ workers: 3, watchdog: 1s }}
routes:
  /**: {{ upstream: "{url}", limit: 1000/s, on_store_error: closed }}
"""


def _watched() -> Watchdog:
    watchdog = Watchdog(LIMIT_US, 0)
    watchdog.beat(0)
    return watchdog


def _killed_after(watchdog: Watchdog, state: str, cpu_share: float) -> float | None:
    """After how many seconds of silence it is killed; None if never within ten limits."""
    while (now_us := watchdog.next_us()) < 10 * LIMIT_US:
        if watchdog.hangs(now_us, Sample(state, int(now_us * cpu_share))):
            return now_us / US
    return None


@pytest.mark.parametrize("state", ["T", "S", "t"])
def test_one_that_stopped_or_sleeps_hangs(state: str) -> None:
    """It could beat, and does not."""
    assert _killed_after(_watched(), state, 0) == 5


def test_one_that_spins_hangs() -> None:
    """It has the CPU, and does something else with it; or a little of it, for longer."""
    assert _killed_after(_watched(), "R", 1.0) == 5
    assert _killed_after(_watched(), "R", 0.2) == 7.5


@pytest.mark.parametrize("state", ["R", "D"])
def test_one_that_starves_is_given_time(state: str) -> None:
    """The machine is at fault, but not forever."""
    assert _killed_after(_watched(), state, 0.001) == 5 * STARVED


def test_a_beat_begins_anew() -> None:
    """What went before counts no more."""
    watchdog = _watched()
    assert not watchdog.hangs(LIMIT_US // 2, Sample("S", 0))
    watchdog.beat(LIMIT_US - 1)
    assert watchdog.next_us() == LIMIT_US - 1 + LIMIT_US // 2
    assert not watchdog.hangs(LIMIT_US + 1, Sample("S", 0))


def test_a_healthy_process_may_be_late() -> None:
    """Even with the least watchdog, a beat that is late by twice its interval kills nobody."""
    watchdog = Watchdog(LEAST_WATCHDOG_US, 0)
    watchdog.beat(0)
    assert not watchdog.hangs(3 * round(BEAT_S * US), Sample("S", 0))


def test_the_first_beat_may_take_longer() -> None:
    """A process that starts reads certificates and names of hosts."""
    watchdog = Watchdog(LIMIT_US, 0)
    assert not watchdog.hangs(START_US - 1, Sample("S", 0))
    assert watchdog.hangs(START_US, Sample("S", 0))


def test_systems_that_say_nothing_of_processes() -> None:
    """Only the silence of the process counts."""
    watchdog = _watched()
    assert not watchdog.hangs(LIMIT_US // 2, None)
    assert watchdog.hangs(LIMIT_US, None)


def test_a_stopped_worker_is_replaced(start_gateway: StartGateway) -> None:
    """The log reports it; its place serves again, and waiting clients are served."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url))
        stopped = workers_of(gateway)[1]
        with frozen(stopped):
            wait_until(lambda: not is_there(stopped), "it is not killed")
            assert {get(gateway.port).status for _ in range(30)} == {200}
        wait_until(
            lambda: any(
                f"worker-2 ({stopped}) did not respond for" in line.get("message", "")
                and line["message"].endswith("s, was killed and has been restarted")
                for line in log_lines(gateway)
            ),
            "nobody says so",
        )
        assert requests.get(f"{gateway.admin_url}/readyz", timeout=10).ok


def test_a_stopped_limiter_is_replaced(start_gateway: StartGateway) -> None:
    """Policies that are `closed` admit requests again, without a restart by hand."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url))
        stopped = limiter_of(gateway)
        with frozen(stopped):
            # Who would replace it is held, too, lest that is over before anybody has looked.
            with frozen(gateway.server.pid):
                wait_until(lambda: get(gateway.port).status == 503, "it is still asked")
            wait_until(lambda: get(gateway.port).status == 200, "there is no other")
            assert not is_there(stopped)


def test_what_stopped_them_all_is_held_against_none(start_gateway: StartGateway) -> None:
    """A supervisor that was stopped as well, for example by a suspended machine, kills none."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url))
        family = children(gateway.server.pid)
        with frozen(gateway.server.pid, *family):
            time.sleep(2.5)  # Nothing happens while all are stopped.
        assert {get(gateway.port).status for _ in range(30)} == {200}
        assert children(gateway.server.pid) == family


SPINS = """
    import sys, time
    from gateway.base.clock import monotonic_us
    from gateway.workers.child import start_child

    def spin(channel):
        channel.send(b"\\n")
        while True:
            pass

    child = start_child("spins", [], spin, 1_000_000)
    while (end := child.exit_description()) is None:
        child.listen()
        child.kill_if_hung(monotonic_us())
        time.sleep(0.05)
    print(end)
"""


LEFT = """
    import os, signal
    from gateway.workers.child import start_child

    def spin(channel):
        channel.send(b"\\n")
        while True:
            pass

    child = start_child("spins", [], spin, None)
    print(child.pid, flush=True)
    child.channel.setblocking(True)
    child.channel.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_spins_does_not_outlive_the_supervisor() -> None:
    """Nobody watches it any more, and it reads nothing: the system ends it."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEFT)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    left = int(run.stdout)
    wait_until(lambda: not is_there(left), "it is still there")


def test_a_real_process_that_spins_is_killed() -> None:
    """The state of the system's process is read correctly."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPINS)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert run.stdout.startswith("did not respond for ")
