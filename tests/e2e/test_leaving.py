"""Clients that leave: the upstream sees it soon, and a turn goes to who is left."""

from __future__ import annotations

import queue
import select
import time
from typing import Final

import requests

from tests.conftest import StartGateway
from tests.e2e.raw import (
    OK,
    TIMEOUT_S,
    RawClient,
    RawConnection,
    RawUpstream,
    RecordingUpstream,
)
from tests.e2e.signs import metric, wait_for_metric

END_S: Final = 10.0
"""Far below any default timeout, far above what the machine's noise adds."""
PLAIN: Final = "routes:\n  /**: {{ upstream: {url} }}\n"


def test_an_upstream_that_still_thinks_is_told(start_gateway: StartGateway) -> None:
    """A client that leaves before its answer begins ends the upstream's work."""
    asked: queue.SimpleQueue[float] = queue.SimpleQueue()
    ended: queue.SimpleQueue[float] = queue.SimpleQueue()

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        asked.put(0)
        ended.put(connection.wait_for_end())

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        client = RawClient(gateway.port)
        client.request()
        asked.get(timeout=20)
        left = time.monotonic()
        client.close()
        assert ended.get(timeout=20) - left < END_S
        assert wait_for_metric(gateway, "sluice_clients_left_total", 1)


def test_an_upstream_that_still_sends_is_told(start_gateway: StartGateway) -> None:
    """A client that leaves in the middle of its answer ends the upstream's work."""
    ended: queue.SimpleQueue[float] = queue.SimpleQueue()

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        try:
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
            while True:
                connection.send(b"x" * 65536)
        except ConnectionError:
            ended.put(time.monotonic())

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        client = RawClient(gateway.port)
        client.request()
        for _ in range(10):
            assert client.sock.recv(65536)
        left = time.monotonic()
        client.close()
        assert ended.get(timeout=20) - left < END_S


def test_an_upload_that_stops_is_told(start_gateway: StartGateway) -> None:
    """A client that leaves in the middle of its upload ends the upstream's work."""
    asked: queue.SimpleQueue[float] = queue.SimpleQueue()
    ended: queue.SimpleQueue[float] = queue.SimpleQueue()

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        connection.read_body(5)
        asked.put(0)
        ended.put(connection.wait_for_end())

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        client = RawClient(gateway.port)
        client.request("/", "Content-Length: 1000", method="POST")
        client.send(b"begin")
        asked.get(timeout=20)
        left = time.monotonic()
        client.close()
        assert ended.get(timeout=20) - left < END_S


def test_who_leaves_the_queue_gives_the_turn_back(start_gateway: StartGateway, store: str) -> None:
    """A client that leaves while it waits is never forwarded, and its turn is free again."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"{store}routes:\n  /**:\n    upstream: {upstream.url}\n"
            "    limit: 1/h burst 1 per all\n    queue: { max: 10, max_wait: 90m }\n"
        )
        with RawClient(gateway.port) as first:
            assert first.get("/first").status == 200
        for _ in range(3):
            # The turn in an hour is free each time: two at once would need two hours.
            leaver = RawClient(gateway.port)
            leaver.request("/leaver")
            assert wait_for_metric(gateway, "sluice_policy_waiting", 1)
            leaver.close()
            assert wait_for_metric(gateway, "sluice_policy_waiting", 0)
        assert metric(gateway, "sluice_decisions_total", decision="refuse") == 0
        assert [head.split()[1] for head in upstream.heads] == [b"/first"]


def test_the_next_in_the_queue_takes_the_turn_of_who_leaves(
    start_gateway: StartGateway, store: str
) -> None:
    """Who stands behind a leaver goes at the leaver's time, not at its own."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"{store}routes:\n  /**:\n    upstream: {upstream.url}\n"
            "    limit: 1/3s burst 1 per all\n    queue: { max: 10, max_wait: 1h }\n"
        )
        assert requests.get(f"{gateway.url}/first", timeout=20).status_code == 200
        leaver = RawClient(gateway.port)
        leaver.request("/leaver")
        assert wait_for_metric(gateway, "sluice_policy_waiting", 1)
        with RawClient(gateway.port) as second, RawClient(gateway.port) as third:
            second.request("/second")
            assert wait_for_metric(gateway, "sluice_policy_waiting", 2)
            third.request("/third")
            assert wait_for_metric(gateway, "sluice_policy_waiting", 3)
            leaver.close()
            assert second.read().status == 200
            assert third.read().status == 200
        first, *rest = upstream.arrivals
        assert [head.split()[1] for head in upstream.heads] == [b"/first", b"/second", b"/third"]
        # Without the leaver's turn they would go after six and nine seconds.
        assert rest[0] - first < 5.8
        assert rest[1] - first < 8.8


def test_a_client_that_stays_after_an_early_answer_is_not_kept_for_ever(
    start_gateway: StartGateway,
) -> None:
    """It may read why; then the connection ends, though the client neither sends nor leaves."""

    def answer_early(connection: RawConnection) -> None:
        while connection.read_head():
            connection.send(OK)

    with RawUpstream(answer_early) as upstream:
        gateway = start_gateway(f"routes: {{ /**: {{ upstream: '{upstream.url}' }} }}\n")
        with RawClient(gateway.port) as client:
            client.request("/", "Content-Length: 10", method="POST")
            answer = client.read("POST")
            assert (answer.status, answer.field("Connection").lower()) == (200, "close")
            assert client.sock.recv(1) == b""
            has_ended = select.poll()
            has_ended.register(client.sock, 0)
            assert has_ended.poll(TIMEOUT_S * 1000)
