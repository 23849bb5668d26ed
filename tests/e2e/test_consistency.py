"""Consistency through the front door: gateways that share a Redis and ask it less often."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.load import hammer, span_s, statuses
from tests.e2e.raw import get
from tests.e2e.signs import log_lines, metric, wait_for_metric
from tests.servers import RedisServer, becomes
from tests.upstreams import Upstream

CONFIG = """
store: {{ url: '{redis}', deadline: 20s, share: 2 }}
policies:
  main: {{ limit: 400/m per all, consistency: {consistency} }}
routes:
  /**: {{ upstream: {url}, policies: [main] }}
"""


@pytest.mark.parametrize(("consistency", "most"), [("leased", 480), ("eventual", 800)])
async def test_two_gateways_let_through_what_was_explained(
    start_gateway: StartGateway,
    redis_server: RedisServer,
    nginx_upstream: Upstream,
    consistency: str,
    most: int,
) -> None:
    """The limit is reached and hardly exceeded, and the store is asked far less than once each."""
    config = CONFIG.format(redis=redis_server.url, url=nginx_upstream.url, consistency=consistency)
    gateways = [await asyncio.to_thread(start_gateway, config) for _ in range(2)]
    urls = [gateway.url + "/one" for gateway in gateways]

    async def answered() -> float:
        told = [asyncio.to_thread(metric, one, "sluice_requests_total") for one in gateways]
        return sum(await asyncio.gather(*told))

    async def enough() -> bool:
        return await answered() > 3 * most

    samples = await hammer(urls, ["k"], lambda: becomes(enough, wanted=True))
    counts = statuses(samples)
    assert set(counts) == {200, 429}
    assert 400 <= counts[200] <= most + 400 / 60 * span_s(samples) + 1
    asked = 0.0
    for gateway in gateways:
        asked += await asyncio.to_thread(metric, gateway, "sluice_store_decisions_total")
    assert asked < len(samples) / 3


def test_what_a_gateway_holds_is_returned_when_it_ends(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream
) -> None:
    """After an orderly end another gateway finds all that was not spent."""
    config = CONFIG.format(redis=redis_server.url, url=nginx_upstream.url, consistency="leased")
    config = config.replace("400/m per all", "40/h per all, algorithm: sliding_window_log")
    first, second = start_gateway(config), start_gateway(config)
    assert [get(first.port, "/one").status for _ in range(10)] == [200] * 10
    first.stop()
    answers = [get(second.port, "/one").status for _ in range(35)]
    assert answers.count(200) == 30


def test_a_limit_moves_to_another_store_with_its_counts(
    start_gateway: StartGateway, redis_server: RedisServer, nginx_upstream: Upstream
) -> None:
    """What was counted while both held the limit is known to who asks the new store alone."""
    old, new = redis_server.url, redis_server.url.removesuffix("/0") + "/1"
    route = f"routes: {{ /**: {{ upstream: '{nginx_upstream.url}', limit: 5/h }} }}\n"
    moving = start_gateway(
        f"store: {{ url: '{old}', deadline: 20s, migrate: {{ to: '{new}' }} }}\n" + route
    )
    assert [get(moving.port, "/one").status for _ in range(3)] == [200] * 3
    moved = start_gateway(f"store: {{ url: '{new}', deadline: 20s }}\n" + route)
    assert [get(moved.port, "/one").status for _ in range(3)] == [200, 200, 429]
    assert [get(moving.port, "/one").status for _ in range(2)] == [429, 429]


def test_a_frozen_new_store_costs_no_decision_and_is_seen(
    start_gateway: StartGateway,
    redis_server: RedisServer,
    nginx_upstream: Upstream,
    tmp_path: Path,
) -> None:
    """The old one decides alone; metrics count what was missed, and the log says so once."""
    new = RedisServer(tmp_path / "new")
    new.start()
    try:
        store = f"{{ url: '{redis_server.url}', deadline: 1s, migrate: {{ to: '{new.url}' }} }}"
        gateway = start_gateway(
            f"store: {store}\n"
            f"routes: {{ /**: {{ upstream: '{nginx_upstream.url}', limit: 20/h }} }}\n"
        )
        assert get(gateway.port, "/one").status == 200
        assert metric(gateway, "sluice_store_decisions_total", store="new") == 1
        assert metric(gateway, "sluice_store_missed_total") == 0
        new.freeze()
        answers = [get(gateway.port, "/one").status for _ in range(20)]
        assert answers == [200] * 19 + [429]
        assert metric(gateway, "sluice_store_decisions_total", store="main") == 21
        assert metric(gateway, "sluice_store_missed_total", store="new") == 20
        assert metric(gateway, "sluice_store_breaker", store="new", state="closed") == 0
        assert metric(gateway, "sluice_store_ready", store="main") == 1
        ready = requests.get(f"{gateway.admin_url}/readyz", timeout=20)
        assert ready.status_code == 200
        assert ready.json()["reasons"] == [
            "store new is unavailable; the gateway serves without it"
        ]
        new.thaw()
        assert wait_for_metric(gateway, "sluice_store_ready", 1, store="new")
        assert get(gateway.port, "/one").status == 429
        assert metric(gateway, "sluice_store_missed_total", store="new") == 20
    finally:
        new.stop()
    lines = [line for line in log_lines(gateway) if "the new store" in line.get("message", "")]
    assert len(lines) == 1


@pytest.mark.parametrize(
    "algorithm", ["sliding_window_log", "sliding_window_counter", "fixed_window"]
)
def test_whoever_obeys_two_gateways_is_not_told_too_early(
    start_gateway: StartGateway,
    redis_server: RedisServer,
    nginx_upstream: Upstream,
    algorithm: str,
) -> None:
    """Both are spent before they have heard of each other; a client that waits as told passes."""
    config = f"""
store: {{ url: '{redis_server.url}', deadline: 20s, share: 2 }}
policies:
  main:
    limit: 4/2s per header:X-Key
    algorithm: {algorithm}
    consistency: eventual
routes:
  /**: {{ upstream: {nginx_upstream.url}, policies: [main] }}
"""
    urls = [f"{start_gateway(config).url}/1k" for _ in range(2)]
    keys = [f"k{number}" for number in range(10)]
    due: dict[str, float] = {}
    for key in keys:
        for url in urls * 4:
            requests.get(url, headers={"X-Key": key}, timeout=20)
        answer = requests.get(urls[0], headers={"X-Key": key}, timeout=20)
        if answer.status_code == 429:
            due[key] = time.monotonic() + int(answer.headers["Retry-After"])
    assert due
    for key, moment in sorted(due.items(), key=lambda each: each[1]):
        time.sleep(max(moment - time.monotonic(), 0))
        assert requests.get(urls[0], headers={"X-Key": key}, timeout=20).status_code == 200, key
