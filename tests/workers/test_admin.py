"""What is seen of several workers from outside: one gateway."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import StartGateway
from tests.e2e.load import hammer, statuses
from tests.e2e.raw import RawClient, get
from tests.e2e.signs import log_lines, metric, wait_for_metric
from tests.processes import Gateway
from tests.servers import RedisServer
from tests.upstreams import Upstream
from tests.workers.family import (
    children,
    clients_of,
    frozen,
    is_there,
    limiter_of,
    wait_until,
    wait_until_ready,
    workers_of,
)

CONFIG: Final = """
server: {{ workers: 3, watchdog: off }}
store: {{ url: '{store}', deadline: 5s }}
routes:
  /**: {{ upstream: {url}, limit: 100000/s }}
"""

Counters = dict[tuple[str, frozenset[tuple[str, str]]], float]


def counters(gateway: Gateway) -> Counters:
    """Everything that only goes up."""
    text = requests.get(f"{gateway.admin_url}/metrics", timeout=20).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.type in {"counter", "histogram"} and not sample.name.endswith("_created")
    }


def _readiness(gateway: Gateway) -> tuple[int, list[str]]:
    """What `/readyz` says: the status, and why."""
    answer = requests.get(f"{gateway.admin_url}/readyz", timeout=10)
    return answer.status_code, answer.json()["reasons"]


def steps_back(before: Counters, after: Counters) -> Iterator[str]:
    """Counters that are lower than they were, or gone."""
    for name, value in before.items():
        if after.get(name, -1) < value:
            yield f"{name}: {value} -> {after.get(name)}"


def _newest_limiter(gateway: Gateway) -> int:
    """The process that has the admin listener, and no client of the gateway."""
    port = int(gateway.admin_url.rpartition(":")[2])
    found: list[int] = []

    def has_taken() -> bool:
        family = children(gateway.server.pid)
        found[:] = [pid for pid in family if asking in clients_of(pid, port)]
        return bool(found)

    with RawClient(port) as client:
        asking = client.sock.getsockname()[1]
        wait_until(has_taken, "nobody takes a connection to the admin listener")
    (limiter,) = found
    return limiter


@pytest.fixture
def gateway(start_gateway: StartGateway, nginx_upstream: Upstream) -> Gateway:
    """Three workers."""
    return start_gateway(CONFIG.format(url=nginx_upstream.url, store="memory://"))


async def test_counters_are_sums_that_never_go_back(gateway: Gateway) -> None:
    """While workers and the limiter are killed in turn, and in the end no answer is missing."""
    seen: list[Counters] = []
    limiter = limiter_of(gateway)

    async def look_and_kill() -> None:
        for victim in (min(workers_of(gateway)), limiter, max(workers_of(gateway)), None):
            for _ in range(3):
                await asyncio.sleep(0.1)
                seen.append(await asyncio.to_thread(counters, gateway))
            # At the end the limiter that was started first in place of another.
            os.kill(victim or _newest_limiter(gateway), signal.SIGKILL)
            seen.append(await asyncio.to_thread(counters, gateway))
            await asyncio.to_thread(wait_until_ready, gateway, 4)

    await hammer([gateway.url + "/one"], ["k"], look_and_kill, clients=12, pause_s=0.01)
    seen.append(await asyncio.to_thread(counters, gateway))
    back = [step for a, b in pairwise(seen) for step in steps_back(a, b)]
    assert back == []
    before = await asyncio.to_thread(metric, gateway, "sluice_requests_total")
    samples = await hammer([gateway.url + "/one"], ["k"], lambda: asyncio.sleep(0.5), clients=12)
    assert set(statuses(samples)) == {200}
    after = await asyncio.to_thread(metric, gateway, "sluice_requests_total")
    assert after - before == len(samples)


def test_a_worker_that_ends_in_peace_takes_no_count_with_it(gateway: Gateway) -> None:
    """Even without a scrape since, and whichever of them ends."""
    for _ in range(40):
        assert get(gateway.port, "/one").status == 200
    family = workers_of(gateway)
    for pid in family:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not any(is_there(pid) for pid in family), "they do not end")
    wait_until_ready(gateway, 4)
    assert metric(gateway, "sluice_requests_total") == 40
    assert metric(gateway, "sluice_decisions_total") == 40


def test_connections_of_all_workers_are_one_gauge(gateway: Gateway) -> None:
    """Clients of several workers are counted together, and not any more when they have left."""
    clients = [RawClient(gateway.port) for _ in range(30)]
    for client in clients:
        assert client.get("/one").status == 200
    assert sum(bool(clients_of(pid, gateway.port)) for pid in workers_of(gateway)) > 1
    assert metric(gateway, "sluice_client_connections") == 30
    assert metric(gateway, "sluice_workers") == 3
    assert metric(gateway, "sluice_store_gateways") == 3
    for client in clients:
        client.close()
    assert wait_for_metric(gateway, "sluice_client_connections", 0)


def test_a_worker_that_hangs_is_left_out_and_its_counters_stay(gateway: Gateway) -> None:
    """A scrape does not wait for it, what it counted stays in the sums, the gateway is ready."""
    clients = [RawClient(gateway.port) for _ in range(30)]
    for client in clients:
        assert client.get("/one").status == 200
    before = counters(gateway)
    victim = max(workers_of(gateway), key=lambda pid: len(clients_of(pid, gateway.port)))
    had = len(clients_of(victim, gateway.port))
    with frozen(victim):
        assert list(steps_back(before, counters(gateway))) == []
        # The others may be late, too; but they answer again.
        assert wait_for_metric(gateway, "sluice_workers", 2)
        assert wait_for_metric(gateway, "sluice_client_connections", 30 - had)
        wait_until(
            lambda: _readiness(gateway) == (200, ["1 of 3 workers do not respond"]),
            "the others do not answer",
        )
        assert requests.get(f"{gateway.admin_url}/healthz", timeout=10).status_code == 200
    assert wait_for_metric(gateway, "sluice_workers", 3)
    assert wait_for_metric(gateway, "sluice_client_connections", 30)
    for client in clients:
        client.close()


def test_when_no_worker_answers_the_gateway_is_not_well(gateway: Gateway) -> None:
    """`/healthz` and `/readyz` are 503, so that the gateway is restarted."""
    with frozen(*workers_of(gateway)):
        for path in ("/healthz", "/readyz"):
            assert requests.get(gateway.admin_url + path, timeout=10).status_code == 503
    wait_until(lambda: _readiness(gateway) == (200, []), "they do not answer again")
    assert requests.get(f"{gateway.admin_url}/healthz", timeout=10).status_code == 200


def test_the_memory_of_all_processes_is_one_gauge(gateway: Gateway) -> None:
    """`process_*` are sums, too: three workers are larger than the limiter alone."""
    first = metric(gateway, "process_resident_memory_bytes")
    with frozen(*workers_of(gateway)[:2]):
        assert metric(gateway, "process_resident_memory_bytes") < first


def test_admin_requests_wait_for_a_limiter_that_is_started_again(gateway: Gateway) -> None:
    """The address stays taken while the process behind it is not there."""
    limiter = limiter_of(gateway)
    workers = set(workers_of(gateway))
    os.kill(limiter, signal.SIGKILL)
    assert requests.get(f"{gateway.admin_url}/healthz", timeout=10).status_code == 200
    wait_until_ready(gateway, 4)
    assert wait_for_metric(gateway, "sluice_workers", 3)
    assert limiter not in workers


def test_workers_on_another_store_are_gateways_of_their_own(
    start_gateway: StartGateway, nginx_upstream: Upstream, redis_server: RedisServer
) -> None:
    """They count themselves there, and are ready as their store is."""
    gateway = start_gateway(CONFIG.format(url=nginx_upstream.url, store=redis_server.url))
    assert get(gateway.port, "/one").status == 200
    assert wait_for_metric(gateway, "sluice_store_gateways", 3)
    redis_server.kill()

    told = ["store main is unavailable; the gateway serves without it"]
    wait_until(
        lambda: _readiness(gateway)[1] == told,
        "a store that is away is not mentioned, or otherwise",
    )


def test_lines_of_the_processes_name_them(gateway: Gateway) -> None:
    """Each of them logged something at its start; lines of requests are unchanged."""
    assert get(gateway.port, "/one").status == 200
    family = {"limiter", "worker-1", "worker-2", "worker-3"}
    wait_until(
        lambda: {line.get("process") for line in log_lines(gateway)} >= family, "one says nothing"
    )
    lines = log_lines(gateway)
    assert {line["process"] for line in lines if "process" in line} == family
    assert all(("process" in line) != ("status" in line) for line in lines)
