"""Clients that send more while they have not read what they were answered."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.proxy.wire import (
    PATIENCE_S,
    Client,
    Peer,
    ScriptedUpstream,
    answering,
    get,
    post,
    running,
)
from tests.servers import until

SIZE = 60_000
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE + b"x" * SIZE
ASKED = 30
MANY = 400_000
"""Bytes that are more than what may wait and one read of a socket."""


async def in_segments(client: Client, *pieces: bytes) -> None:
    """Send each piece so that it is read on its own."""
    for piece in pieces:
        client.send(piece)
        await client.writer.drain()
        await asyncio.sleep(0.02)


async def test_a_body_behind_unread_answers_is_no_request(tmp_path: Path) -> None:
    """What a body looks like does not matter, whenever it comes (RFC 9112, section 6.3)."""
    body = get("/smuggled")
    head = post(body)[: -len(body)]
    async with answering(LARGE) as upstream, running(tmp_path, upstream) as run:
        client = await run.client(receive_buffer=4096)
        asked = [get(f"/{number}") for number in range(ASKED)]
        await in_segments(client, b"".join([*asked, head]), body, get("/last"))
        answers = [await client.read() for _ in range(ASKED + 2)]
        assert all(len(answer.body) == SIZE for answer in answers)
        targets = [request.split()[1] for request in upstream.requests]
        assert targets == [*(b"/%d" % number for number in range(ASKED)), b"/", b"/last"]
        assert upstream.requests[-2].endswith(body)


async def test_requests_that_come_one_by_one_are_answered_in_order(tmp_path: Path) -> None:
    """None is left lying when its client reads on (RFC 9112, section 9.3.2)."""
    async with answering(LARGE) as upstream, running(tmp_path, upstream) as run:
        client = await run.client(receive_buffer=4096)
        await in_segments(client, *(get(f"/{number}") for number in range(ASKED)))
        answers = [await client.read() for _ in range(ASKED)]
        assert all(len(answer.body) == SIZE for answer in answers)
        targets = [request.split()[1] for request in upstream.requests]
        assert targets == [b"/%d" % number for number in range(ASKED)]


async def test_what_comes_behind_unread_answers_is_bounded(tmp_path: Path) -> None:
    """From a client that does not read, only a buffer is read, and its time is not extended."""
    server = {"body_timeout": "1s"}
    async with answering(LARGE) as upstream, running(tmp_path, upstream, server=server) as run:
        client = await run.client(receive_buffer=4096)
        await in_segments(client, get() * ASKED)
        (connection,) = run.connections
        most = 0
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(3):
                while True:
                    client.send(b"x" * 10_000)
                    await client.writer.drain()
                    most = max(most, len(connection._reader.rest))
        assert 0 < most < MANY
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)


@pytest.mark.parametrize("stops", [False, True])
async def test_an_answer_that_is_being_read_is_not_idle(tmp_path: Path, *, stops: bool) -> None:
    """Idle time begins when the last answer has left, also where the gateway stops."""
    server = {"keepalive_timeout": "100ms"}
    async with answering(LARGE) as upstream, running(tmp_path, upstream, server=server) as run:
        client = await run.client(receive_buffer=4096)
        client.send(get() * 4)
        await until(lambda: len(upstream.requests) >= 3, PATIENCE_S)
        stopping = asyncio.create_task(run.gateway.stop(PATIENCE_S)) if stops else None
        whole = 0
        while whole < 4:
            head = await client.reader.readuntil(b"\r\n\r\n")
            for _ in range(20):
                await client.reader.readexactly(SIZE // 20)
                await asyncio.sleep(0.01)
            whole += 1
            if b"Connection: close" in head:
                break
        assert whole >= (3 if stops else 4)
        if stopping is not None:
            await stopping


async def test_who_resets_while_nothing_is_read_has_left(tmp_path: Path) -> None:
    """Bytes after a slow request do not hide that the client has left."""
    leaves = asyncio.Event()

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.head())
        await leaves.wait()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(get() + get("/next") * 10_000)
        await until(lambda: len(upstream.requests) == 1, PATIENCE_S)
        await asyncio.sleep(0.1)
        client.reset()
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)
        leaves.set()
