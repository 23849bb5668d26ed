"""The limiter as a library: asking, waiting, looking, giving back, opening and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from gateway import Decision, Limiter, LimitExceeded, Policy
from gateway.base.errors import StoreUnavailable
from gateway.observe.metrics.exposition import render
from gateway.stores.memory.store import MemoryStore
from gateway.stores.scripted import Fail, ScriptedDelay, ScriptedStore
from tests.virtual_time import clock, run

DOWN = Fail(StoreUnavailable("refused"))
QUEUE: Mapping[str, int | str] = {"max": 3, "max_wait": "10s"}

ProxyReport = Callable[[Limiter], Coroutine[Any, Any, None]]


def tell(story: ProxyReport, *policies: Policy) -> None:
    """Run with a limiter on virtual time, which leaves nothing behind."""

    async def told() -> None:
        async with Limiter(*policies, store=MemoryStore(clock=clock())) as limiter:
            await story(limiter)
        assert not limiter.is_open

    run(told())


def seconds() -> float:
    """The present of the virtual loop."""
    return asyncio.get_running_loop().time()


def test_a_decision_is_a_value() -> None:
    """A refusal is not an error; the decision has the remainder and when to retry."""

    async def story(limiter: Limiter) -> None:
        first = await limiter.acquire("alice")
        assert first
        assert (first.allowed, first.limit, first.remaining) == (True, 2, 1)
        assert (first.retry_after, first.policy, first.reset_after) == (0, "pay", 0.1)
        assert await limiter.acquire("alice")
        refused = await limiter.acquire("alice")
        assert not refused
        assert (refused.allowed, refused.remaining, refused.policy) == (False, 0, "pay")
        assert refused.retry_after == pytest.approx(0.1, abs=1e-5)
        assert not refused.decided_alone
        assert await limiter.acquire("bob")

    tell(story, Policy("pay", "10/s burst 2"))


def test_what_costs_too_much_is_never_allowed() -> None:
    """The decision says so, instead of a retry time; waiting for it is refused immediately."""

    async def story(limiter: Limiter) -> None:
        refused = await limiter.acquire("alice", 3)
        assert (refused.allowed, refused.retry_after) == (False, None)
        assert "Retry-After" not in refused.headers
        assert "for ever" in repr(refused)
        with pytest.raises(LimitExceeded, match="never"):
            await limiter.wait("alice", 3)
        assert (await limiter.acquire("alice", 2)).remaining == 0

    tell(story, Policy("pay", "10/s burst 2"))


def test_looking_takes_nothing() -> None:
    """`peek` returns how many could pass, and counts nothing."""

    async def story(limiter: Limiter) -> None:
        for _ in range(3):
            assert (await limiter.peek("alice")).remaining == 2
        await limiter.acquire("alice", 2)
        assert (await limiter.peek("alice")).remaining == 0
        assert limiter.metrics.policies["pay"].passed == 1

    tell(story, Policy("pay", "10/s burst 2"))


def test_what_is_given_back_can_be_taken_again() -> None:
    """Once only, and a refusal has nothing to give."""

    async def story(limiter: Limiter) -> None:
        decision = await limiter.acquire("alice", 2)
        refused = await limiter.acquire("alice")
        limiter.give_back(refused)
        assert not await limiter.acquire("alice")
        limiter.give_back(decision)
        assert (await limiter.acquire("alice", 2)).allowed
        limiter.give_back(decision)
        assert not await limiter.acquire("alice")

    tell(story, Policy("log", "2/h", algorithm="sliding_window_log"))


def test_several_policies_are_spent_together_or_not_at_all() -> None:
    """The tightest one is reported; one that refuses leaves the others unspent."""

    async def story(limiter: Limiter) -> None:
        both = ["each", "site"]
        assert (await limiter.acquire("alice", policy=both)).policy == "site"
        assert (await limiter.acquire("alice", policy=both)).remaining == 0
        refused = await limiter.acquire("alice", policy=both)
        assert (refused.allowed, refused.policy) == (False, "site")
        assert (await limiter.peek("alice", policy="each")).remaining == 3
        assert not await limiter.acquire("bob", policy="site")

    tell(story, Policy("each", "5/h"), Policy("site", "2/h per all"))


def test_a_policy_must_be_named_where_there_are_several() -> None:
    """A wrong name is answered with the right one, before anything is counted."""

    async def story(limiter: Limiter) -> None:
        with pytest.raises(ValueError, match="name the policy, one of pay, login"):
            await limiter.acquire("alice")
        with pytest.raises(ValueError, match="did you mean login"):
            await limiter.acquire("alice", policy="logn")
        with pytest.raises(ValueError, match="no policy is named"):
            await limiter.acquire("alice", policy=[])
        with pytest.raises(ValueError, match="named twice"):
            await limiter.acquire("alice", policy=("pay", "pay"))
        with pytest.raises(ValueError, match="cannot cost -1"):
            await limiter.acquire("alice", -1, policy="pay")

    tell(story, Policy("pay", "1/s"), Policy("login", "1/s"))


@given(st.text(max_size=200), st.text(max_size=200))
def test_different_keys_are_counted_apart(first: str, second: str) -> None:
    """Whatever text they are, lone surrogates and very long ones included."""

    async def story(limiter: Limiter) -> None:
        assert await limiter.acquire(first)
        assert bool(await limiter.acquire(second)) == (first != second)

    tell(story, Policy("once", "1/d"))


def test_waiting_without_a_queue_is_in_order_of_asking() -> None:
    """Each passes as soon as the limit allows it, and none overtakes another."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire("alice")
        start, came = seconds(), []

        async def one(number: int) -> None:
            await asyncio.sleep(number / 1000)
            await limiter.wait("alice")
            came.append((number, round(seconds() - start, 1)))

        await asyncio.gather(*(one(number) for number in (2, 0, 1)))
        assert came == [(0, 0.1), (1, 0.2), (2, 0.3)]

    tell(story, Policy("pay", "10/s burst 1"))


