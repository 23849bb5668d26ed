"""The admin listener over real sockets: what it says, and what clients cannot do to it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.admin import (
    AdminAnswer,
    AdminServer,
    OneProcess,
    Phase,
    Query,
    Readiness,
    ReloadRecord,
    Resource,
)
from gateway.admin.mux import SECURITY_HEADERS
from gateway.observe.metrics import GatewayMetrics
from tests.breaking import abort

READY = Readiness(True, Phase.SERVING, ())


def subject(
    readiness: Callable[[], Readiness] = lambda: READY, metrics: GatewayMetrics | None = None
) -> OneProcess:
    """A gateway that was started a second after 1970 began."""
    metrics = metrics or GatewayMetrics("1", lambda: 1_000_000)
    return OneProcess(metrics, readiness, ReloadRecord(metrics))


@asynccontextmanager
async def admin(
    readiness: Callable[[], Readiness] = lambda: READY,
    metrics: GatewayMetrics | None = None,
    **options: Any,
) -> AsyncIterator[AdminServer]:
    """A listener on a free loopback port."""
    server = AdminServer("127.0.0.1", 0, subject(readiness, metrics), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connection(server: AdminServer) -> AsyncIterator[Connection]:
    """A bare connection, gone afterwards."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        abort(writer)
        with suppress(OSError):
            await writer.wait_closed()


async def bytes_until_cut_off(reader: asyncio.StreamReader) -> int:
    """How much still comes before the listener ends the connection, within 5 s."""
    received = 0
    with suppress(ConnectionResetError):
        while data := await asyncio.wait_for(reader.read(1 << 20), 5):
            received += len(data)
    return received


async def exchange(server: AdminServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, read until the listener closes; status, headers and body."""
    async with connection(server) as (reader, writer):
        writer.write(request)
        data = await asyncio.wait_for(reader.read(), 10)
    head, _, body = data.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status_line.split()[1]), headers, body


async def get(
    server: AdminServer, path: str, method: str = "GET", extra: str = ""
) -> tuple[int, dict[str, str], bytes]:
    """An ordinary request."""
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n"
    return await exchange(server, request.encode())


async def test_healthz() -> None:
    """Alive is two letters."""
    async with admin() as server:
        status, headers, body = await get(server, "/healthz")
    assert (status, body) == (200, b"ok\n")
    assert headers["Content-Type"].startswith("text/plain")


async def test_readyz_follows_the_gateway() -> None:
    """Each request evaluates the state again; the reasons are in the body."""
    state = Readiness(False, Phase.STARTING, ("the gateway is starting",))
    async with admin(lambda: state) as server:
        status, _, body = await get(server, "/readyz")
        assert status == 503
        assert json.loads(body) == {
            "ready": False,
            "phase": "starting",
            "reasons": ["the gateway is starting"],
            "config": {"applied_at": "1970-01-01T00:00:01Z"},
        }
        state = READY
        status, headers, body = await get(server, "/readyz")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body).items() > {"ready": True, "phase": "serving", "reasons": []}.items()


async def test_metrics_in_both_formats() -> None:
    """Prometheus gets the format it asks for, with the counters of this moment."""
    metrics = GatewayMetrics("1")
    async with admin(metrics=metrics) as server:
        metrics.route("r").answered(200, 5)
        _, headers, body = await get(server, "/metrics")
        assert headers["Content-Type"].startswith("text/plain; version=")
        names = {family.name for family in parse_text(body.decode())}
        accept = "Accept: application/openmetrics-text; version=1.0.0\r\n"
        _, headers, body = await get(server, "/metrics", extra=accept)
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
        open_names = {family.name for family in families}
    assert {"sluice_requests", "process_resident_memory_bytes"} <= names
    # An info metric is a type of its own in the one format, and a gauge in the other.
    assert names ^ open_names == {"sluice_build", "sluice_build_info"}


async def test_scrapes_at_the_same_time_are_all_answered() -> None:
    """They share the work, also when the one that began it leaves."""
    metrics = GatewayMetrics("1")
    for number in range(500):
        metrics.route(f"r{number}").answered(200, 5)
    async with admin(metrics=metrics) as server:
        async with connection(server) as (_, impatient):
            impatient.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            others = [asyncio.create_task(get(server, "/metrics")) for _ in range(5)]
            for _ in range(20):
                await asyncio.sleep(0)
        answers = await asyncio.gather(*others)
        later = await get(server, "/metrics")
    assert [status for status, _, _ in (*answers, later)] == [200] * 6
    assert all(body.count(b"sluice_requests_total{") == 500 for _, _, body in answers)


async def test_a_large_scrape_lets_others_run() -> None:
    """While thousands of routes are encoded the event loop keeps turning."""
    metrics = GatewayMetrics("1")
    for number in range(2000):
        metrics.route(f"r{number}").answered(200, 5)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with admin(metrics=metrics) as server:
        counting = asyncio.create_task(count())
        await get(server, "/metrics")
        counting.cancel()
    assert turns > 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics"])
async def test_head_is_get_without_the_body(path: str) -> None:
    """The same status and length, no byte of body."""
    async with admin() as server:
        status, headers, body = await get(server, path, "HEAD")
        _, _, full = await get(server, path)
    assert status == 200
    assert body == b""
    # The numbers in a scrape move on, and may be a digit longer the next time.
    assert int(headers["Content-Length"]) == pytest.approx(len(full), abs=100)


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET /healthz HTTP/1.0\r\nHost: localhost\r\n", 200),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n", 404),
        ("POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n", 405),
        ("TRACE /healthz HTTP/1.1\r\nHost: localhost\r\n", 405),
        ("GET /metrics HTTP/1.1\r\nHost: evil.test\r\n", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.test\r\n", 421),
        ("GET /metrics HTTP/1.1\r\n", 400),
        ("GET /metrics HTTP/1.0\r\n", 200),
        ("OPTIONS /healthz HTTP/1.0\r\n", 400),
        ("POST /healthz HTTP/1.0\r\nContent-Length: 0\r\n", 400),
        ("GET /metrics HTTP/1.0\r\nHost: evil.test\r\n", 421),
        ("GET /metrics HTTP/1.0\r\nHost: \r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n", 400),
        ("GET http://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nBad header\r\n", 400),
        ("GET /" + "x" * 20_000 + " HTTP/1.1\r\nHost: localhost\r\n", 400),
        ("nonsense\r\n", 400),
    ],
)
async def test_every_answer_is_guarded(request_head: str, status: int) -> None:
    """Good or bad, an answer carries the security headers and ends its connection."""
    async with admin() as server:
        answered, headers, body = await exchange(server, f"{request_head}\r\n".encode())
    assert answered == status
    assert {name: headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert headers["Server"] == "sluice"
    assert headers.get("Connection", "close") == "close"
    if status >= 400:
        assert headers["Content-Type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
        assert b"evil" not in body
        assert b"nonsense" not in body


async def test_readable_with_an_ordinary_client() -> None:
    """A client with keep-alive gets its answers one connection after the other."""
    async with admin() as server, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"http://127.0.0.1:{server.port}/healthz") as response:
                assert await response.text() == "ok\n"


async def test_upgrades_are_not_for_here() -> None:
    """A page in a browser cannot open a WebSocket to the listener."""
    async with admin() as server:
        extra = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        status, headers, _ = await get(server, "/healthz", extra=extra)
    assert status == 200
    assert "Upgrade" not in headers


async def test_features_hand_in_resources() -> None:
    """What a feature offers is served and listed like the rest."""

    async def read(query: Query) -> AdminAnswer:
        return AdminAnswer(200, "text/plain", query.accept.encode())

    async with admin(resources=[Resource("/feature", "something new", read)]) as server:
        _, _, body = await get(server, "/feature", extra="Accept: text/plain\r\n")
        _, _, index = await get(server, "/")
    assert body == b"text/plain"
    assert b"/feature" in index
    assert b"something new" in index
    assert b"/metrics" in index


async def test_a_failing_resource_is_a_500_and_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The operator finds the traceback in the log; the client learns nothing of it."""

    def readiness() -> Readiness:
        raise RuntimeError("secret detail")

    async with admin(readiness) as server:
        status, _, body = await get(server, "/readyz")
        assert (await get(server, "/healthz"))[0] == 200
    assert status == 500
    assert b"secret" not in body
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in errors] == ["gateway.admin.api"]
    assert errors[0].exc_info is not None


