"""Closing a limiter: everybody is told, nothing is left behind, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from gateway import Decision, Limiter, Policy
from gateway.stores.memory.store import MemoryStore
from gateway.stores.scripted import ScriptedStore
from tests.servers import RedisServer, until
from tests.virtual_time import clock, run


class Remote(ScriptedStore):
    """A store that is not in this process, and says when it is let go of."""


@contextlib.asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """No task is there soon afterwards that was not there before."""
    before = asyncio.all_tasks()
    yield
    await until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.parametrize("is_remote", [True, False])
def test_all_who_wait_in_a_line_are_told(*, is_remote: bool) -> None:
    """Not only the first; and a closed limiter admits none of them."""

    async def told() -> None:
        store = Remote(clock()) if is_remote else MemoryStore(clock=clock())
        limiter = Limiter(Policy("p", "1/h"), store=store)
        await limiter.open()
        assert await limiter.acquire("k")
        waiting = [asyncio.create_task(limiter.wait("k")) for _ in range(4)]
        await asyncio.sleep(1)
        await limiter.aclose()
        async with asyncio.timeout(1):
            ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(end) for end in ends] == ["the limiter was closed"] * 4

    run(told())


async def test_nobody_waits_for_a_store_that_does_not_answer(redis_server: RedisServer) -> None:
    """The deadline is long, closing is not: `on_store_error` applies."""
    async with nothing_left():
        store = {"url": redis_server.url, "deadline": "60s"}
        limiter = Limiter(Policy("p", "1/h"), store=store)
        await limiter.open()
        redis_server.freeze()
        asked = asyncio.create_task(limiter.acquire("k"))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await limiter.aclose()
            assert (await asked).decided_alone
    redis_server.thaw()


@pytest.mark.parametrize("steps", range(8))
async def test_a_close_that_is_cancelled_goes_on(redis_server: RedisServer, steps: int) -> None:
    """A caller that stops waiting does not prevent the close; a second close waits for it."""
    async with nothing_left():
        leased = Policy("leased", "1000/s", consistency="leased")
        limiter = Limiter(Policy("p", "10/s"), leased, store=redis_server.url)
        await limiter.open()
        for _ in range(3):
            await limiter.acquire("k", policy="p")
            await limiter.acquire("k", policy="leased")
        closing = asyncio.create_task(limiter.aclose())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await limiter.aclose()
        assert not limiter.is_open


async def test_a_store_that_fails_meanwhile_leaves_no_probe(redis_server: RedisServer) -> None:
    """It freezes with calls in flight, which fail while the limiter closes."""
    async with nothing_left():
        limiter = Limiter(Policy("p", "10/s"), store=redis_server.url)
        await limiter.open()
        redis_server.freeze()
        asked = []
        for _ in range(4):
            asked.append(asyncio.create_task(limiter.acquire("k")))
            await asyncio.sleep(0.001)
        await limiter.aclose()
        assert all([(await each).decided_alone for each in asked])
    redis_server.thaw()


async def test_a_slot_that_is_held_over_the_end(redis_server: RedisServer) -> None:
    """It is no longer renewed, and leaving it does nothing."""
    async with nothing_left():
        limiter = Limiter(Policy("s", "1 at once", lease="1s"), store=redis_server.url)
        await limiter.open()
        async with limiter.slot("k") as slot:
            assert slot.is_held
            await limiter.aclose()
            await asyncio.sleep(0)
            assert not slot.is_held


async def test_what_is_given_back_too_late_is_left_alone() -> None:
    """Cleaning up after the limiter was closed is no error."""
    async with Limiter(Policy("p", "1/h")) as limiter:
        decision = await limiter.acquire()
    assert isinstance(decision, Decision)
    limiter.give_back(decision)


def test_a_limiter_belongs_to_its_loop(redis_server: RedisServer) -> None:
    """Another loop gets an error; once its own loop has ended, it can be closed and reopened."""
    # A loaded machine is no reason to decide alone.
    store = {"url": redis_server.url, "deadline": "20s"}
    limiter = Limiter(Policy("p", "5/h"), store=store)

    async def use() -> Decision:
        return await limiter.acquire()

    async def reopen() -> Decision:
        with pytest.raises(RuntimeError, match="open it again"):
            await limiter.acquire()
        await limiter.aclose()
        async with limiter:
            return await limiter.acquire()

    with asyncio.Runner() as first:
        first.run(limiter.open())
        assert first.run(use()).remaining == 4
        for wrong in (use, limiter.aclose):
            with pytest.raises(RuntimeError, match="in another event loop"):
                asyncio.run(wrong())
        first.run(limiter.aclose())
        first.run(limiter.open())
    assert asyncio.run(reopen()).remaining == 3


@pytest.mark.parametrize("cost", [0.5, float("nan"), "1", None])
async def test_a_cost_is_a_whole_number(cost: int) -> None:
    """Anything else is refused before it gets to where others are counted."""
    async with Limiter(Policy("p", "5/h")) as limiter:
        for asked in (limiter.acquire("k", cost), limiter.wait("k", cost)):
            with pytest.raises(TypeError, match="whole number"):
                await asked
        with pytest.raises(TypeError, match="whole number"):
            await limiter.acquire("k", cost, policy=["p"])
        assert (await limiter.peek("k")).remaining == 5