def test_waiting_with_a_queue_takes_turns_of_the_store() -> None:
    """Turns are reserved at once, for as many as the queue holds; the rest is refused."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire("alice")
        start = seconds()
        asked = [limiter.wait("alice") for _ in range(4)]
        *turns, late = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(turn, Decision) for turn in turns)
        assert seconds() - start == pytest.approx(0.3, abs=0.01)
        assert isinstance(late, LimitExceeded)
        counters = limiter.metrics.policies["pay"]
        assert (counters.passed, counters.delayed, counters.refused) == (1, 3, 1)
        assert counters.waiting == 0

    tell(story, Policy("pay", "10/s burst 1", queue=QUEUE))


@pytest.mark.parametrize("options", [{}, {"queue": QUEUE}], ids=["line", "queue"])
def test_who_cannot_have_a_turn_in_time_is_told_at_once(options: Any) -> None:
    """Nothing is taken, no time passes, and the error holds the decision."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire("alice")
        start = seconds()
        with pytest.raises(LimitExceeded, match="'pay' is exceeded; retry after") as caught:
            await limiter.wait("alice", max_wait=0.05)
        assert seconds() == start
        assert caught.value.decision.retry_after is not None
        await limiter.wait("alice", max_wait=0.2)
        assert seconds() - start == pytest.approx(0.1, abs=0.01)

    tell(story, Policy("pay", "10/s burst 1", **options))


def test_who_never_comes_to_the_front_is_refused_when_his_time_is_over() -> None:
    """Not before, and the others in the line proceed."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire("alice")
        start = seconds()
        first = asyncio.create_task(limiter.wait("alice"))
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded):
            await limiter.wait("alice", max_wait=0.05)
        assert seconds() - start == pytest.approx(0.05, abs=0.01)
        assert await first
        assert await limiter.wait("alice")

    tell(story, Policy("pay", "10/s burst 1"))


@pytest.mark.parametrize("options", [{}, {"queue": QUEUE}], ids=["line", "queue"])
def test_who_is_cancelled_while_waiting_gives_his_turn_to_the_next(options: Any) -> None:
    """The one behind him comes as soon as he would have."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire("alice")
        start = seconds()
        gone = asyncio.create_task(limiter.wait("alice"))
        stays = asyncio.create_task(limiter.wait("alice"))
        await asyncio.sleep(0.01)
        gone.cancel()
        await stays
        assert gone.cancelled()
        assert seconds() - start == pytest.approx(0.1, abs=0.01)

    tell(story, Policy("pay", "10/s burst 1", **options))


