"""A refused client that repeats itself: the same bytes as long as they are true, no longer."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.observe.logs import AccessLog
from tests.proxy.wire import OK, answering, get, running

ONE_A_DAY = {"limit": "1/d per all"}


async def test_repeats_are_refused_and_counted_like_the_first(tmp_path: Path) -> None:
    """Each gets an answer, a place in the counters and a line in the log."""
    lines: list[str] = []
    async with answering(OK) as upstream, running(tmp_path, upstream, route=ONE_A_DAY) as run:
        run.gateway._proxy._driver.access_log = AccessLog(lines.append, "json")
        client = await run.client()
        answers = [await client.get("/a") for _ in range(6)]

        assert [answer.status for answer in answers] == [200, 429, 429, 429, 429, 429]
        assert len({answer.get(b"Retry-After") for answer in answers[1:]}) == 1
        assert len({answer.body for answer in answers[1:]}) == 1
        assert run.gateway.metrics.policy("/**").refused == 5
        assert run.gateway.metrics.route("/**").statuses == {200: 1, 429: 5}

    logged = [json.loads(line) for line in lines]
    assert [line["status"] for line in logged] == [200, 429, 429, 429, 429, 429]
    first, *repeats = ({**line, "time": 0, "duration_ms": 0} for line in logged[1:])
    assert repeats == [first] * 4


async def test_another_request_is_judged_by_itself(tmp_path: Path) -> None:
    """Only the very same bytes are known; a route without a limit is not refused."""
    routes = {"/free": {"upstream": "u"}, "/**": {"upstream": "u", **ONE_A_DAY}}
    async with answering(OK) as upstream, running(tmp_path, upstream, routes=routes) as run:
        client = await run.client()
        asked = ["/a", "/a", "/a", "/free", "/a", "/free", "/b"]

        statuses = [(await client.get(path)).status for path in asked]

        assert statuses == [200, 429, 429, 200, 429, 200, 429]


async def test_repeats_in_pieces_and_in_one_piece(tmp_path: Path) -> None:
    """Pipelined, cut in two or followed by half a request: one answer each, in order."""
    async with answering(OK) as upstream, running(tmp_path, upstream, route=ONE_A_DAY) as run:
        client = await run.client()
        request = get("/a")
        assert [(await client.ask(request)).status for _ in range(3)] == [200, 429, 429]

        client.send(request * 3)
        assert [(await client.read()).status for _ in range(3)] == [429, 429, 429]
        client.send(request[:9])
        await asyncio.sleep(0.01)
        client.send(request[9:])
        assert (await client.read()).status == 429
        client.send(request + request[:9])
        assert (await client.read()).status == 429
        client.send(request[9:])
        assert (await client.read()).status == 429


async def test_it_passes_as_soon_as_it_may(tmp_path: Path) -> None:
    """A client that hammers gets exactly what the limit allows, neither less nor more."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, route={"limit": "20/s burst 1 per all"}) as run,
    ):
        client = await run.client()
        started = time.monotonic()
        passed, due = 0, 0.0
        while time.monotonic() - started < 0.5:
            asked = time.monotonic()
            if (await client.get("/a")).status == 200:
                passed += 1
                due = time.monotonic() + 1 / 20
            else:
                assert asked < due
        assert passed <= 1 + 20 * (time.monotonic() - started)


@pytest.mark.parametrize(
    "returning", [{"queue": {"max": 1, "max_wait": "1ms"}}, {"consistency": "leased"}]
)
async def test_the_last_of_a_connection_and_what_is_handed_back_are_not_remembered(
    tmp_path: Path, returning: dict[str, Any]
) -> None:
    """`Connection: close` closes; if turns are given back, each request is decided again."""
    policies = {"p": {"limit": "1/d per all", **returning}}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route={"policies": ["p"]}) as run,
    ):
        client = await run.client()
        assert [(await client.get("/a")).status for _ in range(3)] == [200, 429, 429]
        assert all(each.repeatable is None for each in run.connections)

        answer = await client.ask(get("/a", "Connection: close"))

        assert (answer.status, answer.get(b"Connection")) == (429, b"close")
        assert await client.is_closed()


async def test_who_does_not_read_gets_no_more(tmp_path: Path) -> None:
    """Answers to a client that only sends stop at the socket's buffer, and go on after it."""
    async with answering(OK) as upstream, running(tmp_path, upstream, route=ONE_A_DAY) as run:
        client = await run.client(receive_buffer=4096)
        assert [(await client.get("/a")).status for _ in range(2)] == [200, 429]
        count = 20_000
        client.send(get("/a") * count)
        (connection,) = run.connections
        seen = 0
        for _ in range(50):
            await asyncio.sleep(0.01)
            assert connection.transport is not None
            seen = max(seen, connection.transport.get_write_buffer_size())

        assert seen < 1024 * 1024
        assert {(await client.read()).status for _ in range(count)} == {429}
