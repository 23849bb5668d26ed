"""The store in memory: exact like any store, immediate, and bounded against floods of keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.limits import ALGORITHMS
from gateway.limits.decision import Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, ImmediateStore
from gateway.stores.memory.scope import NEW_KEYS_PER_SWEEP
from gateway.stores.memory.store import MemoryStore
from tests.stores.contract import StoreContract

SECOND_US = 1_000_000
FOREVER_US = 2**62
WITH_BURST = ("token_bucket", "paced_history")
BUCKET = Limit(2, SECOND_US, 2, scope="bucket")
QUEUE = Limit(3, SECOND_US, 2, max_wait_us=SECOND_US, scope="queue")
LOG = Limit(2, SECOND_US, 2, "sliding_window_log", scope="log")
COUNTER = Limit(2, SECOND_US, 2, "sliding_window_counter", scope="counter", count_refused=True)
WINDOW = Limit(2, SECOND_US, 2, "fixed_window", max_wait_us=SECOND_US, scope="window")
PACED = Limit(2, SECOND_US, 2, "paced_history", max_wait_us=SECOND_US, scope="paced")
IN_FLIGHT = Limit(2, SECOND_US, 2, "concurrency", scope="flight")
ALL = (BUCKET, QUEUE, LOG, COUNTER, WINDOW, PACED, IN_FLIGHT)


def ask(key: str, *limits: Limit, cost: int = 1) -> Ask:
    """A question about limits that all count the same key."""
    return Ask(limits or (BUCKET,), (key,) * (len(limits) or 1), cost, FOREVER_US)


class TestMemory(StoreContract):
    """What every store must do."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[MemoryStore]:
        """An empty store on the real clock."""
        store = MemoryStore()
        await store.start()
        yield store
        await store.aclose()


def test_it_decides_without_waiting() -> None:
    """The limiter may ask it in the middle of a request, without a turn of the loop."""
    assert isinstance(MemoryStore(), ImmediateStore)


@pytest.mark.parametrize("max_keys", [0, -1])
def test_room_for_nothing_is_refused(max_keys: int) -> None:
    """A store without room for any key would limit nothing."""
    with pytest.raises(ValueError, match="at least 1"):
        MemoryStore(max_keys)


@dataclass
class Reference:
    """The pure functions with all states for ever, as the contract says."""

    states: dict[tuple[str, str], Any] = field(default_factory=dict)

    def decide(self, question: Ask, now_us: int) -> Verdict:
        """All limits are spent or none; refusals put known states right."""
        places = [(lim.scope, key) for lim, key in zip(question.limits, question.keys, strict=True)]
        results = [
            ALGORITHMS[limit.algorithm].decide(
                self.states.get(place),
                now_us,
                question.cost,
                limit,
                min(limit.max_wait_us, question.max_wait_us),
            )
            for limit, place in zip(question.limits, places, strict=True)
        ]
        verdict = combine([decision for _, decision in results])
        for place, (state, decision) in zip(places, results, strict=True):
            spent = verdict.allowed and question.cost
            if spent or (not decision.allowed and place in self.states):
                self.states[place] = state
        return verdict

    def give_back(self, question: Ask, verdict: Verdict, now_us: int) -> None:
        """Undo, if it was allowed and the key is known."""
        for limit, key, decision in zip(
            question.limits, question.keys, verdict.decisions, strict=True
        ):
            if verdict.allowed and (limit.scope, key) in self.states:
                self.states[limit.scope, key] = ALGORITHMS[limit.algorithm].give_back(
                    self.states[limit.scope, key], now_us, question.cost, limit, decision.receipt
                )


