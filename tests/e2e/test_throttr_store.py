"""Gateways whose counts are in a Throttr server: one limit for all, and what if it is away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.conftest import StartGateway
from tests.e2e.load import ask
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway, free_port
from tests.throttr_late import LateThrottr
from tests.throttr_server import ThrottrServer
from tests.upstreams import Upstream

# Windows of an hour: none ends while a test runs. A loaded machine is no reason to decide alone.
CONFIG: Final = """
store: {{ url: "{store}", deadline: 20s }}
domain: t{domain}
policies:
  one: {{ limit: "40/h per header:X-Key", algorithm: fixed_window }}
  two: {{ limits: ["30/h per header:X-Key", 100/h per all], algorithm: fixed_window }}
  away: {{ limit: 4/h per all, algorithm: fixed_window }}
routes:
  /one: {{ upstream: {url}, policies: one }}
  /1k: {{ upstream: {url}, policies: two }}
  /16k: {{ upstream: {url}, policies: away }}
"""
KEYS: Final = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def throttr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrottrServer]:
    """A server that is well again after each test."""
    server = ThrottrServer(tmp_path_factory.mktemp("throttr"))
    server.start()
    yield server
    server.stop()


async def passed(urls: list[str], keys: tuple[str, ...], times: int) -> Counter[str]:
    """How many of so many requests at once pass, for each key at each address."""
    async with aiohttp.ClientSession() as session:
        samples = await asyncio.gather(
            *(ask(session, url, key) for _ in range(times) for url in urls for key in keys)
        )
    assert {sample.status for sample in samples} <= {200, 429}
    assert all(sample.retry_after for sample in samples if sample.status == 429)
    return Counter(sample.key for sample in samples if sample.status == 200)


async def test_two_gateways_on_one_throttr_hold_one_limit(
    start_gateway: StartGateway, nginx_upstream: Upstream, throttr: ThrottrServer
) -> None:
    """Each key gets what one limit says, to the last request; two limits are taken both or none."""
    config = CONFIG.format(store=throttr.url, domain=free_port(), url=nginx_upstream.url)
    gateways = [start_gateway(config) for _ in range(2)]

    one = await passed([f"{gateway.url}/one" for gateway in gateways], KEYS, 30)
    assert one == dict.fromkeys(KEYS, 40)

    urls = [f"{gateway.url}/1k" for gateway in gateways]
    two = await passed(urls, KEYS, 30)
    assert all(count <= 30 for count in two.values())
    # Of what was taken in vain all has come back, so that the rest may be had now.
    while sum(two.values()) < 100:
        more = await passed(urls[:1], KEYS, 2)
        assert more
        two += more
    assert sum(two.values()) == 100
    assert not await passed(urls, KEYS, 1)
    for gateway in gateways:
        assert metric(gateway, "sluice_requests_total", status="200") > 0
        assert metric(gateway, "sluice_store_errors_total") == 0
        assert wait_for_metric(gateway, "sluice_store_gateways", 2)


async def test_a_throttr_may_tell_counters_as_they_are_when_it_writes(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """It is known for what it is, and the limit holds to the last request."""
    with LateThrottr() as server:
        config = CONFIG.format(store=server.url, domain=free_port(), url=nginx_upstream.url)
        gateways = [start_gateway(config) for _ in range(2)]
        for gateway in gateways:
            assert wait_for_metric(gateway, "sluice_store_ready", 1)
        one = await passed([f"{gateway.url}/one" for gateway in gateways], KEYS, 30)
        assert one == dict.fromkeys(KEYS, 40)
        for gateway in gateways:
            assert metric(gateway, "sluice_store_errors_total") == 0
            assert wait_for_metric(gateway, "sluice_store_gateways", 2)


async def test_a_throttr_that_is_away_is_found_again(
    start_gateway: StartGateway, nginx_upstream: Upstream, tmp_path: Path
) -> None:
    """Its gateway decides alone meanwhile, and tells it afterwards what it let through."""
    server = ThrottrServer(tmp_path / "throttr")
    server.start()
    config = CONFIG.format(store=server.url, domain=free_port(), url=nginx_upstream.url)
    gateway = start_gateway(config)
    url = [f"{gateway.url}/16k"]
    assert (await passed([f"{gateway.url}/one"], ("k",), 1))["k"] == 1

    server.kill()
    assert wait_for_metric(gateway, "sluice_store_ready", 0)
    assert (await passed(url, ("k",), 5))["k"] == 4
    server.start()
    try:
        assert wait_for_metric(gateway, "sluice_store_ready", 1)
        assert await _is_told(gateway, url)
    finally:
        server.stop()


async def test_a_throttr_that_was_missed_by_few_knows_of_them_when_it_decides(
    start_gateway: StartGateway, nginx_upstream: Upstream, tmp_path: Path
) -> None:
    """What passed alone counts for the first request that the new server decides on."""
    server = ThrottrServer(tmp_path / "throttr")
    server.start()
    config = CONFIG.format(store=server.url, domain=free_port(), url=nginx_upstream.url)
    gateway = start_gateway(config)
    url = [f"{gateway.url}/16k"]

    server.kill()
    assert wait_for_metric(gateway, "sluice_store_ready", 0)
    # Too few to give it up.
    for _ in range(2):
        assert (await passed(url, ("k",), 1))["k"] == 1
    server.start()
    try:
        assert wait_for_metric(gateway, "sluice_store_ready", 1)
        assert (await passed(url, ("k",), 5))["k"] == 2
    finally:
        server.stop()


async def _is_told(gateway: Gateway, url: list[str]) -> bool:
    """Whether nobody passes by what the new server knows, as soon as it decides."""
    decided = metric(gateway, "sluice_store_decisions_total")
    while metric(gateway, "sluice_store_decisions_total") == decided:
        if await passed(url, ("k",), 1):
            return False
        await asyncio.sleep(0.05)
    return not await passed(url, ("k",), 1)
