"""Limits on connections, and clients that are just quick enough for each timeout."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gateway.proxy.client.admission import LOOK_AGAIN_S
from gateway.proxy.upstream.small_buffer_reader import MANY, MANY_STREAMS, SLOW_S
from tests.proxy.wire import (
    OK,
    PATIENCE_S,
    Client,
    Peer,
    Running,
    ScriptedUpstream,
    answering,
    get,
    post,
    running,
)
from tests.servers import until

BIG = 8_000_000
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG + b"x" * BIG
LONG = {"keepalive_timeout": "1h", "header_timeout": "1h", "body_timeout": "1h"}


async def _served(run: Running, count: int) -> list[Client]:
    """Clients that had an answer, one after the other, and are idle."""
    clients = []
    for _ in range(count):
        clients.append(await run.client())
        assert (await clients[-1].get()).status == 200
        # Loops tell the time in milliseconds.
        await asyncio.sleep(0.003)
    return clients


async def test_the_longest_idle_makes_room(tmp_path: Path) -> None:
    """At the limit a newcomer is served, and the connection that was used last is kept."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={**LONG, "max_connections": 3}) as run,
    ):
        first, second, third = await _served(run, 3)
        assert (await first.get()).status == 200
        fourth = await run.client()
        assert (await fourth.get()).status == 200
        assert await second.is_closed()
        for client in (first, third, fourth):
            assert (await client.get()).status == 200
        assert run.gateway.metrics.connections == 3
        assert run.gateway.metrics.connections_evicted == 1
        assert not run.gateway.metrics.connections_refused


async def test_whoever_is_busy_stays(tmp_path: Path) -> None:
    """If all are being served, a new client gets 503; one that ends makes room."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.head():
            await go_on.wait()
            await peer.send(OK)

    async with (
        ScriptedUpstream(script) as upstream,
        running(
            tmp_path, upstream, "clients are refused", server={**LONG, "max_connections": 2}
        ) as run,
    ):
        busy = [await run.client() for _ in range(2)]
        for client in busy:
            client.send(get())
        await until(lambda: run.gateway._proxy.under_way == 2)
        for _ in range(3):
            refused = await run.client()
            answer = await refused.read()
            assert (answer.status, answer.get(b"Connection")) == (503, b"close")
            assert b"Too many connections" in answer.body
            assert await refused.is_closed()
        assert run.gateway.metrics.connections == 2
        go_on.set()
        for client in busy:
            assert (await client.read()).status == 200
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert (await run.ask(get())).status == 200
        assert run.gateway.metrics.connections_refused == {"max_connections": 3}


async def test_who_never_finishes_a_head_keeps_nobody_out(tmp_path: Path) -> None:
    """After a second the slowest head makes room, and before that none does."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path, upstream, "clients are refused", server={**LONG, "max_connections": 4}
        ) as run,
    ):
        slow = []
        for count in range(1, 5):
            slow.append(await run.client())
            slow[-1].send(b"GET / HTTP/1.1\r\nX-A")
            await until(lambda count=count: run.gateway.metrics.connections == count)  # type: ignore[misc]
            await asyncio.sleep(0.003)
        assert (await run.ask(get())).status == 503
        for connection in run.gateway._proxy._clients:
            connection.due -= 1.0
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert (await run.ask(get())).status == 200
        assert run.gateway.metrics.connections_evicted == 1
        assert await slow[0].is_closed()


async def test_an_address_has_so_many_connections(tmp_path: Path) -> None:
    """One more gets 503 and is closed; the others continue, and a freed place can be used."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path, upstream, "clients are refused", server={**LONG, "max_connections_per_ip": 2}
        ) as run,
    ):
        first, second = await _served(run, 2)
        refused = await run.client()
        assert (await refused.read()).status == 503
        assert await refused.is_closed()
        assert (await second.get()).status == 200
        first.close()
        await until(lambda: run.gateway.metrics.connections == 1)
        await _served(run, 1)
        assert run.gateway.metrics.connections_refused == {"max_connections_per_ip": 1}


async def test_a_trusted_proxy_speaks_for_many(tmp_path: Path) -> None:
    """Its connections are not those of one client."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            trusted_proxies="127.0.0.0/8",
            server={**LONG, "max_connections_per_ip": 2},
        ) as run,
    ):
        for client in await _served(run, 5):
            assert (await client.get()).status == 200