async def test_garbage_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A client that sends nonsense cannot fill the log with it."""
    caplog.set_level(logging.INFO)
    async with admin() as server:
        await exchange(server, b"\x16\x03\x01\x02 garbage\r\n\r\n")
    assert "garbage" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "start", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc", b"POST / HTTP/1.1\r\nX: y\r\n"]
)
async def test_slow_clients_are_cut_off(start: bytes) -> None:
    """A connection ends by its deadline, however busily its client trickles bytes."""
    async with admin(deadline_s=0.3) as server, connection(server) as (reader, writer):
        writer.write(start)

        async def trickle() -> None:
            while start:
                writer.write(b"a")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert await bytes_until_cut_off(reader) == 0
        trickling.cancel()


async def test_what_may_take_long_is_waited_for() -> None:
    """An answer that takes longer than a connection may has the time that its resource says."""
    may_answer = asyncio.Event()

    async def act(_query: Query) -> AdminAnswer:
        await may_answer.wait()
        return AdminAnswer(200, "text/plain", b"done")

    resources = [Resource(f"/{each}", "", act, ("POST",), each) for each in (0, 60)]
    async with (
        admin(deadline_s=0.3, resources=resources) as server,
        connection(server) as (short, short_writer),
        connection(server) as (long, long_writer),
    ):
        head = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        short_writer.write(b"POST /0 HTTP/1.1\r\n" + head)
        long_writer.write(b"POST /60 HTTP/1.1\r\n" + head)
        assert await bytes_until_cut_off(short) == 0
        may_answer.set()
        assert await long.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_clients_that_do_not_read_are_cut_off() -> None:
    """An answer that a client does not read is not kept beyond the deadline."""

    async def read(_query: Query) -> AdminAnswer:
        return AdminAnswer(200, "text/plain", b"x" * 50_000_000)

    resources = [Resource("/big", "much", read)]
    async with (
        admin(deadline_s=0.3, resources=resources) as server,
        connection(server) as (reader, writer),
    ):
        writer.write(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        await asyncio.sleep(0.5)
        assert await bytes_until_cut_off(reader) < 50_000_000


async def test_idle_connections_do_not_lock_anybody_out() -> None:
    """Past the greatest number, the oldest connection makes way for the newest."""
    async with admin(max_connections=5) as server, AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(connection(server)) for _ in range(20)]
        status, _, _ = await get(server, "/healthz")
        assert status == 200
        assert await bytes_until_cut_off(idle[0][0]) == 0


async def test_address_in_use_is_an_error() -> None:
    """If two listeners use one port, the second fails at its start."""
    async with admin() as first:
        second = AdminServer("127.0.0.1", first.port, subject())
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.close()


async def test_close_ends_idle_connections_quickly() -> None:
    """No client can delay the gateway's end."""
    async with admin() as server:
        async with connection(server) as (reader, _):
            await get(server, "/healthz")
            await asyncio.wait_for(server.close(), 3)
            assert await asyncio.wait_for(reader.read(), 3) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
