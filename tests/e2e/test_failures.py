"""Upstreams that fail in every way: a short answer that names it, soon, and nothing worse."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RawClient, RawConnection, RawUpstream, get
from tests.processes import Gateway, free_port

CONFIG: Final = """
upstreams:
  main:
    targets: {url}
    timeouts: {{ {timeouts} }}
routes:
  /**: {{ upstream: main }}
"""
SOON_S: Final = 10.0
"""Far below any default timeout, far above what the machine's noise adds."""


def _start(start_gateway: StartGateway, url: str, timeouts: str = "") -> Gateway:
    """Only the time limit that a test is about is short: a busy machine may miss any other."""
    return start_gateway(CONFIG.format(url=url, timeouts=timeouts))


def _assert_problem(answer: Answer, status: int, error: str) -> None:
    assert answer.status == status
    assert answer.field("Content-Type") == "application/problem+json"
    document = json.loads(answer.body)
    assert document["status"] == status
    assert document["error"] == error
    assert document["title"]
    assert len(answer.body) < 1000


def _reset(connection: RawConnection) -> None:
    connection.read_head()
    connection.reset()


def _close(connection: RawConnection) -> None:
    connection.read_head()


def _close_in_the_head(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Le")


def _nonsense(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"SSH-2.0-OpenSSH_9.2 and this is no HTTP at all\r\n\r\n")
    connection.wait_for_end()


def _two_lengths(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    connection.wait_for_end()


def _silent(connection: RawConnection) -> None:
    connection.read_head()
    connection.wait_for_end()


FAILURES: Final[dict[str, tuple[Callable[[RawConnection], None], int, str]]] = {
    "reset": (_reset, 502, "closed"),
    "closed": (_close, 502, "closed"),
    "closed-in-the-head": (_close_in_the_head, 502, "closed"),
    "nonsense": (_nonsense, 502, "protocol"),
    "two-lengths": (_two_lengths, 502, "protocol"),
    "silent": (_silent, 504, "timeout_first_byte"),
}


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway before an upstream of each kind, each behind a route of its kind's name."""
    upstreams, routes = ["upstreams:"], ["routes:"]
    with ExitStack() as stack:
        for failure, (serve, _, error) in FAILURES.items():
            upstream = stack.enter_context(RawUpstream(serve))
            timeouts = "first_byte: 300ms" if error == "timeout_first_byte" else ""
            upstreams.append(
                f"  {failure}: {{ targets: '{upstream.url}', timeouts: {{ {timeouts} }} }}"
            )
            routes.append(f"  /{failure}: {{ upstream: {failure} }}")
        lines = "\n".join((*upstreams, *routes))
        gateway = Gateway.start(lines, tmp_path_factory.mktemp("gateway"))
        yield gateway
        gateway.stop()


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_upstream_is_named(failing: Gateway, failure: str) -> None:
    """502 or 504 with a problem document; the client's connection goes on."""
    _, status, error = FAILURES[failure]
    with RawClient(failing.port) as client:
        for _ in range(2):
            started = time.monotonic()
            _assert_problem(client.get(f"/{failure}"), status, error)
            assert time.monotonic() - started < SOON_S


def test_nobody_listens(start_gateway: StartGateway) -> None:
    """A refused connection is 502, and says so."""
    gateway = _start(start_gateway, f"http://127.0.0.1:{free_port()}")
    _assert_problem(get(gateway.port), 502, "connect")


@contextmanager
def black_hole() -> Iterator[str]:
    """An address of loopback that leaves a connection attempt without an answer."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # Its queue is full after one; more than one, since the kernel is a little generous.
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_connection_attempt_without_an_answer(start_gateway: StartGateway) -> None:
    """The connect timeout is 504, and names itself."""
    with black_hole() as url:
        gateway = _start(start_gateway, url, "connect: 300ms")
        started = time.monotonic()
        answer = get(gateway.port)
        assert 0.25 < time.monotonic() - started < SOON_S
        _assert_problem(answer, 504, "timeout_connect")


def test_the_total_timeout_counts_progress_for_nothing(start_gateway: StartGateway) -> None:
    """An upstream that trickles its head is cut off after `total`."""

    def trickle(connection: RawConnection) -> None:
        connection.read_head()
        connection.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.send(b"X-More: 1\r\n")
            time.sleep(0.1)

    with RawUpstream(trickle) as upstream:
        gateway = _start(start_gateway, upstream.url, "total: 700ms")
        started = time.monotonic()
        answer = get(gateway.port)
        assert 0.65 < time.monotonic() - started < SOON_S
    _assert_problem(answer, 504, "timeout_total")


def _stall(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000)
    connection.wait_for_end()


def _break(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000)


def _break_chunked(connection: RawConnection) -> None:
    connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc")


@pytest.mark.parametrize(
    ("serve", "error"),
    [(_stall, "timeout_idle"), (_break, "closed"), (_break_chunked, "closed")],
)
def test_half_an_answer_never_looks_whole(
    start_gateway: StartGateway, serve: Callable[[RawConnection], None], error: str
) -> None:
    """Where an answer stops half-way, the client's connection breaks, and the log says why."""
    with RawUpstream(serve) as upstream:
        timeouts = "idle: 300ms" if error == "timeout_idle" else ""
        gateway = _start(start_gateway, upstream.url, timeouts)
        started = time.monotonic()
        with RawClient(gateway.port) as client:
            client.request()
            with pytest.raises((http.client.HTTPException, OSError)):
                client.read()
        assert time.monotonic() - started < SOON_S
        gateway.stop()
    lines = [json.loads(line) for line in gateway.server.stdout.splitlines()]
    assert [line["error"] for line in lines if "status" in line] == [error]


def test_failures_leave_nothing_behind(start_gateway: StartGateway) -> None:
    """After failures under load every connection is free again, and good answers are good."""
    is_broken = threading.Event()
    is_broken.set()

    def serve(connection: RawConnection) -> None:
        while connection.read_head():
            if is_broken.is_set():
                connection.reset()
                return
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(
            f"upstreams:\n  main: {{ targets: '{upstream.url}', max_connections: 2 }}\n"
            "routes:\n  /**: { upstream: main }\n"
        )
        assert [get(gateway.port).status for _ in range(20)] == [502] * 20
        is_broken.clear()
        assert [get(gateway.port).status for _ in range(20)] == [200] * 20