async def test_a_request_that_came_with_its_connection_reads_why(tmp_path: Path) -> None:
    """The client can read the refusal of a request that it had already sent."""
    server = {**LONG, "max_connections_per_ip": 1}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, "clients are refused", server=server) as run,
    ):
        await _served(run, 1)
        for request in (get(), post(b"x" * 100_000)):
            for _ in range(10):
                client = await run.client()
                client.send(request)
                assert (await client.read()).status == 503


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_trickles_for_ever(tmp_path: Path, is_chunked: bool) -> None:
    """408, though each byte comes well within `body_timeout`; the upstream's part breaks off."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.at_end()
        upstream.requests.append(b"ended")

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "200ms", "min_rate": "1kB/s"}) as run,
    ):
        client = await run.client()
        framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 1000"
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\n%b\r\n\r\n" % framing)
        reading = asyncio.create_task(client.read())
        async with asyncio.timeout(PATIENCE_S):
            while not reading.done():
                client.send(b"1\r\nx\r\n" if is_chunked else b"x")
                await asyncio.sleep(0.02)
        answer = await reading
        assert (answer.status, answer.get(b"Connection")) == (408, b"close")
        assert await client.at_end() == b""
        await until(lambda: upstream.requests == [b"ended"])
        assert run.gateway.metrics.client_errors == {"body_timeout": 1}


async def test_an_upload_is_not_to_blame_for_its_upstream(tmp_path: Path) -> None:
    """While the upstream does not read it, the time of its rate does not count."""
    size = 8_000_000

    async def script(peer: Peer) -> None:
        head = await peer.head()
        await asyncio.sleep(1.5)
        await peer.reader.readexactly(size)
        upstream.requests.append(head)
        await peer.send(OK)

    server = {"body_timeout": "1s", "min_rate": "100MiB/s"}
    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, server=server) as run,
    ):
        client = await run.client()
        client.send(post(b"x" * size))
        assert (await client.read()).status == 200


async def test_a_reader_that_takes_a_little_for_ever(tmp_path: Path) -> None:
    """It is cut off, though there is progress in each `body_timeout`; a steady one is not."""
    server = {"body_timeout": "1s", "min_rate": "30kB/s"}
    async with answering(LARGE) as upstream, running(tmp_path, upstream, server=server) as run:
        slow, steady = [await run.client(receive_buffer=4096) for _ in range(2)]
        for client in (slow, steady):
            client.send(get())
        is_cut = asyncio.create_task(until(lambda: len(run.gateway._proxy._clients) == 1))
        while not is_cut.done():
            await slow.reader.read(100)
            await steady.reader.read(16_384)
            await asyncio.sleep(0.01)
        await is_cut
        slow.close()
        (left,) = run.connections
        assert left.peer
        assert await steady.reader.read(1)


async def test_a_reader_of_little_is_seen_to_read(tmp_path: Path) -> None:
    """Less than a buffer in each `body_timeout` is progress, as long as it is above the rate."""
    server = {"body_timeout": "1s", "min_rate": "1B/s"}
    async with answering(LARGE) as upstream, running(tmp_path, upstream, server=server) as run:
        client = await run.client(receive_buffer=4096)
        client.send(get())
        taken = 0
        for _ in range(100):
            taken += len(await client.reader.read(1024))
            await asyncio.sleep(0.03)
        assert taken < 200_000
        assert run.gateway.metrics.connections == 1


async def test_while_many_answers_come_they_are_read_in_small_pieces(tmp_path: Path) -> None:
    """Of more than a few dozen at once the later ones, at once, and not only when clients stall."""
    body = random.Random(7).randbytes(200_000)
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            await peer.send(body[:1000])
            await go_on.wait()
            await peer.send(body[1000:])

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        (pool,) = run.upstream()._pools
        for _ in range(MANY_STREAMS + 20):
            client = await run.client()
            client.send(get())
            await client.reader.readuntil(b"\r\n\r\n")
        await until(lambda: pool.slow_readers._streams == MANY_STREAMS + 20)
        assert not pool.slow_readers._since
        assert sum(connection._is_narrow for connection in pool._open) == 20
        go_on.set()
        for client in run.clients:
            assert await client.reader.readexactly(len(body)) == body
        await until(lambda: len(pool._idle) == MANY_STREAMS + 20)
        assert not any(connection._is_narrow for connection in pool._open)
        assert pool.slow_readers._streams == 0


async def test_while_many_clients_are_slow_answers_are_read_in_small_pieces(
    tmp_path: Path,
) -> None:
    """Every byte arrives all the same, and the connection is as any other afterwards."""
    body = random.Random(7).randbytes(BIG)
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (BIG, body)
    async with answering(large) as upstream, running(tmp_path, upstream, server=LONG) as run:
        (pool,) = run.upstream()._pools
        for _ in range(MANY + 1):
            (await run.client(receive_buffer=4096)).send(get())
        await until(lambda: len(pool.slow_readers._since) > MANY, PATIENCE_S)
        assert not any(connection._is_narrow for connection in pool._open)
        await asyncio.sleep(2 * SLOW_S)
        client = await run.client()
        client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        assert sum(connection._is_narrow for connection in pool._open) == 1
        assert await client.reader.readexactly(BIG) == body
        await until(lambda: len(pool._idle) == 1)
        assert not any(connection._is_narrow for connection in pool._open)
        for other in run.clients[:-1]:
            other.close()
        await until(lambda: run.gateway.metrics.connections == 1)
        assert (await client.get()).body == body
