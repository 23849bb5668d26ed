"""Connections to targets: how many, who gets one, and that none is lost."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import UpstreamBusyError, UpstreamConnectError, UpstreamTimeout
from gateway.config.models.gateway import UpstreamConfig
from gateway.config.models.upstreams import part_of
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.connection import UpstreamConnection
from gateway.proxy.upstream.health import check_request
from gateway.proxy.upstream.http1_connection import Http1Connection
from gateway.proxy.upstream.pool import TargetPool
from gateway.proxy.upstream.targets import Upstream
from tests.proxy.wire import OK, Peer, ScriptedUpstream, answering, get, post, running
from tests.servers import until

MAX_HEAD = 16_384


async def exchange(connection: UpstreamConnection) -> bytes:
    """One request and its answer."""
    connection.begin(get(), is_head=False, on_interim=None, is_whole=True)
    await connection.head()
    body = await connection.read()
    assert await connection.read() == b""
    return body


@asynccontextmanager
async def pool_of(
    upstream: ScriptedUpstream, **settings: Any
) -> AsyncIterator[tuple[TargetPool, Upstream]]:
    """The pool of one target; when the test is over, nothing may be lent, wanted or lost."""
    # Nothing here is about connections that cannot be made in time.
    timeouts = {"connect": "20s", **settings.pop("timeouts", {})}
    options = {"targets": upstream.url, "timeouts": timeouts, **settings}
    config = UpstreamConfig.model_validate(options)
    whole = Upstream("u", config, UpstreamMetrics(), MAX_HEAD)
    pool = whole.pick()
    try:
        yield pool, whole
        await until(lambda: len(pool._open) == len(pool._idle))
        assert (pool._connecting, len(pool._pending)) == (0, 0)
        assert whole.metrics.connections == len(pool._open)
    finally:
        whole.close()
    await until(lambda: not pool._open)
    assert whole.metrics.connections == 0


async def test_a_connection_is_used_again() -> None:
    """The one that was used last comes first: the others may expire."""
    async with answering(OK) as upstream, pool_of(upstream) as (pool, whole):
        assert pool.take_idle() is None
        first, second = await pool.connect(), await pool.connect()
        for connection in (first, second):
            assert await exchange(connection) == b"ok"
            pool.give_back(connection)
        assert repr(pool).endswith("2 open, 2 idle, 0 pending>")
        assert pool.take_idle() is second
        assert pool.take_idle() is first
        assert pool.take_idle() is None
        for connection in (first, second):
            assert await exchange(connection) == b"ok"
            pool.give_back(connection)
        assert len(upstream.peers) == 2
        assert "u" in repr(whole)


async def test_what_is_written_is_sent_at_once() -> None:
    """Nagle's algorithm would hold the end of a body back until the upstream acknowledges."""
    async with answering(OK) as upstream, pool_of(upstream) as (pool, _):
        connection = await pool.connect()
        assert isinstance(connection, Http1Connection)
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert await exchange(connection) == b"ok"
        pool.give_back(connection)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"extra",
        OK + b"H",
    ],
)
async def test_a_connection_that_cannot_be_used_again_is_closed(answer: bytes) -> None:
    """The answer's connection options, and bytes after it, are respected."""
    async with answering(answer) as upstream, pool_of(upstream) as (pool, _):
        connection = await pool.connect()
        assert await exchange(connection) == b"ok"
        pool.give_back(connection)
        assert pool.take_idle() is None
        assert not connection.is_open


async def test_a_connection_in_the_middle_of_an_answer_is_closed() -> None:
    """A connection that is given back too early cannot harm the next request."""
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
    async with answering(data) as upstream, pool_of(upstream) as (pool, _):
        connection = await pool.connect()
        connection.begin(get(), is_head=False, on_interim=None, is_whole=True)
        assert "busy" in repr(connection)
        await connection.head()
        pool.give_back(connection)
        assert "closed" in repr(connection)
        assert pool.take_idle() is None


