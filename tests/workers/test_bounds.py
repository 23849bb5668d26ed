"""Numbers of the configuration that hold for all workers of a gateway together."""

from __future__ import annotations

import os
import queue
import signal
import threading
from contextlib import ExitStack, suppress
from itertools import count

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway, free_port
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


JUDGED = """
server: {{ workers: 2, keepalive_timeout: 1h }}
upstreams:
  pay:
    targets: [{targets}]
    eject: {{ failures: 5, duration: 1h, max_duration: 1h }}
    breaker: {{ failures: 100%, min_requests: 5, window: 1h, open: 1h }}
routes:
  /**: {{ upstream: pay }}
"""


DIVIDED = """
server: {{ workers: 2 }}
upstreams:
  pay: {{ targets: ["{url}"], max_connections: 5, timeouts: {{ queue: 60s }} }}
routes:
  /**: {{ upstream: pay }}
"""


def test_connections_to_a_target_are_divided(start_gateway: StartGateway) -> None:
    """Each worker has half, and together they never have more; the others wait."""
    arrived: queue.SimpleQueue[None] = queue.SimpleQueue()
    may_answer = threading.Event()

    def serve(connection: RawConnection) -> None:
        while connection.read_head():
            arrived.put(None)
            assert may_answer.wait(30)
            connection.send(OK)

    with RawUpstream(serve) as upstream, ExitStack() as stack:
        gateway = start_gateway(DIVIDED.format(url=upstream.url))
        clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(MANY)]
        for client in clients:
            client.request()
        for _ in range(4):
            arrived.get(timeout=30)
        assert wait_for_metric(gateway, "sluice_client_connections", MANY)
        assert metric(gateway, "sluice_upstream_connections", upstream="pay") == 4
        assert arrived.empty()
        may_answer.set()
        assert {client.read().status for client in clients} == {200}
        assert metric(gateway, "sluice_upstream_connections", upstream="pay") == 4


def _one_of_each_worker(gateway: Gateway, stack: ExitStack) -> list[RawClient]:
    """Two clients, each of another worker."""
    first = stack.enter_context(RawClient(gateway.port))
    assert wait_for_metric(gateway, "sluice_client_connections", 1)
    own = server_of(gateway, first.sock.getsockname()[1])
    for number in count(2):
        other = stack.enter_context(RawClient(gateway.port))
        assert wait_for_metric(gateway, "sluice_client_connections", number)
        if server_of(gateway, other.sock.getsockname()[1]) != own:
            return [first, other]
    raise AssertionError("a count has no end")


def test_a_target_that_one_worker_ejects_is_ejected_in_all(start_gateway: StartGateway) -> None:
    """The other worker need not see it fail, and it is one ejection."""
    with RecordingUpstream() as upstream, ExitStack() as stack:
        targets = f"'{upstream.url}', 'http://127.0.0.1:{free_port()}'"
        gateway = start_gateway(JUDGED.format(targets=targets))
        first, second = _one_of_each_worker(gateway, stack)
        failed = [first.get().status for _ in range(20)].count(502)
        assert failed == 5
        # At most the one that comes before the news of it.
        assert [second.get().status for _ in range(20)].count(502) <= 1
        assert metric(gateway, "sluice_target_ejections_total", upstream="pay") == 1


def test_a_breaker_that_opens_in_one_worker_is_open_in_all(start_gateway: StartGateway) -> None:
    """Also in one that starts later."""
    with ExitStack() as stack:
        gateway = start_gateway(JUDGED.format(targets=f"'http://127.0.0.1:{free_port()}'"))
        first, second = _one_of_each_worker(gateway, stack)
        statuses = [first.get().status for _ in range(10)]
        assert statuses == [502] * statuses.count(502) + [503] * statuses.count(503)
        assert statuses.count(503) >= 5
        # At most the one that comes before the news of it.
        assert [second.get().status for _ in range(10)].count(502) <= 1
        os.kill(workers_of(gateway)[0], signal.SIGKILL)
        wait_until_ready(gateway, 3)
        assert {get(gateway.port).status for _ in range(MANY)} == {503}


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
