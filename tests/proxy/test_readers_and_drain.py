"""Clients that read slowly or not at all, and what is under way when the gateway stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.proxy.wire import OK, PATIENCE_S, answering, get, post, running
from tests.servers import until

BIG = 3_000_000
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG + b"x" * BIG


async def test_a_steady_reader_is_not_cut_however_slow(tmp_path: Path) -> None:
    """The time limit is between two pieces: a client that reads some of it has more time."""
    async with (
        answering(LARGE) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "300ms"}) as run,
    ):
        client = await run.client(receive_buffer=8192)
        client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        left = BIG
        # About 1.5 s for the first half, five times the limit.
        while left > BIG // 2:
            left -= len(await client.reader.read(min(left, 100_000)))
            await asyncio.sleep(0.02)
        await client.reader.readexactly(left)


async def test_who_stops_reading_in_an_answer_is_cut(tmp_path: Path) -> None:
    """After the time limit the connection is gone, on both sides."""
    async with (
        answering(LARGE) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "200ms"}) as run,
    ):
        client = await run.client(receive_buffer=4096)
        client.send(get())
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)


async def test_who_stops_reading_between_answers_is_cut(tmp_path: Path) -> None:
    """What is left of an answer in a buffer keeps no connection, whatever its size."""
    server = {"body_timeout": "200ms", "keepalive_timeout": "200ms"}
    sizes = range(20_000, 700_000, 30_000)
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n for n in sizes]
    async with answering(*answers) as upstream, running(tmp_path, upstream, server=server) as run:
        for close in ("", "Connection: close"):
            for _ in sizes:
                client = await run.client(receive_buffer=4096)
                client.send(get("/", *filter(None, [close])))
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)


async def test_who_only_sends_is_cut(tmp_path: Path) -> None:
    """Answers of the gateway's own pile up no more than those of an upstream."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            routes={"/only-this": {"upstream": "u"}},
            server={"body_timeout": "200ms"},
        ) as run,
    ):
        client = await run.client(receive_buffer=4096)
        client.send(get("/elsewhere") * 50_000)
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)


async def test_an_upload_under_way_ends_before_the_gateway_does(tmp_path: Path) -> None:
    """The rest of its body arrives, and its answer announces that it is the last."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        whole = post(b"hello world")
        client.send(whole[:-6])
        await until(lambda: run.gateway._proxy.under_way == 1)
        drained = asyncio.create_task(run.gateway._proxy.drain(PATIENCE_S))
        await asyncio.sleep(0.05)
        client.send(whole[-6:])
        answer = await client.read()

        assert (answer.status, answer.get(b"Connection")) == (200, b"close")
        assert await client.is_closed()
        assert await drained == 0
        assert upstream.requests[0].endswith(b"hello world")


async def test_a_request_on_its_way_is_answered_as_the_last(tmp_path: Path) -> None:
    """An idle connection is not closed under a request that was just sent."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        busy, idle = await run.client(), await run.client()
        assert (await busy.get()).status == (await idle.get()).status == 200
        drained = asyncio.create_task(run.gateway._proxy.drain(PATIENCE_S))
        await asyncio.sleep(0)
        answer = await busy.get()

        assert (answer.status, answer.get(b"Connection")) == (200, b"close")
        assert await busy.is_closed()
        assert await idle.is_closed()
        assert await drained == 0
