"""A key that lost its place has what it used held against it; nobody passes more for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.limits import ALGORITHMS
from gateway.limits.condensed import CONDENSED
from gateway.limits.decision import DEBIT
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.capacity import SEARCH_EVERY
from gateway.stores.memory.forgotten import SETS_PER_PAGE, WAYS, Forgotten
from gateway.stores.memory.scope import SHARED_KEYS
from gateway.stores.memory.store import MemoryStore

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
LEAST_ROOM = SETS_PER_PAGE * WAYS

LIMITS = {
    algorithm: Limit(
        *(5, 100 * SECOND_US, 5, algorithm),
        scope=f"{algorithm}/ip",
        max_wait_us=0 if algorithm == "concurrency" else 20 * SECOND_US,
    )
    for algorithm in ALGORITHMS
}
COUNTED = {
    f"{algorithm}, refused count": replace(
        LIMITS[algorithm], max_wait_us=0, count_refused=True, scope=f"{algorithm}/refused"
    )
    for algorithm in ("sliding_window_log", "sliding_window_counter", "fixed_window")
}
ALL = {**LIMITS, **COUNTED}

STEPS = st.lists(
    st.tuples(
        st.integers(0, 30 * SECOND_US),  # time that passes
        st.sampled_from("abc"),
        st.integers(1, 3),  # cost
        st.sampled_from((0, 0, 20 * SECOND_US)),  # how long it would wait
        st.sampled_from((0, 1, 40, 700)),  # other keys that come meanwhile
    ),
    max_size=14,
)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=12)
@given(max_keys=st.integers(1, 20), steps=STEPS, several=st.booleans())
def test_nobody_passes_more_for_having_been_forgotten(
    name: str, max_keys: int, steps: list[Any], several: bool
) -> None:
    """What passes of a key would have passed, no later, if nothing was ever forgotten.

    By every algorithm, and with other keys by the thousand, for which there is neither a place
    nor enough room to remember each of them in short.
    """
    limit = ALL[name]
    other = replace(limit, scope="other/ip", count=50, burst=50)
    limits = (limit, other) if several else (limit,)
    clock = ManualClock(1000 * SECOND_US)
    store = MemoryStore(max_keys, clock, clock)
    states: dict[str, Any] = {}
    algorithm = ALGORITHMS[limit.algorithm]
    flood = 0
    for passed_us, key, cost, max_wait_us, others in steps:
        clock.advance(us=passed_us)
        verdict = store.decide_now(Ask(limits, (key,) * len(limits), cost, max_wait_us))
        if verdict.allowed:
            wait_us = min(limit.max_wait_us, max_wait_us)
            states[key], alone = algorithm.decide(states.get(key), clock(), cost, limit, wait_us)
            assert alone.allowed
            assert alone.wait_us <= verdict.decisions[0].wait_us
        for number in range(flood, flood + others):
            store.decide_now(Ask((limit,), (f"other:{number}",), 1 + number % 5, 0))
        flood += others
        more = 2 * SHARED_KEYS + 1 if limit.algorithm == "concurrency" else 0
        assert len(store) <= max_keys + more


@pytest.mark.parametrize("name", CONDENSED)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 60 * SECOND_US), st.integers(1, 5), st.booleans()), max_size=12
    ),
    later_us=st.integers(0, 150 * SECOND_US),
    cost=st.integers(1, 5),
)
def test_what_is_condensed_is_never_less(
    name: str, steps: list[tuple[int, int, bool]], later_us: int, cost: int
) -> None:
    """A state that was condensed and restored refuses all that it refused before, as long."""
    limit, algorithm, condensing = LIMITS[name], ALGORITHMS[name], CONDENSED[name]
    now_us = 1000 * SECOND_US
    state = None
    for passed_us, taken, waits in steps:
        now_us += passed_us
        state = algorithm.spend(state, now_us, taken, limit, waits * limit.max_wait_us)[0]
    if state is None or algorithm.expires_us(state, limit) <= now_us:
        return
    condensed = condensing.condense(state, now_us, limit)
    assert condensing.expires_us(condensed, limit) >= algorithm.expires_us(state, limit)
    restored = condensing.restore(condensed, limit, 0)
    then_us = now_us + later_us
    retry_after_us = algorithm.spend(state, then_us, cost, limit, 0)[2]
    assert algorithm.spend(restored, then_us, cost, limit, 0)[2] >= retry_after_us


def test_keys_of_a_full_set_are_told_apart_as_long_as_they_used_most() -> None:
    """The smallest is dropped first; its usage is held against keys that are not known."""
    limit = replace(LIMITS["fixed_window"], count=100, burst=100, period_us=DAY_US)
    forgotten = Forgotten(1, CONDENSED["fixed_window"], lambda: limit)
    for number in range(8 * LEAST_ROOM):
        forgotten.put(f"light:{number}", (SECOND_US, 1), SECOND_US)
        if number % 100 == 0:
            forgotten.put(f"heavy:{number}", (SECOND_US, 90), SECOND_US)
    assert forgotten.room == LEAST_ROOM
    heavy = [forgotten.recall(f"heavy:{n}", SECOND_US) for n in range(0, 8 * LEAST_ROOM, 100)]
    assert all(one is not None and one.is_own and one.condensed[1] == 90 for one in heavy)
    new = [forgotten.recall(f"new:{number}", SECOND_US) for number in range(1000)]
    assert {one.condensed[1] for one in new if one is not None} == {1}
    assert not any(one.is_own for one in new if one is not None)


def test_what_matters_no_more_gives_its_memory_back() -> None:
    """A flood of yesterday costs nothing today."""
    limit = LIMITS["token_bucket"]
    forgotten = Forgotten(100_000, CONDENSED["token_bucket"], lambda: limit)
    for number in range(10_000):
        forgotten.put(f"k:{number}", (SECOND_US * 1000, 0), 0)
    assert 10_000 <= forgotten.room <= 100_000 + LEAST_ROOM
    for _ in range(10_000):
        forgotten.sweep(SECOND_US - 1)
    assert forgotten.room >= 10_000
    for _ in range(10_000):
        forgotten.sweep(SECOND_US)
    assert forgotten.room == 0
    assert forgotten.recall("k:1", SECOND_US) is None


def _day(name: str, count: int) -> Limit:
    return Limit(count, DAY_US, count, "fixed_window", scope=f"{name}/ip")


def test_a_flood_does_not_free_who_has_used_nearly_all() -> None:
    """Four of five are used; whatever other keys come, one more passes that day and no other."""
    clock = ManualClock(DAY_US)
    store = MemoryStore(1_000, clock, clock)
    limit = (_day("login", 5),)
    passed = others = 0
    for turn in range(6):
        passed += sum(store.decide_now(Ask(limit, ("k",), 1, 0)).allowed for _ in range(4))
        for number in range(2_400):
            is_allowed = store.decide_now(Ask(limit, (f"o:{number}",), 1, 0)).allowed
            assert not (is_allowed and turn == 5)
            others += is_allowed
            clock.advance(us=1)
    assert passed == 5
    # Nearly all of these can be told apart, so few of them suffer.
    assert others > 0.97 * 5 * 2_400


@pytest.mark.parametrize("count", [1, 5])
def test_a_flood_of_one_policy_takes_no_room_from_another(count: int) -> None:
    """Spent keys of one policy are more than there is room for; all users of another pass."""
    clock = ManualClock(DAY_US)
    store = MemoryStore(1_000, clock, clock)
    flooded = (_day("trial", count),)
    normal = (Limit(10, SECOND_US, 20, scope="api/ip"),)
    for number in range(3_000):
        for _ in range(count + 1):
            store.decide_now(Ask(flooded, (f"t:{number}",), 1, 0))
    for turn in range(20):
        for number in range(400):
            assert store.decide_now(Ask(normal, (f"u:{number}",), 1, 0)).allowed
        # The flood goes on meanwhile, and none of its keys is free again.
        for number in range(turn * 100, turn * 100 + 100):
            assert not store.decide_now(Ask(flooded, (f"t:{number}",), 1, 0)).allowed
    assert not any(store.decide_now(Ask(normal, (f"u:{n}",), 1, 0)).allowed for n in range(400))
    assert len(store) <= 1_000
    api = store.memory["api"]
    assert (api.keys, api.evicted, api.overflowed, api.refused) == (400, 0, 0, 0)


def test_each_limit_has_its_share_of_the_room() -> None:
    """Where two of them want more than all, each has half; a small one has all it wants."""
    clock = ManualClock(DAY_US)
    store = MemoryStore(900, clock, clock)
    limits = {name: (_day(name, 5),) for name in ("one", "two", "small")}
    for number in range(4_000):
        for name in ("one", "two", "two", "two"):
            store.decide_now(Ask(limits[name], (f"{name}:{number}",), 1, 0))
        store.decide_now(Ask(limits["small"], (f"{number % 100}",), 1, 0))
    keys = {name: counted.keys for name, counted in store.memory.items()}
    assert keys["small"] == 100
    assert 300 <= keys["one"] <= 500
    assert 300 <= keys["two"] <= 500


def test_work_for_a_new_key_of_a_full_store_is_bounded() -> None:
    """States looked at to make room are some ten for each new key, however many keys there are."""
    looks = []
    for max_keys in (2_000, 20_000):
        clock = ManualClock(DAY_US)
        store = MemoryStore(max_keys, clock, clock)
        limit = (_day("p", 5),)
        for number in range(max_keys):
            store.decide_now(Ask(limit, (f"k:{number}",), 1, 0))
        table = store.scope(limit[0]).table
        before = table.looked_at
        for number in range(2_000):
            store.decide_now(Ask(limit, (f"n:{number}",), 1, 0))
        looks.append((table.looked_at - before) / 2_000)
    assert max(looks) < 30


def test_leases_without_a_place_are_held_renewed_and_released() -> None:
    """A key that finds no place for its leases holds no more of them than one that does."""
    clock = ManualClock(SECOND_US)
    store = MemoryStore(1, clock)
    limits = (Limit(2, SECOND_US, 2, "concurrency", scope="flight/ip"),)
    assert store.decide_now(Ask(limits, ("first",), 1, 0)).allowed
    asks = [Ask(limits, ("second",), 1, 0)] * 3
    held = [store.decide_now(one) for one in asks]
    assert [verdict.allowed for verdict in held] == [True, True, False]
    clock.advance(us=SECOND_US // 2)
    assert store.renew_now(asks[0], held[0])
    clock.advance(us=SECOND_US // 2)
    # The other has expired meanwhile, as has that of the first key: there is room again, but not
    # for who holds something elsewhere.
    again = [store.decide_now(one) for one in asks]
    assert [verdict.allowed for verdict in again] == [True, False, False]
    store.give_back_now(asks[0], held[0])
    assert store.decide_now(asks[0]).allowed
    assert not store.renew_now(asks[1], held[1])
    assert store.memory["flight"].overflowed == 4


NUMBERS = st.tuples(
    st.integers(0, 30 * SECOND_US),  # time that passes
    st.sampled_from("abc"),
    st.integers(0, 7),  # cost
    st.booleans(),  # whether it was used already
    st.sampled_from((0, 1, 40, 300)),  # other keys that come meanwhile
    st.sampled_from((None, None, 2, 5, 20)),  # what the limit is changed to
)


@pytest.mark.parametrize("name", [name for name in CONDENSED if name != "paced_history"])
@settings(max_examples=25)
@given(max_keys=st.integers(1, 20), steps=st.lists(NUMBERS, max_size=14))
def test_debts_and_counts_outlast_a_flood_and_changes_of_a_limit(
    name: str, max_keys: int, steps: list[Any]
) -> None:
    """What is owed stays owed, and a limit that was lowered for a while has lost no counts.

    A paced history forgets what a lowered limit does not count, in every store.
    """
    limit = replace(LIMITS[name], debt=5, max_wait_us=0)
    algorithm = ALGORITHMS[name]
    clock = ManualClock(1000 * SECOND_US)
    store = MemoryStore(max_keys, clock, clock)
    states: dict[str, Any] = {}
    flood = 0
    for passed_us, key, cost, is_debit, others, count in steps:
        clock.advance(us=passed_us)
        if count is not None:
            period_us = limit.interval_ns // 1000 * count if name == "token_bucket" else None
            limit = replace(limit, count=count, burst=count, period_us=period_us or limit.period_us)
        wait_us = DEBIT if is_debit else 0
        verdict = store.decide_now(Ask((limit,), (key,), cost, wait_us))
        after, alone = algorithm.decide(states.get(key), clock(), cost, limit, wait_us)
        if verdict.allowed:
            assert alone.allowed
            assert alone.wait_us <= verdict.wait_us
        # What a refusal makes of a state is kept as well: a limit that was lowered bounds it then.
        if verdict.allowed or not alone.allowed:
            states[key] = after
        for number in range(flood, flood + others):
            store.decide_now(Ask((limit,), (f"other:{number}",), 1 + number % 5, 0))
        flood += others


def _without_a_place(limit: Limit) -> MemoryStore:
    """A store whose only place has a key that is refused and so keeps it."""
    clock = ManualClock(DAY_US)
    store = MemoryStore(1, clock, clock)
    store.decide_now(Ask((limit,), ("first",), limit.burst, 0))
    return store


@pytest.mark.parametrize("name", CONDENSED)
def test_what_is_owed_is_owed_without_a_place(name: str) -> None:
    """A query of a key above its limit is refused, with or without a place."""
    limit = replace(LIMITS[name], debt=5, max_wait_us=0)
    store = _without_a_place(limit)
    for _ in range(2):
        store.decide_now(Ask((limit,), ("k",), 4, DEBIT))
    assert len(store) == 1
    assert store.decide_now(Ask((limit,), ("k",), 0, DEBIT)).wait_us > 0


def test_a_debit_of_a_forgotten_key_is_counted_for_a_whole_period() -> None:
    """What is taken for newer than it was leaves room for a debit, which is owed for as long."""
    limit = Limit(5, DAY_US, 5, "sliding_window_log", debt=5, scope="p/ip")
    for others in range(2 * SEARCH_EVERY):
        clock = ManualClock(DAY_US)
        store = MemoryStore(1, clock, clock)
        store.decide_now(Ask((limit,), ("first",), limit.burst, 0))
        owed_us = []
        for hours, cost, wait_us in ((0, 4, 0), (12, 1, 0), (13, 7, DEBIT), (12, 0, DEBIT)):
            clock.advance(us=hours * 3600 * SECOND_US)
            # There is room now, which is looked for from time to time.
            for number in range(others if wait_us == DEBIT and cost else 0):
                store.decide_now(Ask((limit,), (f"other:{number}",), 1, 0))
            owed_us.append(store.decide_now(Ask((limit,), ("k",), cost, wait_us)).wait_us)
        # All but the debit has left the window.
        assert owed_us[-1] > 0


@pytest.mark.parametrize("name", ["sliding_window_log", "sliding_window_counter", "fixed_window"])
def test_a_limit_that_was_lowered_for_a_while_is_not_free_again(name: str) -> None:
    """Of 5 all are used; the limit is 2 for a moment, in which a request is refused."""
    limit = replace(LIMITS[name], max_wait_us=0)
    lowered = replace(limit, count=2, burst=2)
    store = _without_a_place(limit)
    taken = [store.decide_now(Ask((one,), ("k",), 1, 0)) for one in (*[limit] * 5, lowered, limit)]
    assert len(store) == 1
    assert [verdict.allowed for verdict in taken] == [True] * 5 + [False] * 2


def test_a_history_of_which_some_was_dropped_gives_no_more_back() -> None:
    """Giving back the newest of a history does not leave more than before it was forgotten."""
    limit = replace(LIMITS["paced_history"], max_wait_us=100 * SECOND_US)
    algorithm, condensing = ALGORITHMS["paced_history"], CONDENSED["paced_history"]
    now_us, state, turn_us = DAY_US, None, 0
    for _ in range(limit.burst + 2):
        state, turn_us, _ = algorithm.spend(state, now_us, 1, limit, limit.max_wait_us)
    receipt = now_us + turn_us
    restored = condensing.restore(condensing.condense(state, now_us, limit), limit, 0)
    lefts = [algorithm.give_back(one, now_us, 1, limit, receipt) for one in (state, restored)]
    exact, forgotten = (algorithm.spend(one, now_us, 1, limit, 0)[2] for one in lefts)
    assert forgotten >= exact > 0


def test_it_is_told_that_new_keys_have_less_left(caplog: pytest.LogCaptureFixture) -> None:
    """A key that is admitted with some usage of others is logged before one is refused."""
    clock = ManualClock(DAY_US)
    store = MemoryStore(1, clock, clock)
    limit = (_day("login", 100),)
    for number in range(5 * LEAST_ROOM):
        store.decide_now(Ask(limit, (f"o:{number}",), 1, 0))
    caplog.clear()
    clock.advance(us=60 * SECOND_US)
    decision = store.decide_now(Ask(limit, ("new",), 1, 0)).decisions[0]
    assert decision.allowed
    assert decision.remaining < 99
    clock.advance(us=60 * SECOND_US)
    store.decide_now(Ask(limit, ("newer",), 1, 0))
    assert "or will be sooner, because of other keys" in caplog.text
    assert store.memory["login"].refused == 0