NUMBERS = st.builds(lambda count, burst: (count, burst), st.integers(1, 5), st.integers(1, 5))
STEPS = st.lists(
    st.tuples(
        st.integers(-SECOND_US // 10, SECOND_US),  # time that passes
        st.sampled_from("abc"),
        st.sampled_from(
            [
                *(limit.scope for limit in ALL),
                "bucket log",
                "queue bucket log",
                "counter window",
                "paced flight",
                "flight counter paced bucket",
            ]
        ),
        NUMBERS,
        st.integers(0, 3),  # cost
        st.booleans(),  # give something back
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=150)
def test_it_is_the_pure_functions_with_a_memory(steps: list[Any]) -> None:
    """Every decision of every history is that of a naive reference that forgets nothing.

    Limits change their numbers, clocks go back, several limits are asked together, and what
    was taken is given back; forgetting what has expired is never noticed.
    """
    clock = ManualClock(10 * SECOND_US)
    store = MemoryStore(clock=clock, calendar_clock=clock)
    reference = Reference()
    taken: list[tuple[Ask, Verdict]] = []
    for passed_us, key, names, (count, burst), cost, gives_back in steps:
        clock.advance(us=passed_us)
        limits = tuple(
            replace(limit, count=count, burst=burst if limit.algorithm in WITH_BURST else count)
            for limit in ALL
            if limit.scope in names.split()
        )
        question = ask(key, *limits, cost=cost)
        verdict = store.decide_now(question)
        expected = reference.decide(question, clock())
        assert verdict._replace(decisions=list(verdict.decisions)) == expected
        if gives_back and taken:
            question, verdict = taken.pop()
            store.give_back_now(question, verdict)
            reference.give_back(question, verdict, clock())
        elif verdict.allowed:
            taken.append((question, verdict))


def test_a_changed_limit_keeps_its_counts() -> None:
    """Three of five are used: of four one is left, of two none."""
    store = MemoryStore(clock=ManualClock(SECOND_US))
    limit = replace(BUCKET, count=1, period_us=1000 * SECOND_US, burst=5)
    assert store.decide_now(ask("k", limit, cost=3)).allowed
    assert store.decide_now(ask("k", replace(limit, burst=4), cost=0)).decisions[0].remaining == 1
    assert not store.decide_now(ask("k", replace(limit, burst=2))).allowed
    assert len(store) == 1


def test_the_promise_of_a_refusal_holds_after_a_limit_was_lowered() -> None:
    """A request after `retry_after` passes, though its debt was more than the new burst."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(clock=clock)
    generous = replace(BUCKET, count=10, burst=100)
    strict = replace(BUCKET, count=10, burst=1)
    for limits in ((strict,), (strict, LOG)):
        assert store.decide_now(ask("k", generous, cost=100)).allowed
        refused = store.decide_now(ask("k", *limits))
        assert refused.retry_after_us <= SECOND_US // 10
        clock.advance(us=refused.retry_after_us)
        assert store.decide_now(ask("k", *limits)).allowed
        clock.advance(seconds=100)


def test_giving_back_a_refusal_gives_nothing() -> None:
    """Also where the clock has just begun to count."""
    store = MemoryStore(clock=ManualClock())
    assert store.decide_now(ask("k", cost=2)).allowed
    refused = store.decide_now(ask("k"))
    store.give_back_now(ask("k"), refused)
    assert not store.decide_now(ask("k")).allowed


@given(
    max_keys=st.integers(1, 200),
    flood=st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 3), st.integers(0, SECOND_US // 2)),
        max_size=400,
    ),
    repeats=st.integers(1, 4),
)
@settings(max_examples=60)
def test_a_flood_of_keys_fits_into_the_room(
    max_keys: int, flood: list[tuple[int, int, int]], repeats: int
) -> None:
    """Whatever keys come, in one scope or three at once: there are never more than agreed."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(max_keys, clock)
    for turn in range(repeats):
        for number, width, passed_us in flood:
            clock.advance(us=passed_us)
            store.decide_now(ask(f"{turn}:{number}", *(BUCKET, QUEUE, LOG)[:width]))
            assert len(store) <= max_keys
    assert f"{len(store)} of {max_keys} keys" in repr(store)


def test_what_has_expired_is_forgotten_without_being_asked_for() -> None:
    """A million clients that came once cost nothing an hour later."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(clock=clock)
    for number in range(20_000):
        store.decide_now(ask(f"once:{number}"))
        clock.advance(us=1000)
    assert len(store) < 2_000
    assert store.evicted == 0


def test_a_key_in_use_is_not_forgotten_between_two_requests() -> None:
    """A bucket that is full again each time it is asked for is no new key each time."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(clock=clock)
    quick = replace(BUCKET, count=1000, period_us=SECOND_US, scope="quick")
    for turn in range(20):
        clock.advance(us=100_000)
        store.decide_now(ask("in use", quick))
        for number in range(NEW_KEYS_PER_SWEEP):
            store.decide_now(ask(f"{turn}:{number}", quick))
        assert store.scope(quick).table.get("in use") is not None
    assert len(store) < 20 * NEW_KEYS_PER_SWEEP


def test_expired_keys_make_room_first() -> None:
    """While any key has expired, no live key is forgotten."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(50, clock)
    slow = replace(BUCKET, period_us=3600 * SECOND_US, scope="slow")
    for number in range(25):
        store.decide_now(ask(f"counted:{number}", slow))
        store.decide_now(ask(f"expired:{number}"))
    clock.advance(seconds=10)
    for number in range(20):
        store.decide_now(ask(f"new:{number}", slow))
    assert store.evicted == 0
    for number in range(25):
        look = store.decide_now(ask(f"counted:{number}", slow, cost=0))
        assert look.decisions[0].remaining == 1


def test_then_those_that_used_least_make_room() -> None:
    """A client that keeps coming keeps its place; one that came once loses it."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(100, clock)
    slow = replace(BUCKET, count=100, period_us=3600 * SECOND_US, burst=100)
    store.decide_now(ask("regular", slow, cost=10))
    for number in range(5_000):
        store.decide_now(ask(f"stranger:{number}", slow))
        if number % 40 == 0:
            store.decide_now(ask("regular", slow))
        clock.advance(us=1)
    assert store.evicted > 0
    assert store.decide_now(ask("regular", slow, cost=0)).decisions[0].remaining < 70
    assert store.scope(slow).table.get("regular") is not None
    assert store.scope(slow).table.get("stranger:0") is None


@pytest.mark.parametrize("limit", ALL, ids=lambda limit: limit.scope)
def test_a_flood_never_frees_a_key_that_is_being_refused(limit: Limit) -> None:
    """An attacker cannot wash his own counts away by inventing others."""
    slow = replace(limit, period_us=3600 * SECOND_US)
    clock = ManualClock(SECOND_US)
    store = MemoryStore(64, clock)
    while store.decide_now(ask("attacker", slow)).allowed:
        pass
    for number in range(10_000):
        store.decide_now(ask(f"mask:{number}", slow))
        clock.advance(us=10)
        if number % 100 == 0:
            assert not store.decide_now(Ask((slow,), ("attacker",), 1, 0)).allowed
    assert (store.evicted == 0) == (limit is IN_FLIGHT)


def test_when_all_are_being_refused_new_keys_are_counted_in_short() -> None:
    """Keys without a place are counted one by one all the same, and exactly."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(10, clock)
    for number in range(10):
        store.decide_now(ask(f"full:{number}", cost=2))
    for turn in range(3):
        passed = sum(store.decide_now(ask(f"stranger:{number}")).allowed for number in range(50))
        assert passed == (50 if turn < 2 else 0)
    assert not any(store.decide_now(ask(f"full:{number}")).allowed for number in range(10))
    assert len(store) == 10
    counted = store.memory["bucket"]
    assert (counted.keys, counted.evicted, counted.overflowed, counted.refused) == (10, 0, 100, 0)
    clock.advance(us=SECOND_US // 2)
    assert store.decide_now(ask("stranger:7")).allowed
    assert not store.decide_now(ask("stranger:7")).allowed


def test_refusals_and_looks_take_no_room() -> None:
    """A query of an unknown key, or a cost that never fits, leaves nothing behind."""
    store = MemoryStore(clock=ManualClock(SECOND_US))
    for number in range(1000):
        store.decide_now(ask(f"look:{number}", cost=0))
        store.decide_now(ask(f"never:{number}", cost=3))
        store.decide_now(ask(f"both:{number}", BUCKET, replace(LOG, count=1), cost=2))
    assert len(store) == 0


async def test_a_closed_store_has_forgotten_everything() -> None:
    """And what it counts afterwards, it counts from nothing."""
    store = MemoryStore(3, ManualClock(SECOND_US))
    for number in range(3):
        store.decide_now(ask(f"full:{number}", cost=2))
    await store.aclose()
    assert len(store) == 0
    assert all(store.decide_now(ask(f"full:{number}")).allowed for number in range(3))


def test_calendars_go_by_the_clock_on_the_wall() -> None:
    """A day begins at midnight, whatever the monotonic clock shows."""
    wall = ManualClock(1_800_000_000 * SECOND_US)
    store = MemoryStore(clock=ManualClock(), calendar_clock=wall)
    day = Limit(1, 86_400 * SECOND_US, 1, "fixed_window", calendar="day", zone="Asia/Kathmandu")
    for limits in ((day,), (day, BUCKET)):
        assert store.decide_now(ask("k", *limits)).allowed
        refused = store.decide_now(ask("k", *limits))
        wall.advance(us=refused.retry_after_us)
        assert (wall() // SECOND_US + 5 * 3600 + 45 * 60) % 86_400 == 0
        wall.advance(us=-1)
        assert not store.decide_now(ask("k", *limits)).allowed
        wall.advance(us=1)


def test_the_keys_of_one_request_do_not_push_each_other_out() -> None:
    """With room for three, a request with three limits keeps all of its counts."""
    store = MemoryStore(3, ManualClock(SECOND_US))
    limits = (LOG, QUEUE, BUCKET)
    assert store.decide_now(ask("old", BUCKET)).allowed
    for number in range(20):
        store.decide_now(ask(f"k:{number}", *limits))
        second = store.decide_now(ask(f"k:{number}", *limits))
        assert [decision.remaining for decision in second.decisions] == [0, 0, 0]
        assert len(store) <= 3
