"""Gateways whose clocks go wrong: one that is set, and one that stands still with its process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import requests

from gateway.base.clock import monotonic_us
from gateway.limits.rate import Limit
from tests.conftest import StartGateway
from tests.faketime import SetClock
from tests.model.history import Span
from tests.model.laws import Passed, excess
from tests.upstreams import Upstream

HOURS_S: Final = 7200
PAUSE_S: Final = 2.0
SLOW: Final = Limit(2, 1_000_000, 3)


def test_setting_the_clock_of_a_gateway_frees_nobody(
    start_gateway: StartGateway, nginx_upstream: Upstream, tmp_path: Path
) -> None:
    """What is kept in memory goes by a clock that nobody sets, forward or back."""
    set_clock = SetClock(tmp_path / "clock")
    log = "algorithm: sliding_window_log"
    config = (
        f"routes:\n  /**: {{ upstream: {nginx_upstream.url}, policies: [bucket, log] }}\n"
        f"policies: {{ bucket: {{ limit: 5/h }}, log: {{ limit: 5/h, {log} }} }}\n"
    )
    gateway = start_gateway(config, set_clock.env)
    with requests.Session() as client:

        def statuses(number: int) -> list[int]:
            return [client.get(f"{gateway.url}/one").status_code for _ in range(number)]

        assert statuses(6) == [200] * 5 + [429]
        for step in (HOURS_S, -2 * HOURS_S):
            set_clock.step(step)
            assert statuses(3) == [429] * 3


def test_a_gateway_that_stood_still_refills_no_more_than_its_burst(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """As after a suspend: more time has passed than it takes to fill the bucket."""
    gateway = start_gateway(
        f"routes:\n  /**: {{ upstream: {nginx_upstream.url}, limit: 2/s burst 3 per all }}\n"
    )
    passed: list[Passed] = []
    with requests.Session() as client:

        def ask(number: int) -> int:
            before = len(passed)
            for _ in range(number):
                sent = monotonic_us()
                if client.get(f"{gateway.url}/one").status_code == 200:
                    span = Span(sent, monotonic_us())
                    passed.append(Passed(span, span, 0, 1, span, span))
            return len(passed) - before

        assert ask(10) >= 3
        gateway.server.freeze()
        time.sleep(PAUSE_S)
        gateway.server.thaw()
        assert ask(10) >= 3
    assert excess(SLOW, passed) <= 0
