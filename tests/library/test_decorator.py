"""`Limiter.limit`: functions that are held to policies."""

from __future__ import annotations

import asyncio
from inspect import signature
from typing import Any

import pytest

from gateway import Limiter, LimitExceeded, Policy
from gateway.stores.memory.store import MemoryStore
from tests.virtual_time import clock, run


def test_calls_are_counted_by_their_arguments() -> None:
    """A call over the limit raises, and the function is not called."""

    async def told() -> None:
        limiter = Limiter(Policy("pay", "3/h"), store=MemoryStore(clock=clock()))
        paid: list[tuple[str, int]] = []

        def whose(user: str, **_: int) -> str:
            return user

        def how_much(user: str, *, amount: int) -> int:
            return amount * len(user) // 5

        @limiter.limit("pay", key=whose, cost=how_much)
        async def pay(user: str, *, amount: int) -> str:
            """Pay."""
            paid.append((user, amount))
            return f"{user} paid"

        assert (pay.__doc__, list(signature(pay).parameters)) == ("Pay.", ["user", "amount"])
        async with limiter:
            assert await pay("alice", amount=2) == "alice paid"
            with pytest.raises(LimitExceeded) as caught:
                await pay("alice", amount=2)
            assert caught.value.decision.policy == "pay"
            await pay("bobby", amount=2)
        assert paid == [("alice", 2), ("bobby", 2)]

    run(told())


def test_calls_without_a_key_are_counted_together_and_may_wait() -> None:
    """As methods too; `max_wait` makes them wait for their turn."""

    async def told() -> None:
        limiter = Limiter(Policy("api", "10/s burst 1"), store=MemoryStore(clock=clock()))

        class Client:
            @limiter.limit(max_wait=1)
            async def get(self, path: str) -> str:
                return path

        async with limiter:
            start = clock()()
            assert await asyncio.gather(*(Client().get("/") for _ in range(3))) == ["/"] * 3
            assert clock()() - start == pytest.approx(200_000, abs=5_000)

    run(told())


def test_slots_are_held_while_a_call_lasts() -> None:
    """A limit such as `2 at once` counts calls in flight; those that fail are over too."""

    async def told() -> None:
        limiter = Limiter(Policy("two", "2 at once"), store=MemoryStore(clock=clock()))
        in_flight: list[int] = []

        @limiter.limit(max_wait=None)
        async def work(number: int) -> None:
            in_flight.append(number)
            assert len(in_flight) <= 2
            await asyncio.sleep(0.1)
            in_flight.remove(number)
            if number % 2:
                raise KeyError(number)

        async with limiter:
            done = await asyncio.gather(*map(work, range(6)), return_exceptions=True)
            assert [type(each) for each in done] == [type(None), KeyError] * 3
            assert (await limiter.peek()).remaining == 2

    run(told())


def test_only_coroutine_functions_can_be_held() -> None:
    """And policies that exist: both are known when the function is defined."""
    limiter = Limiter(Policy("pay", "3/h"))

    def plain() -> Any: ...

    with pytest.raises(TypeError, match="not a coroutine function"):
        limiter.limit()(plain)
    with pytest.raises(ValueError, match="did you mean pay"):
        limiter.limit("pya")