async def test_idle_connections_expire() -> None:
    """After `keepalive` without use."""
    async with answering(OK) as upstream, pool_of(upstream, keepalive="1s") as (pool, _):
        connection = await pool.connect()
        await exchange(connection)
        pool.give_back(connection)
        await asyncio.sleep(0.02)
        assert pool.take_idle() is connection
        await exchange(connection)
        pool.give_back(connection)
        await until(lambda: not pool._open)
        assert pool.take_idle() is None


async def test_there_are_never_more_connections_than_allowed() -> None:
    """Later requests wait in line, and each gets the next free connection."""
    async with answering(OK) as upstream, pool_of(upstream, max_connections=2) as (pool, _):
        served: list[int] = []

        async def serve(number: int) -> None:
            connection = pool.take_idle() or await pool.connect()
            assert len(pool._open) <= 2
            assert await exchange(connection) == b"ok"
            served.append(number)
            pool.give_back(connection)

        await asyncio.gather(*(serve(number) for number in range(20)))
        # The first two connect at the same time, then the line keeps its order.
        assert sorted(served[:2]) == [0, 1]
        assert served[2:] == list(range(2, 20))
        assert len(upstream.peers) == 2


async def test_who_cannot_have_the_connection_opens_one() -> None:
    """When a connection ends, its place goes to the first in line."""
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with answering(closing) as upstream, pool_of(upstream, max_connections=1) as (pool, _):

        async def serve() -> None:
            connection = await pool.connect()
            assert await exchange(connection) == b"ok"
            pool.give_back(connection)

        await asyncio.gather(*(serve() for _ in range(5)))
        assert len(upstream.peers) == 5


async def test_the_line_is_bounded() -> None:
    """One more than `max_pending` is turned away at once."""
    settings = {"max_connections": 1, "max_pending": 1}
    async with answering(OK) as upstream, pool_of(upstream, **settings) as (pool, _):
        connection = await pool.connect()
        waiting = asyncio.create_task(pool.connect())
        await asyncio.sleep(0)
        with pytest.raises(UpstreamBusyError):
            await pool.connect()
        await exchange(connection)
        pool.give_back(connection)
        assert await waiting is connection
        await exchange(connection)
        pool.give_back(connection)


async def test_who_comes_first_is_served_first() -> None:
    """Many at once wait for few connections: in order, each once, and no more are opened."""
    async with answering(OK) as upstream, pool_of(upstream, max_connections=3) as (pool, _):
        served: list[int] = []

        async def ask(number: int) -> None:
            connection = pool.take_idle() or await pool.connect()
            served.append(number)
            await exchange(connection)
            pool.give_back(connection)

        await asyncio.gather(*(ask(number) for number in range(200)))
        assert sorted(served) == list(range(200))
        assert served[3:] == list(range(3, 200))
        assert len(upstream.peers) <= 3


async def test_who_gets_a_connection_that_is_closed_stays_first_in_line() -> None:
    """Later requests are not served before it, although the line has moved on."""
    async with answering(OK) as upstream, pool_of(upstream, max_connections=1) as (pool, _):
        served: list[int] = []

        async def ask(number: int) -> None:
            connection = await pool.connect()
            served.append(number)
            await exchange(connection)
            pool.give_back(connection)

        connection = await pool.connect()
        await exchange(connection)
        asking = [asyncio.create_task(ask(number)) for number in range(6)]
        await until(lambda: len(pool._pending) == 6)
        pool.give_back(connection)
        connection.abort()
        await asyncio.gather(*asking)
        # The next may open one at the moment in which it is closed; all others are behind.
        assert served == [1, 0, 2, 3, 4, 5]


