"""A flood over the limit: what passes is what the limit allows for the measured time."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.load import hammer, least_admitted, span_s, statuses
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import free_port
from tests.upstreams import Upstream

# Nothing of it is lost unless nobody asks for the time in which the burst comes back.
RATE: Final = 50
BURST: Final = 100
SECONDS: Final = 3
KEYS: Final = ("a", "b", "c", "d")


@pytest.mark.parametrize("connections", [4, 64])
def test_wrk_gets_what_the_limit_allows(
    start_gateway: StartGateway, nginx_upstream: Upstream, connections: int
) -> None:
    """`50/s burst 100` lets 100 + 50 t through, no more and hardly less."""
    gateway = start_gateway(
        "routes:\n  /**:\n    name: main\n"
        f"    upstream: {nginx_upstream.url}\n    limit: {RATE}/s burst {BURST} per all\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", f"{gateway.url}/one"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = done.stdout
    found = re.search(r"(\d+) requests in ", report)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    assert found, report
    assert refused, report
    assert "Socket errors" not in report
    # What wrk leaves behind when its time is up has been answered, but not counted by it.
    in_wrk = int(found[1]) - int(refused[1])
    assert wait_for_metric(gateway, "sluice_client_connections", 0)
    admitted = metric(gateway, "sluice_requests_total", status="200")
    # Some of that was decided on after the end of wrk, if the machine is busy.
    elapsed = time.monotonic() - started
    assert in_wrk <= admitted <= in_wrk + connections
    assert admitted <= BURST + RATE * elapsed
    # Only what comes back after the last request is lost: wrk may not get to run at its end.
    assert admitted >= BURST + RATE * (SECONDS - 1)
    total = metric(gateway, "sluice_requests_total")
    left = metric(gateway, "sluice_clients_left_total")
    assert left <= connections
    assert metric(gateway, "sluice_requests_total", status="429") == total - admitted - left


async def test_two_gateways_on_one_redis_hold_one_limit(
    start_gateway: StartGateway, nginx_upstream: Upstream, redis_url: str
) -> None:
    """Hammered together, each key gets `burst + rate t`, as far as it was asked for."""
    config = (
        # A loaded machine is no reason to decide alone.
        f"store: {{ url: '{redis_url}', deadline: 20s }}\ndomain: two{free_port()}\n"
        "routes:\n  /**:\n    name: main\n"
        f"    upstream: {nginx_upstream.url}\n"
        f"    limit: {RATE}/s burst {BURST} per header:X-Key\n"
    )
    gateways = [start_gateway(config) for _ in range(2)]
    samples = await hammer(
        [f"{gateway.url}/one" for gateway in gateways], KEYS, lambda: asyncio.sleep(5)
    )
    assert set(statuses(samples)) == {200, 429}
    for key in KEYS:
        own = [sample for sample in samples if sample.key == key]
        admitted = statuses(own)[200]
        allowed = BURST + RATE * span_s(own)
        assert least_admitted(own, RATE, BURST) <= admitted <= allowed, key
    for gateway in gateways:
        # Both took part, and neither decided anything by itself.
        assert metric(gateway, "sluice_requests_total", status="200") > 0
        assert metric(gateway, "sluice_store_errors_total") == 0
