"""The types of the library's face: `make lint` checks what is asserted here of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, assert_type

from gateway import Decision, Limiter, LimitExceeded, Policy
from gateway.library.slots import Slot


async def _face(limiter: Limiter, error: LimitExceeded) -> None:
    """What a program sees of it; never run."""
    decision = await limiter.acquire("alice", 2, policy=["a", "b"])
    assert_type(decision, Decision)
    assert_type(decision.allowed, bool)
    assert_type(decision.retry_after, float | None)
    assert_type(decision.remaining, int | None)
    assert_type(decision.headers, dict[str, str])
    assert_type(await limiter.wait(max_wait=1.5), Decision)
    assert_type(await limiter.peek("alice"), Decision)
    assert_type(limiter.give_back(decision), None)
    assert_type(error.decision, Decision)
    async with limiter.slot("alice") as slot:
        assert_type(slot, Slot)
    async with limiter as same:
        assert_type(same, Limiter)
    await limiter.acquire(1)  # type: ignore[arg-type]
    await limiter.acquire("alice", "2")  # type: ignore[arg-type]
    Policy("pay", "1/s", on_store_error="opne")  # type: ignore[arg-type]
    Policy("pay", "1/s", quque={})  # type: ignore[call-arg]
    Limiter("1/s")  # type: ignore[arg-type]


def test_a_function_keeps_its_type_under_the_decorator() -> None:
    """Arguments and result are checked as before; what is no coroutine function is refused."""
    limiter = Limiter(Policy("pay", "1/s"))

    @limiter.limit("pay", key=lambda user, amount: f"{user}{amount}")
    async def pay(user: str, amount: int) -> list[int]:
        return [len(user), amount]

    as_declared: Callable[[str, int], Coroutine[Any, Any, list[int]]] = pay
    assert as_declared is pay

    async def never_run() -> None:
        assert_type(await pay("alice", amount=2), list[int])
        await pay("alice")  # type: ignore[call-arg]
        await pay("alice", "2")  # type: ignore[arg-type]

    assert iscoroutinefunction(never_run)
    assert iscoroutinefunction(_face)