async def test_bounds_of_the_line_that_refuse_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the setting, and how often it refused."""
    settings = {"max_connections": 1, "max_pending": 1, "timeouts": {"queue": "50ms"}}
    async with answering(OK) as upstream, pool_of(upstream, **settings) as (pool, _):
        connection = await pool.connect()
        waiting = asyncio.create_task(pool.connect())
        await asyncio.sleep(0)
        for _ in range(4):
            with pytest.raises(UpstreamBusyError):
                await pool.connect()
        with pytest.raises(UpstreamTimeout):
            await waiting
        await exchange(connection)
        pool.give_back(connection)
        pool.close()
    busy = f"requests to {pool.name} are answered 503: max_pending (1) is reached"
    late = f"requests to {pool.name} are answered 503: none of max_connections (1) became free"
    assert caplog.messages == [
        busy,
        f"{late} in time (timeouts.queue, or timeouts.total for all attempts)",
        f"{busy}: 3 more since the last message",
    ]


@given(st.integers(0, 2000), st.integers(1, 100))
def test_the_parts_of_workers_are_never_more_than_the_whole(most: int, workers: int) -> None:
    """Unless there are fewer than workers: then each has one."""
    part = part_of(most, workers)
    assert part * workers <= most or part == 1
    assert bool(part) == bool(most)
    assert part >= most // workers


async def test_waiting_in_line_has_an_end() -> None:
    """After `timeouts.queue`, and the next in line is not harmed."""
    settings = {"max_connections": 1, "timeouts": {"queue": "50ms"}}
    async with answering(OK) as upstream, pool_of(upstream, **settings) as (pool, _):
        connection = await pool.connect()
        with pytest.raises(UpstreamTimeout) as caught:
            await pool.connect()
        assert caught.value.phase == "queue"
        await exchange(connection)
        pool.give_back(connection)
        assert pool.take_idle() is connection
        await exchange(connection)
        pool.give_back(connection)


@pytest.mark.parametrize("when", ["in line", "when granted"])
@pytest.mark.parametrize("answer", [OK, OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")])
async def test_who_leaves_the_line_loses_nothing_for_others(when: str, answer: bytes) -> None:
    """A connection, or the right to open one, goes to the next, whatever the moment."""
    async with answering(answer) as upstream, pool_of(upstream, max_connections=1) as (pool, _):
        connection = await pool.connect()
        first, second = (asyncio.create_task(pool.connect()) for _ in range(2))
        await asyncio.sleep(0)
        await exchange(connection)
        if when == "in line":
            first.cancel()
            await asyncio.sleep(0)
            pool.give_back(connection)
        else:
            pool.give_back(connection)
            # The very turn in which it is granted, which sets no event.
            while len(pool._pending) == 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            first.cancel()
        async with asyncio.timeout(20):
            connection = await second
        assert await exchange(connection) == b"ok"
        pool.give_back(connection)
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()


async def test_who_leaves_while_connecting_leaves_no_connection() -> None:
    """The place is free again."""
    async with answering(OK) as upstream, pool_of(upstream, max_connections=1) as (pool, _):
        for turns in range(6):
            task = asyncio.create_task(pool.connect())
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, UpstreamConnection):
                result.abort()
                await until(lambda: not pool._open)
            assert pool._connecting == 0


async def test_a_connection_that_dies_in_the_hands_of_the_line() -> None:
    """One that is closing is not handed over; the waiting request opens a new one."""
    async with answering(OK) as upstream, pool_of(upstream, max_connections=1) as (pool, _):
        connection = await pool.connect()
        await exchange(connection)
        waiting = asyncio.create_task(pool.connect())
        await asyncio.sleep(0)
        assert isinstance(connection, Http1Connection)
        assert connection.transport is not None
        connection.transport.close()
        pool.give_back(connection)
        async with asyncio.timeout(20):
            fresh = await waiting
        assert fresh is not connection
        await exchange(fresh)
        pool.give_back(fresh)


async def test_a_target_that_is_not_there() -> None:
    """Each request gets the reason, and no place is lost."""
    async with answering(OK) as gone:
        url = gone.url
    config = UpstreamConfig.model_validate({"targets": url, "max_connections": 2})
    pool = Upstream("u", config, UpstreamMetrics(), MAX_HEAD).pick()
    results = await asyncio.gather(*(pool.connect() for _ in range(9)), return_exceptions=True)
    assert {type(result) for result in results} == {UpstreamConnectError}
    assert (pool._connecting, len(pool._pending), len(pool._open)) == (0, 0, 0)


async def test_targets_take_turns_by_weight() -> None:
    """Each target has its share of the requests, and one pool of connections."""
    config = UpstreamConfig.model_validate(
        {"targets": [{"url": "http://127.0.0.1:1", "weight": 3}, "http://127.0.0.1:2"]}
    )
    upstream = Upstream("u", config, UpstreamMetrics(), MAX_HEAD)
    picked = [upstream.pick().name for _ in range(40)]
    assert picked.count("127.0.0.1:1") == 30
    assert picked.count("127.0.0.1:2") == 10
    assert len({id(upstream.pick()) for _ in range(8)}) == 2


async def test_ipv6_targets_have_brackets_where_they_are_named() -> None:
    """In `Host`, that is; connections need them not."""
    config = UpstreamConfig.model_validate({"targets": "http://[::1]:9"})
    assert Upstream("u", config, UpstreamMetrics(), MAX_HEAD).pick().authority == "[::1]:9"


async def test_clients_of_a_busy_upstream(tmp_path: Path) -> None:
    """One is served, one waits, the third gets 503; so does the second when its time is up."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await go_on.wait()
            await peer.send(OK)

    settings = {"max_connections": 1, "max_pending": 1, "timeouts": {"queue": "1s"}}
    said = "are answered 503"
    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, said, u=settings) as run,
    ):
        clients = [await run.client() for _ in range(3)]
        pool = run.upstream().pick()
        clients[0].send(get())
        await until(lambda: len(pool._open) == 1)
        clients[1].send(get())
        await until(lambda: len(pool._pending) == 1)
        busy = await clients[2].get()
        assert (busy.status, json.loads(busy.body)["error"]) == (503, "busy")
        assert busy.get(b"Retry-After") == b"1"
        late = await clients[1].read()
        assert (late.status, json.loads(late.body)["error"]) == (503, "timeout_queue")
        assert late.get(b"Retry-After") == b"1"
        clients[1].send(post(b"x"))
        await until(lambda: len(pool._pending) == 1)
        go_on.set()
        assert [(await client.read()).status for client in clients[:2]] == [200, 200]
        assert len(upstream.peers) == 1


