"""Tasks in the background: waited for, cancelled, and never failing in silence."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from gateway.base.tasks import Background, Portions, Tasks, becomes


async def test_work_that_comes_by_the_thousand_is_done_a_few_pieces_a_turn_and_in_order() -> None:
    """The first are done as they come; later ones wait for the next turns, behind those before."""
    done: list[int] = []
    portions = Portions(at_once=3)
    for number in range(10):
        portions.do(lambda number=number: done.append(number))  # type: ignore[misc]
    turns = [len(done)]
    while len(portions):
        await asyncio.sleep(0)
        turns.append(len(done))
    assert done == list(range(10))
    assert max(after - before for before, after in pairwise(turns)) <= 3
    assert turns[0] == 3


async def test_a_task_that_fails_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """And is forgotten."""

    async def fail() -> None:
        raise ValueError("no")

    tasks = Tasks()
    with caplog.at_level(logging.ERROR):
        await asyncio.wait({tasks.start(fail())})
        await asyncio.sleep(0)
    assert "A background task failed" in caplog.text
    assert len(tasks) == 0


async def test_tasks_that_start_others_are_waited_for_with_them() -> None:
    """`finish` ends when there are none, not when those are done that it found."""
    tasks, done = Tasks(), []

    async def work(left: int) -> None:
        await asyncio.sleep(0)
        done.append(left)
        if left:
            tasks.start(work(left - 1))

    tasks.start(work(2))
    await tasks.finish(60)
    assert done == [2, 1, 0]


async def test_what_does_not_end_in_time_is_cancelled() -> None:
    """And has ended when `finish` returns."""
    tasks = Tasks()
    task = tasks.start(asyncio.Event().wait())  # type: ignore[arg-type]
    await tasks.finish(0)
    assert task.cancelled()


async def test_a_task_that_goes_on_until_it_is_ended_raises_what_it_raised() -> None:
    """Starting it twice is starting it once."""
    starts: list[int] = []

    async def fail() -> None:
        starts.append(1)
        raise ValueError("no")

    background = Background(fail)
    background.start()
    background.start()
    running = [background.is_running]
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="no"):
        await background.end()
    running.append(background.is_running)
    assert running == [True, False]
    assert starts == [1]


async def test_what_is_so_already_is_not_waited_for() -> None:
    """What does not become true in time is reported."""
    assert await becomes(lambda: True, 0)
    assert not await becomes(lambda: False, 0)
