"""Thousands that do the same at once: what one costs does not depend on how many there are."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from gateway.base.tasks import AT_ONCE
from gateway.limiter import waiting_room as waiting
from tests.proxy.wire import OK, answering, get, running
from tests.servers import until
from tests.work import counted

QUEUE = {"limit": "1/h burst 1 per all", "queue": {"max": 1000, "max_wait": "900h"}}


async def _lines_per_leaver(folder: Path, crowd: int) -> float:
    """Lines of the waiting room that run for each client that leaves, all at once."""
    async with answering(OK) as upstream, running(folder, upstream, route=QUEUE) as run:
        assert (await run.ask(get())).status == 200
        room = run.gateway._running.decider.waiting
        for _ in range(crowd):
            (await run.client()).send(get())
        await until(lambda: len(room) == crowd)
        with counted(waiting) as work:
            for client in run.clients:
                client.close()
            await until(lambda: len(room) == 0)
        return work.lines / crowd


async def test_leaving_a_queue_costs_the_same_however_many_wait(tmp_path: Path) -> None:
    """If eight times as many leave together, each costs as much as before."""
    few = await _lines_per_leaver(tmp_path, 50)
    many = await _lines_per_leaver(tmp_path, 400)
    # Compiled, it runs no lines.
    assert many <= few * 1.5


async def test_a_crowd_that_leaves_a_queue_does_so_in_portions(tmp_path: Path) -> None:
    """However many leave in one moment, others have their turns of the loop between."""
    async with answering(OK) as upstream, running(tmp_path, upstream, route=QUEUE) as run:
        assert (await run.ask(get())).status == 200
        room = run.gateway._running.decider.waiting
        for _ in range(300):
            (await run.client()).send(get())
        await until(lambda: len(room) == 300)
        loop = asyncio.get_running_loop()
        lengths = []

        def look() -> None:
            lengths.append(len(room))
            if len(room):
                loop.call_soon(look)

        for client in run.clients[1:]:
            client.reset()
        look()
        await until(lambda: len(room) == 0)
        # Some at once, and some in the turn of the loop that follows within the same.
        assert max(before - after for before, after in pairwise(lengths)) <= 2 * AT_ONCE
