"""Limits on what goes on at once: a place is taken while a request lasts, and free after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.proxy.wire import OK, Peer, ScriptedUpstream, answering, get, running
from tests.servers import until

TWO_AT_ONCE = {"limit": "2 at once per all"}


async def test_a_place_is_free_as_soon_as_its_request_is_over(tmp_path: Path) -> None:
    """One after the other, any number of requests pass."""
    async with answering(OK) as upstream, running(tmp_path, upstream, route=TWO_AT_ONCE) as run:
        client = await run.client()

        assert [(await client.get()).status for _ in range(20)] == [200] * 20


async def test_no_more_go_on_at_once(tmp_path: Path) -> None:
    """The third is refused while two last, even if it repeats itself, and passes after one."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await go_on.wait()
            await peer.send(OK)

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, route=TWO_AT_ONCE) as run,
    ):
        clients = [await run.client() for _ in range(2)]
        for client in clients:
            client.send(get())
        third = await run.client()
        await until(lambda: run.gateway._proxy.under_way == 2)
        assert [(await third.get()).status for _ in range(3)] == [429] * 3

        # One leaves: its place is free at once.
        clients[0].close()
        await until(lambda: run.gateway._proxy.under_way == 1)
        third.send(get())
        await until(lambda: run.gateway._proxy.under_way == 2)
        go_on.set()
        assert (await third.read()).status == 200
        assert (await clients[1].read()).status == 200


async def test_a_failure_frees_the_place_too(tmp_path: Path) -> None:
    """Whatever becomes of requests, none keeps a place."""
    async with running(tmp_path, "http://127.0.0.1:1", route=TWO_AT_ONCE) as run:
        client = await run.client()

        assert [(await client.get()).status for _ in range(6)] == [502] * 6