async def test_a_stale_connection_from_the_line_is_replaced_too(tmp_path: Path) -> None:
    """A request that waited for a connection that its upstream then closed is served again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.05)
        await peer.send(OK)
        if await peer.request():
            peer.reset()

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, u={"max_connections": 1}) as run,
    ):
        clients = [await run.client() for _ in range(2)]
        for client in clients:
            client.send(get())
        assert [(await client.read()).status for client in clients] == [200, 200]
        assert len(upstream.peers) == 2


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://a.test", b"a.test"),
        ("https://a.test:443", b"a.test"),
        ("http://a.test", b"a.test"),
        ("http://a.test:80", b"a.test"),
        ("https://[::1]", b"[::1]"),
        ("http://a.test:443", b"a.test:443"),
        ("https://a.test:80", b"a.test:80"),
        ("https://[::1]:8443", b"[::1]:8443"),
        ("unix:/run/app.sock", b"localhost"),
    ],
)
async def test_a_target_is_told_its_own_host_without_a_default_port(url: str, host: bytes) -> None:
    """As every client writes it (RFC 9110, section 4.2.3), in health checks too."""
    config = UpstreamConfig.model_validate({"targets": url, "health": "/well"})
    pool = Upstream("u", config, UpstreamMetrics(), MAX_HEAD).pick()
    assert pool.authority.encode() == host
    assert config.health is not None
    assert b"\r\nHost: %b\r\n" % host in check_request(pool, config.health)
