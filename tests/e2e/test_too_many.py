"""More of everything than there is room for: files, connections, requests in a row."""

from __future__ import annotations

import resource
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.memory import peak_mib, reset_peak
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway, answers, free_port

FILES: Final = 96
ROOM: Final = 54
"""Clients that fit beside ten connections to the upstream and what the gateway needs itself."""
MANY: Final = 150
HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With which a connection of HTTP/2 begins."""
REQUEST: Final = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


@contextmanager
def _few_files(folder: Path, url: str, more: str = "") -> Iterator[Gateway]:
    """A gateway that may open few files."""
    gateway = Gateway.start(
        f"log: {{ access: off }}\n{more}"
        f"upstreams: {{ u: {{ targets: '{url}', max_connections: 10 }} }}\n"
        "routes: { /**: { upstream: u } }\n",
        folder,
        before=("prlimit", f"--nofile={FILES}:{FILES}"),
    )
    try:
        yield gateway
    finally:
        gateway.stop()


def _first_line(sock: socket.socket) -> str:
    """What a client is told, if anything."""
    try:
        return sock.recv(1 << 16).partition(b"\r\n")[0].decode()
    except ConnectionError:
        return ""


def _turned_away(gateway: Gateway) -> tuple[float, float]:
    """How many clients were refused, and how many closed to make room."""
    names = ("sluice_client_connections_refused_total", "sluice_client_connections_evicted_total")
    refused, evicted = (metric(gateway, name) for name in names)
    return refused, evicted


def _becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _is_at_rest(gateway: Gateway) -> bool:
    """Whether it is idle: a loop that spins takes all the time there is."""
    before = _cpu_s(gateway.server.pid)
    time.sleep(0.4)
    return _cpu_s(gateway.server.pid) - before < 0.2


def test_idle_connections_make_room_where_files_are_few(tmp_path: Path) -> None:
    """Every newcomer is served; the gateway has files left for what else it must do."""
    with RecordingUpstream() as upstream, _few_files(tmp_path, upstream.url) as gateway:
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(ROOM)]
            assert {client.get().status for client in clients} == {200}
            newcomers = [stack.enter_context(RawClient(gateway.port)) for _ in range(ROOM // 2)]
            assert {client.get().status for client in newcomers} == {200}
            assert metric(gateway, "sluice_client_connections") == ROOM
            assert metric(gateway, "sluice_client_connections_evicted_total") == ROOM // 2
            # Those that were idle for the shortest time.
            assert {client.get().status for client in clients[-10:]} == {200}
        assert wait_for_metric(gateway, "sluice_client_connections", 0)


def test_a_flood_where_files_are_few(tmp_path: Path) -> None:
    """Those beyond are told 503 at once, all others go on, and it is over when they are gone."""
    with RecordingUpstream() as upstream, _few_files(tmp_path, upstream.url) as gateway:
        with ExitStack() as stack:
            heads = []
            for _ in range(MANY):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                sock.sendall(REQUEST[:-2])
                heads.append(sock)
            # On a slow machine some heads have taken more than their second, and make room.
            assert _becomes(lambda: sum(_turned_away(gateway)) == MANY - ROOM)
            refused, evicted = _turned_away(gateway)
            assert refused
            assert metric(gateway, "sluice_client_connections") == ROOM
            ended, _, _ = select.select(heads, [], [], 0)
            told = Counter(_first_line(sock)[:12] for sock in ended)
            assert (told["HTTP/1.1 503"], told[""]) == (refused, evicted)
            assert _is_at_rest(gateway)
        assert wait_for_metric(gateway, "sluice_client_connections", 0)
        assert get(gateway.port).status == 200
        assert gateway.server.stdout.count("clients are refused") == 1


def test_no_file_is_left(tmp_path: Path) -> None:
    """Where `max_connections` was set too high: a warning, no spinning, and an end to it."""
    server = "server: { max_connections: 100000 }\n"
    with RecordingUpstream() as upstream, _few_files(tmp_path, upstream.url, server) as gateway:
        assert "is 100000, but the limit of 96 open files" in gateway.server.stdout
        admin = [socket.create_connection(("127.0.0.1", _admin_port(gateway))) for _ in range(20)]
        with ExitStack() as stack:
            for sock in admin:
                stack.enter_context(sock)
            for _ in range(MANY):
                stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            open_files = Path(f"/proc/{gateway.server.pid}/fd")
            assert _becomes(lambda: len(list(open_files.iterdir())) >= FILES - 1)
            assert _is_at_rest(gateway)
        assert _becomes(lambda: answers(_admin_port(gateway), "/readyz"))
        assert wait_for_metric(gateway, "sluice_client_connections", 0)
        assert {get(gateway.port).status for _ in range(20)} == {200}


@pytest.mark.parametrize("number", [1, 3])
def test_a_flood_of_grpc_listeners_leaves_files_for_the_others(number: int, tmp_path: Path) -> None:
    """They have a third of all files together: HTTP clients and probes are answered meanwhile."""
    ports = [free_port() for _ in range(number)]
    listeners = ", ".join(f"{{ bind: '127.0.0.1:{port}', ratio: 5/h }}" for port in ports)
    more = f"listeners: [{listeners}]\n"
    with RecordingUpstream() as upstream, _few_files(tmp_path, upstream.url, more) as gateway:
        with ExitStack() as stack:
            for turn in range(MANY):
                place = ("127.0.0.1", ports[turn % number])
                sock = stack.enter_context(socket.create_connection(place))
                # The connections that may be are told of its settings, all others of their end.
                with suppress(ConnectionError):
                    sock.sendall(HTTP2)
                    sock.recv(1 << 16)
            assert get(gateway.port).status == 200
            assert answers(_admin_port(gateway), "/readyz")
            assert _is_at_rest(gateway)
        assert get(gateway.port).status == 200


def _admin_port(gateway: Gateway) -> int:
    return int(gateway.admin_url.rpartition(":")[2])


Small = tuple[Gateway, list[RawConnection]]


@pytest.fixture(scope="module")
def small(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Gateway, list[RawConnection]]]:
    """A gateway before an upstream that answers nothing, and one that answers all."""
    hanging: list[RawConnection] = []

    def hang(connection: RawConnection) -> None:
        connection.read_head()
        hanging.append(connection)
        connection.wait_for_end()

    with RawUpstream(hang) as silent, RecordingUpstream() as good:
        gateway = Gateway.start(
            "log: { access: off }\nserver: { max_body: 100kB }\n"
            "upstreams:\n"
            f"  good: {{ targets: '{good.url}', max_connections: 20 }}\n"
            f"  silent: {{ targets: '{silent.url}', max_connections: 3, max_pending: 2,"
            " timeouts: { queue: 2s, first_byte: 20s } }\n"
            "routes:\n  /silent/**: { upstream: silent }\n  /**: { upstream: good }\n",
            tmp_path_factory.mktemp("gateway"),
        )
        yield gateway, hanging
        gateway.stop()


def test_an_upstream_that_hangs_takes_nobody_with_it(small: Small) -> None:
    """Its connections are used up: who comes then waits, or is told at once; others are served."""
    gateway, hanging = small
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(8)]
        for count, client in enumerate(clients[:3], 1):
            client.request("/silent/")
            assert wait_for_metric(gateway, "sluice_upstream_connections", count, upstream="silent")
        for client in clients[3:]:
            client.request("/silent/")
        assert [get(gateway.port).status for _ in range(5)] == [200] * 5
        statuses = Counter(client.read().status for client in clients[3:])
        assert statuses == {503: 5}
        kinds = ("busy", "timeout_queue")
        errors = [metric(gateway, "sluice_upstream_errors_total", kind=kind) for kind in kinds]
        assert errors == [3, 2]
        assert metric(gateway, "sluice_upstream_connections", upstream="silent") == 3
        assert len(hanging) == 3
    assert wait_for_metric(gateway, "sluice_upstream_connections", 0, upstream="silent")


def test_a_hundred_thousand_requests_in_one_write(small: Small) -> None:
    """Whoever reads no answer is not read for long either: no memory fills."""
    gateway, _ = small
    pid = gateway.server.pid
    get(gateway.port)
    reset_peak(pid)
    before = peak_mib(pid)
    answered = metric(gateway, "sluice_upstream_requests_total")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0.3)
        sock.connect(("127.0.0.1", gateway.port))
        with suppress(TimeoutError):
            sock.sendall(REQUEST * 100_000)
        assert get(gateway.port).status == 200
        # Answers that are not taken are a bound: no more is asked for, and it stands still.
        asked = [0.0, 1.0]
        while asked[-1] != asked[-2]:
            time.sleep(0.1)
            asked.append(metric(gateway, "sluice_upstream_requests_total") - answered)
        assert asked[-1] < 50_000
        assert peak_mib(pid) - before < 5
    assert wait_for_metric(gateway, "sluice_client_connections", 0)


def test_all_clients_may_wait_for_a_connection(start_gateway: StartGateway) -> None:
    """More than a thousand at once over two connections: nobody is answered 503."""
    crowd = 1100
    go_on = threading.Event()

    def hold(connection: RawConnection) -> None:
        while connection.read_head():
            go_on.wait(60)
            connection.send(OK)

    with _open_files(2 * crowd), RawUpstream(hold) as upstream, ExitStack() as stack:
        gateway = start_gateway(
            f"upstreams: {{ u: {{ targets: '{upstream.url}', max_connections: 2,"
            " timeouts: { queue: 5m } } }\n"
            "routes:\n  /here: { respond: 204 }\n  /**: { upstream: u }\n"
        )
        clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(crowd)]
        for client in clients:
            client.request()
        assert wait_for_metric(gateway, "sluice_client_connections", crowd)
        assert get(gateway.port, "/here").status == 204
        go_on.set()
        assert Counter(client.read().status for client in clients) == {200: crowd}


@contextmanager
def _open_files(number: int) -> Iterator[None]:
    """Let this process have so many files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], number), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_connections_than_the_upstream_may_have(start_gateway: StartGateway) -> None:
    """A hundred at once over five connections: all are answered, and there were never six."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"upstreams: {{ u: {{ targets: '{upstream.url}', max_connections: 5 }} }}\n"
            "routes: { /**: { upstream: u } }\n"
        )
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(100)]
            for client in clients:
                client.request()
            assert {client.read().status for client in clients} == {200}
        assert metric(gateway, "sluice_upstream_connections") <= 5
        assert len(upstream.heads) == 100
