"""Redis freezes, dies and comes back under load: what each `on_store_error` promises."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.load import Sample, between, hammer, span_s, statuses
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway
from tests.servers import RedisServer, until
from tests.upstreams import Upstream

RATE: Final = 50
BURST: Final = 20
OUTAGE_S: Final = 1.4
MARGIN_S: Final = 0.6
"""Left out at both ends of an outage: a request may meet either state there."""

CONFIG: Final = """
store: {{ url: '{redis}', deadline: 250ms }}
policies:
  main: {{ limit: {rate}/s burst {burst} per all, on_store_error: {mode} }}
routes:
  /**: {{ upstream: {url}, policies: [main] }}
"""

IN_AN_OUTAGE: Final = {"local": {200, 429}, "open": {200}, "closed": {503}}
"""What clients may be told while the store is away."""


class _Story:
    """What was done to the store, and when."""

    def __init__(self, gateway: Gateway, server: RedisServer) -> None:
        self._gateway = gateway
        self._server = server
        self.outages: list[tuple[float, float]] = []
        self.steady: list[tuple[float, float]] = []

    async def play(self) -> None:
        """Good times, frozen, good times, dead, good times."""
        await self._steady()
        await self._outage(self._server.freeze, self._server.thaw)
        await self._steady()
        await self._outage(self._server.kill, self._server.start)
        await self._steady()

    async def _steady(self) -> None:
        await asyncio.to_thread(self._wait_for_decisions)
        started = time.monotonic()
        await asyncio.sleep(1)
        self.steady.append((started, time.monotonic()))

    async def _outage(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        started = time.monotonic()
        await asyncio.to_thread(begin)
        await asyncio.sleep(OUTAGE_S)
        self.outages.append((started + MARGIN_S, time.monotonic()))
        await asyncio.to_thread(end)

    def _wait_for_decisions(self) -> None:
        """Return when the store decides again."""
        before = metric(self._gateway, "sluice_store_decisions_total")
        deadline = time.monotonic() + 30
        while metric(self._gateway, "sluice_store_decisions_total") < before + 5:
            assert time.monotonic() < deadline, "the store is never asked again"
            time.sleep(0.02)


@pytest.mark.parametrize("mode", IN_AN_OUTAGE)
async def test_an_outage_of_redis_is_what_the_policy_says(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream, mode: str
) -> None:
    """No unintended 5xx, no late answer, and the limit holds again when Redis is back."""
    gateway = start_gateway(
        CONFIG.format(
            redis=redis_server.url, url=nginx_upstream.url, mode=mode, rate=RATE, burst=BURST
        )
    )
    story = _Story(gateway, redis_server)
    samples = await hammer([f"{gateway.url}/one"], ["any"], story.play, clients=8, pause_s=0.005)

    _assert_nothing_unintended(samples, mode)
    for start, end in story.outages:
        found = statuses(between(samples, start, end))
        # Who waited for the store, and not for its deadline, would not be among these.
        assert found.total() > 20
        assert set(found) <= IN_AN_OUTAGE[mode]
    for start, end in story.steady:
        calm = between(samples, start, end)
        # Machine noise may cost a decision now and then; the limit is what rules.
        assert statuses(calm)[429] > len(calm) / 2
        assert statuses(calm)[200] <= BURST + RATE * span_s(calm) + 2 * BURST
    if mode == "local":
        # Each change between store and gateway may grant one burst more, and an empty Redis one.
        assert statuses(samples)[200] <= RATE * span_s(samples) + 6 * BURST
    if mode == "closed":
        assert all(sample.retry_after == "1" for sample in samples if sample.status == 503)


async def test_a_full_redis_is_an_outage_that_is_told_once(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream
) -> None:
    """It looks and does not count; whoever says so at each look says nothing in the end."""
    gateway = start_gateway(
        CONFIG.format(
            redis=redis_server.url, url=nginx_upstream.url, mode="local", rate=RATE, burst=BURST
        ).replace("250ms", "10s")
    )

    def lines(text: str) -> int:
        return gateway.server.stdout.count(text)

    async def fill_and_make_room() -> None:
        with contextlib.closing(redis_server.client()) as client:
            client.config_set("maxmemory", 1)
            await asyncio.sleep(2.5)
            assert lines("store available again") <= 1
            assert 1 <= lines("store unavailable (") <= 2
            found = lines("store available again")
            client.config_set("maxmemory", 0)
            await until(lambda: lines("store available again") == found + 1)

    samples = await hammer(
        [f"{gateway.url}/one"], ["any"], fill_and_make_room, clients=2, pause_s=0.01
    )
    assert set(statuses(samples)) == {200, 429}


def _assert_nothing_unintended(samples: list[Sample], mode: str) -> None:
    intended = {200, 429} | IN_AN_OUTAGE[mode]
    assert set(statuses(samples)) <= intended


async def test_a_gateway_starts_and_serves_without_its_store(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream
) -> None:
    """It answers by its policy from the first request on, and finds the store when it comes."""
    redis_server.kill()
    gateway = start_gateway(
        CONFIG.format(
            redis=redis_server.url, url=nginx_upstream.url, mode="local", rate=RATE, burst=BURST
        )
    )

    async def wait_for_store() -> None:
        await asyncio.sleep(0.3)
        assert metric(gateway, "sluice_store_ready") == 0
        await asyncio.to_thread(redis_server.start)
        deadline = time.monotonic() + 30
        while not metric(gateway, "sluice_store_decisions_total"):
            assert time.monotonic() < deadline, "the store is never asked"
            await asyncio.sleep(0.02)

    samples = await hammer(
        [f"{gateway.url}/one"], ["any"], wait_for_store, clients=4, pause_s=0.005
    )
    assert set(statuses(samples)) == {200, 429}
    assert metric(gateway, "sluice_store_ready") == 1


def test_what_passed_during_an_outage_is_counted_after_it(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream
) -> None:
    """One of two gateways spends its half while Redis is frozen; then both have the other half."""
    config = f"""
store: {{ url: '{redis_server.url}', deadline: 1s }}
policies:
  main: {{ limit: 60/h per all }}
routes:
  /**: {{ upstream: {nginx_upstream.url}, policies: [main] }}
"""
    gateways = [start_gateway(config), start_gateway(config)]

    def passed(gateway: Gateway, requests_: int) -> int:
        found = [requests.get(f"{gateway.url}/one", timeout=20) for _ in range(requests_)]
        return sum(answer.status_code == 200 for answer in found)

    for gateway in gateways:
        assert wait_for_metric(gateway, "sluice_store_gateways", 2)
    redis_server.freeze()
    assert passed(gateways[0], 40) == 30
    redis_server.thaw()
    for gateway in gateways:
        assert wait_for_metric(gateway, "sluice_store_ready", 1)
    # What is told follows at once, and nothing else is asked of this store.
    with contextlib.closing(redis_server.client()) as client:
        deadline = time.monotonic() + 30
        while not list(client.scan_iter("*main/all*")):
            assert time.monotonic() < deadline, "the store is never told"
            time.sleep(0.02)
    assert passed(gateways[1], 20) == 20
    assert passed(gateways[0], 20) == 10
    assert passed(gateways[1], 5) == 0