def test_policies_with_and_without_a_queue_are_waited_for_together() -> None:
    """The one without is asked again, the one with gives turns: all are held to."""

    async def story(limiter: Limiter) -> None:
        both = ("turns", "plain")
        start = seconds()
        for _ in range(3):
            await limiter.wait("alice", policy=both)
        assert seconds() - start == pytest.approx(0.4, abs=0.01)

    tell(story, Policy("turns", "10/s burst 1", queue=QUEUE), Policy("plain", "5/s burst 1"))


def test_a_store_that_is_away_is_never_an_error() -> None:
    """The policy decides: alone, admit, or refuse; and the decision shows it."""

    async def told() -> None:
        store = ScriptedStore(clock())
        policies = [
            Policy(name, "1/h", on_store_error=name) for name in ("local", "open", "closed")
        ]
        async with Limiter(*policies, store=store) as limiter:
            store.then(*[DOWN] * 3)
            alone = await limiter.acquire(policy="local")
            assert (alone.allowed, alone.decided_alone, alone.remaining) == (True, True, 0)
            opened = await limiter.acquire(policy="open")
            assert (opened.allowed, opened.decided_alone, opened.limit) == (True, True, None)
            assert (opened.policy, opened.headers) == ("", {})
            shut = await limiter.acquire(policy="closed")
            assert (shut.allowed, shut.policy) == (False, "closed")
            assert shut.headers == {"Retry-After": "1"}
            with pytest.raises(LimitExceeded, match="while its store is unavailable"):
                await limiter.wait(policy="closed")
            counters = limiter.metrics.policies
            assert counters["local"].store_error_passed == 1
            assert counters["closed"].store_error_refused == 2

    run(told())


def test_who_is_cancelled_as_the_answer_comes_gives_it_back() -> None:
    """An answer without a recipient is not lost, in any order of events."""

    async def told() -> None:
        store = ScriptedStore(clock())
        async with Limiter(Policy("pay", "5/h", queue=QUEUE), store=store) as limiter:
            store.then(ScriptedDelay(0.01))
            gone = asyncio.create_task(limiter.acquire())
            await asyncio.sleep(0.01)
            while not store.given_back and not gone.done():
                gone.cancel()
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)
            assert (await limiter.peek()).remaining == (4 if not gone.cancelled() else 5)

    run(told())


def test_it_must_be_open() -> None:
    """Asking before or after, or opening twice, is a mistake of the program."""

    async def told() -> None:
        limiter = Limiter(Policy("pay", "1/s"), store=MemoryStore(clock=clock()))
        with pytest.raises(RuntimeError, match="not open"):
            await limiter.acquire()
        async with limiter:
            assert "open" in repr(limiter)
            with pytest.raises(RuntimeError, match="open already"):
                await limiter.open()
        await limiter.aclose()
        with pytest.raises(RuntimeError, match="not open"):
            await limiter.acquire()
        async with limiter:
            assert await limiter.acquire()

    run(told())


def test_closing_ends_the_line() -> None:
    """A caller that waits for a turn gets an error."""

    async def story(limiter: Limiter) -> None:
        await limiter.acquire()
        waiting = asyncio.create_task(limiter.wait())
        await asyncio.sleep(0.01)
        await limiter.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await waiting

    tell(story, Policy("pay", "1/h"))


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_tasks_of_either_loop_share_it(factory: Any) -> None:
    """Exactly the limit passes, and no task is left behind."""

    async def told() -> None:
        async with Limiter(Policy("pay", "100/d")) as limiter:
            decisions = await asyncio.gather(*(limiter.acquire("k") for _ in range(300)))
            assert sum(decision.allowed for decision in decisions) == 100
            assert b'policy="pay"' in render(limiter.metrics)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(told())
