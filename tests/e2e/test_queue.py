"""Waiting for a turn: in order, at the rate, bounded, and refused at once where it is hopeless."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RecordingUpstream, get
from tests.e2e.signs import metric, request_lines, wait_for_metric
from tests.processes import Gateway, free_port

AT_ONCE_S: Final = 10.0


def _start(start_gateway: StartGateway, store: str, url: str, limit: str, queue: str) -> Gateway:
    return start_gateway(
        f"{store}routes:\n  /**:\n    name: main\n    upstream: {url}\n"
        f"    limit: {limit}\n    queue: {queue}\n"
    )


def test_turns_come_in_order_and_at_the_rate(start_gateway: StartGateway, store: str) -> None:
    """Some at once are forwarded in the order they came, none before its time, none much later."""
    with RecordingUpstream() as upstream, ExitStack() as stack:
        # The first of them comes well before its turn, however late that is on a busy machine.
        gateway = _start(
            start_gateway, store, upstream.url, "1/s burst 1 per all", "{ max: 100, max_wait: 30s }"
        )
        started = time.monotonic()
        clients = []
        for number in range(5):
            client = stack.enter_context(RawClient(gateway.port))
            client.request(f"/{number}")
            clients.append(client)
            if number == 0:
                assert client.read().status == 200
            else:
                # The next comes when this one has its place; those before may have gone.
                assert _has_place(gateway, number)
        assert [client.read().status for client in clients[1:]] == [200] * 4
        arrivals = upstream.arrivals
        assert [head.split()[1] for head in upstream.heads] == [b"/%d" % n for n in range(5)]
        for number, arrival in enumerate(arrivals):
            assert arrival >= started + number
        assert arrivals[-1] - arrivals[0] < 4 + 1
        lines = {line["path"]: line for line in request_lines(gateway, 5)}
        assert lines["/0"]["decision"] == "pass"
        assert all(lines[f"/{number}"]["decision"] == "delay" for number in range(1, 5))
        assert 0 < lines["/4"]["wait_ms"] <= 4_000


def test_two_gateways_share_one_queue(start_gateway: StartGateway, redis_url: str) -> None:
    """Turns of one key are handed out by the store: together two gateways keep the rate."""
    store = f"store: {{ url: '{redis_url}', deadline: 20s }}\ndomain: q{free_port()}\n"
    with RecordingUpstream() as upstream, ExitStack() as stack:
        gateways = [
            _start(
                *(start_gateway, store, upstream.url),
                *("5/s burst 1 per all", "{ max: 100, max_wait: 30s }"),
            )
            for _ in range(2)
        ]
        started = time.monotonic()
        clients = [stack.enter_context(RawClient(gateways[n % 2].port)) for n in range(8)]
        for client in clients:
            client.request()
        assert [client.read().status for client in clients] == [200] * 8
        for number, arrival in enumerate(upstream.arrivals):
            assert arrival >= started + number * 0.2
        assert upstream.arrivals[-1] - upstream.arrivals[0] < 7 * 0.2 + 1


def _has_place(gateway: Gateway, number: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        waiting = metric(gateway, "sluice_policy_waiting")
        if waiting + metric(gateway, "sluice_decisions_total", decision="delay") >= number:
            return True
    return False


def test_a_full_queue_refuses_at_once(start_gateway: StartGateway, store: str) -> None:
    """Who finds `max` waiting is refused at once, with the time after which to come again."""
    with RecordingUpstream() as upstream, ExitStack() as stack:
        gateway = _start(
            start_gateway, store, upstream.url, "1/h burst 1 per all", "{ max: 2, max_wait: 5h }"
        )
        assert get(gateway.port).status == 200
        for waiting in (1, 2):
            stack.enter_context(RawClient(gateway.port)).request()
            assert wait_for_metric(gateway, "sluice_policy_waiting", waiting)
        started = time.monotonic()
        refused = get(gateway.port)
        assert time.monotonic() - started < AT_ONCE_S
        assert refused.status == 429
        assert 0 < int(refused.field("Retry-After")) <= 3 * 3600


def test_keys_have_queues_of_their_own(start_gateway: StartGateway, store: str) -> None:
    """One key's full queue keeps nobody else waiting."""
    with RecordingUpstream() as upstream, ExitStack() as stack:
        gateway = _start(
            *(start_gateway, store, upstream.url),
            *("1/h burst 1 per header:X-Key", "{ max: 1, max_wait: 5h }"),
        )
        assert get(gateway.port, "/", "X-Key: a").status == 200
        stack.enter_context(RawClient(gateway.port)).request("/", "X-Key: a")
        assert wait_for_metric(gateway, "sluice_policy_waiting", 1)
        assert get(gateway.port, "/", "X-Key: a").status == 429
        assert get(gateway.port, "/", "X-Key: b").status == 200


def test_who_would_wait_too_long_is_refused_at_once(
    start_gateway: StartGateway, store: str
) -> None:
    """A turn that lies behind `max_wait` is no turn: 429 now, not later."""
    with RecordingUpstream() as upstream:
        gateway = _start(
            start_gateway, store, upstream.url, "1/h burst 1 per all", "{ max: 100, max_wait: 59m }"
        )
        assert get(gateway.port).status == 200
        started = time.monotonic()
        refused = get(gateway.port)
        assert time.monotonic() - started < AT_ONCE_S
        assert refused.status == 429
        # It lacks the minute that its turn is too far away.
        assert 1 <= int(refused.field("Retry-After")) <= 60


def test_the_gateway_holds_no_more_than_max_waiting(start_gateway: StartGateway) -> None:
    """`server.max_waiting` bounds all queues together; a turn too many is given back."""
    with RecordingUpstream() as upstream, ExitStack() as stack:
        gateway = _start(
            *(start_gateway, "server: { max_waiting: 2 }\n", upstream.url),
            *("1/h burst 1 per header:X-Key", "{ max: 5, max_wait: 5h }"),
        )
        for key in ("a", "b", "c"):
            assert get(gateway.port, "/", f"X-Key: {key}").status == 200
        for waiting, key in enumerate(("a", "b"), start=1):
            stack.enter_context(RawClient(gateway.port)).request("/", f"X-Key: {key}")
            assert wait_for_metric(gateway, "sluice_policy_waiting", waiting)
        assert get(gateway.port, "/", "X-Key: c").status == 429
