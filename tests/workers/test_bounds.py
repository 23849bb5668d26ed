"""Numbers of the configuration that hold for all workers of a gateway together."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RawConnection, RawUpstream
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway
from tests.workers.family import server_of, wait_until, wait_until_ready, workers_of

MANY = 24
"""Connections that certainly reach both workers: each of them is a toss of a coin."""
CONFIG = """
server: {{ workers: 2, {server} }}
routes:
  /**: {{ upstream: "{url}" }}
"""


def _hold(connection: RawConnection) -> None:
    """Keep a request until its client leaves."""
    connection.read_head()
    connection.wait_for_end()


def _refused(gateway: Gateway, limit: str) -> float:
    return metric(gateway, "sluice_client_connections_refused_total", limit=limit)


def _crowd(gateway: Gateway, limit: str, stack: ExitStack) -> list[RawClient]:
    """Many clients, each of which the gateway has judged before the next one comes."""
    clients: list[RawClient] = []
    before = _refused(gateway, limit)
    for number in range(1, MANY + 1):
        clients.append(stack.enter_context(RawClient(gateway.port)))
        # One that was refused may be closed already.
        with suppress(OSError):
            clients[-1].request()
        wait_until(
            lambda number=number: (  # type: ignore[misc]
                metric(gateway, "sluice_client_connections") + _refused(gateway, limit)
                == before + number
            ),
            "a client is neither let in nor refused",
        )
    return clients


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
def test_clients_are_counted_for_all_workers(limit: str, start_gateway: StartGateway) -> None:
    """As many as configured are served, and again when they have left."""
    # All are busy, or they would make room for others.
    with RawUpstream(_hold) as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, server=f"{limit}: 4"))
        for turn in (1, 2):
            with ExitStack() as stack:
                _crowd(gateway, limit, stack)
                assert metric(gateway, "sluice_client_connections") == 4
                assert _refused(gateway, limit) == turn * (MANY - 4)
            assert wait_for_metric(gateway, "sluice_client_connections", 0)


def test_the_clients_of_a_killed_worker_are_counted_no_more(start_gateway: StartGateway) -> None:
    """Its successor and the other worker have their places."""
    limit = "max_connections_per_ip"
    with RawUpstream(_hold) as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, server=f"{limit}: 4"))
        with ExitStack() as stack:
            _crowd(gateway, limit, stack)
            for worker in workers_of(gateway):
                os.kill(worker, signal.SIGKILL)
            wait_until_ready(gateway, 3)
            before = _refused(gateway, limit)
            _crowd(gateway, limit, stack)
            assert metric(gateway, "sluice_client_connections") == 4
            assert _refused(gateway, limit) == before + MANY - 4


def test_a_worker_closes_an_idle_client_for_another(start_gateway: StartGateway) -> None:
    """One that has only busy clients refuses a newcomer, and the idle client's worker closes it."""
    with RawUpstream(_hold) as upstream:
        server = "max_connections: 2, keepalive_timeout: 1h"
        config = CONFIG.format(url=upstream.url, server=server) + "  /idle: { respond: 204 }\n"
        gateway = start_gateway(config)
        refused = 0.0
        # Until a newcomer happens to come to the other worker.
        while not refused:
            with ExitStack() as stack:
                idle = stack.enter_context(RawClient(gateway.port))
                assert idle.get("/idle").status == 204
                before = metric(gateway, "sluice_client_connections_evicted_total")
                _add_to_other_worker(gateway, idle, stack)
                newcomer = stack.enter_context(RawClient(gateway.port))
                with suppress(OSError):
                    newcomer.request()
                evicted = "sluice_client_connections_evicted_total"
                assert wait_for_metric(gateway, evicted, before + 1)
                assert idle.has_ended()
                refused = _refused(gateway, "max_connections")
            assert wait_for_metric(gateway, "sluice_client_connections", 0)


def _add_to_other_worker(gateway: Gateway, client: RawClient, stack: ExitStack) -> None:
    """Connect a busy client to the worker that does not serve this one."""
    own = server_of(gateway, client.sock.getsockname()[1])
    others = "sluice_client_connections"
    while True:
        busy = RawClient(gateway.port)
        assert wait_for_metric(gateway, others, 2)
        if server_of(gateway, busy.sock.getsockname()[1]) != own:
            stack.enter_context(busy)
            busy.request()
            return
        busy.close()
        assert wait_for_metric(gateway, others, 1)
