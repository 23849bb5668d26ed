"""The short way to a decision says and does what the long way does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import Decision, Limiter, Policy
from gateway.base.clock import ManualClock
from gateway.observe.metrics import PolicyMetrics
from gateway.stores.memory.store import MemoryStore
from tests.virtual_time import run

START_US = 1_800_000_000_000_000
KEYS = ("\x00overflow", "%overflow", "alice", "a b", "%7Bx%7D", "\N{SNOWMAN}", "{x}", "", "k" * 200)
ALGORITHMS = (
    "token_bucket",
    "sliding_window_log",
    "sliding_window_counter",
    "fixed_window",
    "paced_history",
)


def said(decision: Decision) -> tuple[Any, ...]:
    """All that a decision tells."""
    return (
        bool(decision),
        decision.allowed,
        decision.retry_after,
        decision.policy,
        decision.limit,
        decision.remaining,
        decision.reset_after,
        decision.decided_alone,
        decision.headers,
        repr(decision),
    )


def counted(metrics: PolicyMetrics) -> list[int]:
    """What became of the requests of a policy."""
    return list(vars(metrics).values())


@pytest.mark.parametrize("per", ["ip", "all"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 700_000),
            st.sampled_from(KEYS),
            st.integers(0, 5),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_both_ways_agree(algorithm: Any, per: str, steps: list[tuple[int, str, int, bool]]) -> None:
    """For every order of requests, looks and undoings, whatever the key."""
    clock = ManualClock(START_US)
    policy = Policy("p", f"3/s per {per}", algorithm=algorithm, headers="both")

    async def told() -> None:
        async with (
            Limiter(policy, store=MemoryStore(4, clock, clock)) as short,
            Limiter(policy, store=MemoryStore(4, clock, clock)) as long,
        ):
            for passed_us, key, cost, is_undone in steps:
                clock.advance(us=passed_us)
                decisions = [
                    await short.acquire(key, cost),
                    # Several policies, if only one of them, are asked by the long way.
                    await long.acquire(key, cost, policy=["p"]),
                ]
                assert said(decisions[0]) == said(decisions[1])
                if is_undone:
                    short.give_back(decisions[0])
                    long.give_back(decisions[1])
            assert counted(short.metrics.policy("p")) == counted(long.metrics.policy("p"))

    run(told())


def test_both_ways_count_together() -> None:
    """A policy is the same whether it is named, is one of several, or is the only one."""

    async def told() -> None:
        async with Limiter(Policy("p", "4/h")) as limiter:
            for key in KEYS:
                left = [
                    (await limiter.acquire(key)).remaining,
                    (await limiter.acquire(key, policy="p")).remaining,
                    (await limiter.acquire(key, policy=["p"])).remaining,
                    (await limiter.wait(key)).remaining,
                ]
                assert left == [3, 2, 1, 0]
                assert not await limiter.acquire(key)

    run(told())


def test_nobody_is_asked_after_the_end() -> None:
    """A closed limiter raises an error, and one that is opened again works again."""

    async def told() -> None:
        limiter = Limiter(Policy("p", "1/h"))
        for _ in range(2):
            async with limiter:
                assert await limiter.acquire()
                assert not await limiter.acquire()
            with pytest.raises(RuntimeError, match="not open"):
                await limiter.acquire()
        async with limiter:
            with pytest.raises(ValueError, match="cannot cost -1"):
                await limiter.acquire(cost=-1)

    run(told())
