"""Several workers are one limiter: exact, whoever of them dies."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
import time
from collections import Counter
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.load import between, hammer, statuses
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import metric, wait_for_metric
from tests.servers import RedisServer, becomes
from tests.upstreams import Upstream
from tests.workers.family import (
    children,
    clients_of,
    frozen,
    limiter_of,
    server_of,
    wait_until,
    wait_until_ready,
    workers_of,
)

LIMIT: Final = 400
EXACT: Final = """
server: {{ workers: 3, watchdog: off }}
store: {{ url: '{store}', deadline: 5s }}
routes:
  /**: {{ upstream: {url}, limit: {limit}/d per all, algorithm: sliding_window_log }}
"""
MODES: Final = """
server: {{ workers: 3, watchdog: off }}
store: {{ url: memory://, deadline: 100ms }}
policies:
  main: {{ limit: 50/s burst 20 per all, on_store_error: {mode} }}
routes:
  /**: {{ upstream: {url}, policies: [main] }}
"""
LATE_S: Final = 5.0
"""Far above what the machine's noise costs: nobody waits for a limiter that was killed."""


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_as_many_as_the_limit_pass_over_all_workers(
    start_gateway: StartGateway, nginx_upstream: Upstream, redis_server: RedisServer, kind: str
) -> None:
    """Not one more and not one less, with several workers and concurrent clients."""
    store = {"memory": "memory://", "redis": redis_server.url}[kind]
    config = EXACT.format(url=nginx_upstream.url, limit=LIMIT, store=store)
    gateway = await asyncio.to_thread(start_gateway, config)
    serving: list[bool] = []

    async def enough() -> bool:
        return await asyncio.to_thread(metric, gateway, "sluice_requests_total") >= 2 * LIMIT

    async def look() -> None:
        await asyncio.sleep(1)
        serving.extend(bool(clients_of(pid, gateway.port)) for pid in workers_of(gateway))
        await becomes(enough, wanted=True)

    samples = await hammer([gateway.url + "/one"], ["k"], look, clients=24)
    counts = statuses(samples)
    assert set(counts) == {200, 429}
    assert counts[200] == LIMIT
    assert sum(serving) > 1
    # And what each of them counted is one sum.
    total = await asyncio.to_thread(metric, gateway, "sluice_requests_total", status="200")
    assert total == LIMIT


async def test_a_worker_that_dies_costs_only_what_it_had(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """It is replaced, requests of the others go on unharmed, and the limit is as exact."""
    config = EXACT.format(url=nginx_upstream.url, limit=LIMIT, store="memory://")
    gateway = await asyncio.to_thread(start_gateway, config)
    victim = max(workers_of(gateway))
    had: set[int] = set()

    async def is_over() -> bool:
        return await asyncio.to_thread(metric, gateway, "sluice_requests_total", status="429") > 0

    async def kill() -> None:
        await asyncio.sleep(0.1)
        with frozen(victim):
            had.update(clients_of(victim, gateway.port))
            os.kill(victim, signal.SIGKILL)
        await becomes(is_over, wanted=True)

    samples = await hammer([gateway.url + "/one"], ["k"], kill, clients=24, pause_s=0.01)
    await asyncio.to_thread(wait_until_ready, gateway, 4)
    assert victim not in children(gateway.server.pid)
    counts = statuses(samples)
    assert set(counts) <= {0, 200, 429}
    # Each of its connections had one request under way at most, and what that took is spent.
    assert counts[0] <= len(had)
    assert LIMIT - len(had) <= counts[200] <= LIMIT
    wait_until(lambda: "was killed by" in gateway.server.stdout, "nobody says so")
    messages = [line for line in gateway.server.stdout.splitlines() if "was killed by" in line]
    assert len(messages) == 1
    assert f"({victim}) was killed by SIGKILL and has been restarted" in messages[0]
    assert '"process":"worker-' in messages[0]


def test_what_waits_to_be_taken_by_a_worker_that_died_is_taken_by_the_next(
    start_gateway: StartGateway,
) -> None:
    """No connection that was made while no worker was there is refused or lost."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"server: {{ workers: 2 }}\nroutes:\n  /**: {{ upstream: {upstream.url} }}\n"
        )
        victims = workers_of(gateway)
        with frozen(*victims):
            clients = [RawClient(gateway.port) for _ in range(20)]
            for client in clients:
                client.request()
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
        assert [client.read().status for client in clients] == [200] * 20
        for client in clients:
            client.close()


def test_what_a_dead_worker_held_is_free_at_once(start_gateway: StartGateway) -> None:
    """Long before its leases would expire, other workers have its places of `2 at once`."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    may_answer = threading.Event()

    def serve(connection: RawConnection) -> None:
        while b"/slow" in (head := connection.read_head()):
            asked.put(None)
            assert may_answer.wait(60)
        if head:
            connection.send(OK)

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(
            "server: { workers: 3 }\nstore: { url: memory://, deadline: 5s }\n"
            f"routes:\n  /**: {{ upstream: {upstream.url}, limit: 2 at once per all }}\n"
        )
        with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
            for client in (first, second):
                client.request("/slow")
                asked.get(timeout=20)
            assert get(gateway.port).status == 429
            os.kill(server_of(gateway, first.sock.getsockname()[1]), signal.SIGKILL)
            # Should both be with the same worker, both places are free.
            wait_until(lambda: get(gateway.port).status == 200, "the place is still taken")
            may_answer.set()


IN_AN_OUTAGE: Final = {"local": {200, 429}, "open": {200, 429}, "closed": {200, 429, 503}}


@pytest.mark.parametrize("mode", IN_AN_OUTAGE)
async def test_without_its_limiter_a_gateway_does_what_its_policies_say(
    start_gateway: StartGateway, nginx_upstream: Upstream, mode: str
) -> None:
    """Killed under load it is replaced immediately; no 500, no error, no long wait."""
    config = MODES.format(url=nginx_upstream.url, mode=mode)
    gateway = await asyncio.to_thread(start_gateway, config)

    async def kill() -> None:
        for _ in range(3):
            await asyncio.sleep(0.3)
            first = children(gateway.server.pid)
            (limiter,) = set(first) - set(workers)
            os.kill(limiter, signal.SIGKILL)
            await asyncio.to_thread(wait_until_ready, gateway, 4)

    workers = workers_of(gateway)
    samples = await hammer([gateway.url + "/one"], ["k"], kill, clients=12, pause_s=0.01)
    assert set(statuses(samples)) <= IN_AN_OUTAGE[mode]
    assert max(sample.ended - sample.started for sample in samples) < LATE_S
    assert set(workers) <= set(children(gateway.server.pid))
    wait_until(
        lambda: gateway.server.stdout.count("was killed by SIGKILL") >= 3, "not all are told of"
    )
    assert gateway.server.stdout.count("was killed by SIGKILL") == 3
    assert await asyncio.to_thread(wait_for_metric, gateway, "sluice_store_ready", 1)


async def test_a_limiter_that_hangs_is_bounded_by_the_deadline(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """While it is stopped requests do not wait for it, and afterwards it decides again."""
    config = MODES.format(url=nginx_upstream.url, mode="open")
    gateway = await asyncio.to_thread(start_gateway, config)
    limiter = limiter_of(gateway)
    moments: list[float] = []

    async def is_refusing() -> bool:
        return await asyncio.to_thread(refused) > before

    def refused() -> float:
        return metric(gateway, "sluice_requests_total", status="429")

    before = 0.0

    async def freeze_and_thaw() -> None:
        nonlocal before
        await asyncio.sleep(0.3)
        with frozen(limiter):
            moments.append(time.monotonic())
            await asyncio.sleep(1.5)
            moments.append(time.monotonic())
        await asyncio.to_thread(wait_for_metric, gateway, "sluice_store_ready", 1)
        before = await asyncio.to_thread(refused)
        await becomes(is_refusing, wanted=True)

    samples = await hammer([gateway.url + "/one"], ["k"], freeze_and_thaw, 12, pause_s=0.01)
    assert set(statuses(samples)) == {200, 429}
    # Who waited for the limiter, and not for the deadline, would not be among these.
    # For a moment a worker repeats the refusals that it has.
    during = between(samples, moments[0] + 0.4, moments[1])
    assert set(statuses(during)) == {200}


async def test_alone_each_worker_has_its_share(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """With the limiter stopped, all workers together admit the limit, not three times as much."""
    config = MODES.format(url=nginx_upstream.url, mode="local").replace(
        "50/s burst 20 per all", "300/h burst 300 per all"
    )
    gateway = await asyncio.to_thread(start_gateway, config)
    counts: Counter[int] = Counter()
    with frozen(limiter_of(gateway)):
        # Two seconds on most machines; until one of the workers has nothing left on any.
        while not counts[429]:
            load = hammer([gateway.url + "/one"], ["k"], lambda: asyncio.sleep(2), clients=24)
            counts += statuses(await load)
    assert set(counts) == {200, 429}
    assert 100 <= counts[200] <= 300 + 3


def test_a_policy_may_be_leased_between_workers(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """A key that is asked for all the time costs far less than one question for each request."""
    gateway = start_gateway(
        "server: { workers: 2 }\nstore: { url: memory://, deadline: 5s }\nroutes:\n"
        f"  /**: {{ upstream: {nginx_upstream.url}, limit: 3000/m per all, consistency: leased }}\n"
    )
    with RawClient(gateway.port) as client:
        assert {client.get("/one").status for _ in range(200)} == {200}
    assert metric(gateway, "sluice_store_decisions_total", store="main") < 100
