"""What is used wrongly says so at once, and how it is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import create_autospec

import pytest
from aiohttp import web

from gateway import Limiter, LimitExceeded, Policy
from gateway.integrations.aiohttp import setup


async def _call(limiter: Limiter) -> None:
    """A function to be limited."""


TEXT: Any = "10/s"
POLICY: Any = Policy("p", "1/s")


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda limiter: limiter.limit(_call), r"write @limiter\.limit\(\) above it"),
        (lambda _: Limiter(TEXT), r"'10/s' is not a policy; use for example Policy"),
        (lambda _: setup(web.Application(), POLICY, "p"), "is not a limiter"),
    ],
)
def test_what_is_of_the_wrong_kind(misuse: Callable[[Any], object], message: str) -> None:
    """The message names what was given, not what Python stumbled over."""
    with pytest.raises(TypeError, match=message):
        misuse(Limiter(Policy("p", "1/s")))


@pytest.mark.parametrize("key", [5, None, b"k"])
async def test_a_key_is_text(key: Any) -> None:
    """For any other type, the error names it."""
    async with Limiter(Policy("p", "1/s")) as limiter:
        for asked in (limiter.acquire(key), limiter.wait(key), limiter.acquire(key, policy=["p"])):
            with pytest.raises(TypeError, match="a key is text"):
                await asked


async def test_a_wait_is_a_number_of_seconds() -> None:
    """Not a duration as a configuration has it."""
    wrong: Any = "1s"
    async with Limiter(Policy("p", "1/s")) as limiter:
        with pytest.raises(TypeError, match="number of seconds, not '1s'"):
            await limiter.wait("k", max_wait=wrong)


async def test_a_decorators_key_may_be_text() -> None:
    """All calls of the function are counted for it."""
    async with Limiter(Policy("p", "1/h")) as limiter:
        limited = limiter.limit(key="alice")(_call)
        await limited(limiter)
        assert (await limiter.peek("alice")).remaining == 0
        assert (await limiter.peek("bob")).remaining == 1


@pytest.mark.parametrize("method", ["acquire", "peek", "wait"])
@pytest.mark.parametrize("store", ["memory://", "memory://?max_keys=10"])
@pytest.mark.parametrize("limits", [["1/h"], ["1/h", "5/h"]])
async def test_a_decision_that_was_not_awaited_is_never_true(
    method: str, store: str, limits: list[str]
) -> None:
    """`if limiter.acquire(key):` admits nothing, and spends nothing."""
    async with Limiter(Policy("p", *limits), store=store) as limiter:
        ask = getattr(limiter, method)
        with pytest.raises(TypeError, match="was not awaited"):
            assert not ask("k")
        with pytest.raises(TypeError, match="was not awaited"):
            bool(ask("k"))
        assert (await limiter.peek("k")).remaining == 1


async def test_a_decision_may_be_awaited_in_any_way() -> None:
    """As any coroutine of Python's own: by tasks, groups, `gather` and timeouts."""
    async with Limiter(Policy("p", "4/h", "100/h")) as limiter:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(limiter.acquire("k"))
        (second,) = await asyncio.gather(limiter.acquire("k"))
        third = await asyncio.wait_for(limiter.wait("k"), 30)
        async with asyncio.timeout(30):
            fourth = await limiter.acquire("k")
        assert [first.result(), second, third, fourth]
        assert [one.remaining for one in (first.result(), second, third, fourth)] == [3, 2, 1, 0]
        with pytest.raises(LimitExceeded):
            await asyncio.wait_for(limiter.wait("k", max_wait=0), 30)


async def test_a_decision_that_was_forgotten_is_warned_of() -> None:
    """As of any coroutine that was never awaited."""
    async with Limiter(Policy("p", "1/h")) as limiter:
        with pytest.warns(RuntimeWarning, match="never awaited"):
            limiter.acquire("k")  # type: ignore[unused-coroutine]


async def test_tasks_and_mocks_see_the_coroutines_that_they_are() -> None:
    """A task shows where it waits, and a mock of a limiter is awaited like the limiter."""
    async with Limiter(Policy("p", "1/h"), Policy("other", "1/h")) as limiter:
        await limiter.acquire("k", policy="p")
        task = asyncio.create_task(limiter.wait("k", policy="p"))
        # A task is shown before its first step, too, which must not cost it its coroutine.
        assert "wait()" in repr(task)
        await asyncio.sleep(0)
        assert "wait() running at" in repr(task)
        assert task.get_stack()
        task.cancel()
    mock = create_autospec(Limiter, instance=True)
    for method in (mock.acquire, mock.peek, mock.wait):
        assert asyncio.iscoroutinefunction(method)
        await method("k")
