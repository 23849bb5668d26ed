"""The law of the sliding window counter, against every turn that was ever given."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.rate import Limit
from gateway.limits.sliding_counter import State, give_back
from tests.limits.schedules import START_US, limits

decide = ALGORITHMS["sliding_window_counter"].decide

NAME = "sliding_window_counter"


def estimate(counted: Counter[int], moment_us: int, period_us: int) -> Fraction:
    """What the law says was used in the period before a moment, from the counts of windows."""
    number, elapsed = divmod(moment_us, period_us)
    weight = Fraction(period_us - elapsed, period_us)
    return counted[number - 1] * weight + counted[number]


@given(st.data())
def test_exactly_what_the_law_allows_passes(data: st.DataObject) -> None:
    """Without waiting, a request passes if and only if the estimate has room for its cost."""
    limit = data.draw(limits(NAME, queue=False, refused=False))
    state: State | None = None
    now_us = START_US
    counted: Counter[int] = Counter()
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        cost = data.draw(st.integers(1, limit.count))
        used = estimate(counted, now_us, limit.period_us)
        state, decision = decide(state, now_us, cost, limit, 0)
        assert decision.allowed == (used + cost <= limit.count)
        left = limit.count - used - (cost if decision.allowed else 0)
        assert decision.remaining == left // 1
        if decision.allowed:
            counted[now_us // limit.period_us] += cost


@given(st.data())
def test_turns_are_the_first_moments_in_order(data: st.DataObject) -> None:
    """A waiting request passes as soon as the rule allows, not before earlier ones."""
    limit = data.draw(limits(NAME, refused=False))
    state: State | None = None
    now_us = latest_us = START_US
    counted: Counter[int] = Counter()
    turns: list[int] = []
    for _ in range(data.draw(st.integers(1, 20))):
        now_us += data.draw(st.integers(0, limit.period_us // 2 + 1))
        cost = data.draw(st.integers(1, limit.count))
        first_us = max(now_us, latest_us)
        while estimate(counted, first_us, limit.period_us) + cost > limit.count:
            first_us += 1
        state, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        assert decision.allowed == (first_us - now_us <= limit.max_wait_us)
        if decision.allowed:
            assert decision.wait_us == first_us - now_us
            latest_us = first_us
            counted[first_us // limit.period_us] += cost
            turns.append(first_us)
    assert all(earlier <= later for earlier, later in pairwise(turns))


@given(st.data())
def test_undoing_never_lets_more_through_than_the_law(data: st.DataObject) -> None:
    """Whatever is given back in whatever order, the rest is within the law at each turn."""
    limit = data.draw(limits(NAME, refused=False))
    state: State | None = None
    now_us = START_US
    passed: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us))
        if data.draw(st.booleans()) and passed:
            turn_us, cost = passed.pop(data.draw(st.integers(0, len(passed) - 1)))
            state = give_back(state, now_us, cost, limit, turn_us)
            continue
        cost = data.draw(st.integers(1, limit.count))
        after, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        if decision.allowed:
            state = after
            passed.append((decision.receipt, cost))
    for index, (turn_us, _) in enumerate(passed):
        counted: Counter[int] = Counter()
        for earlier_us, cost in passed[: index + 1]:
            counted[earlier_us // limit.period_us] += cost
        assert estimate(counted, turn_us, limit.period_us) <= limit.count


@given(st.data())
def test_at_most_twice_the_limit_in_any_window(data: st.DataObject) -> None:
    """However requests are placed, no period of time holds more than double the count."""
    limit = data.draw(limits(NAME, refused=False))
    state: State | None = None
    now_us = START_US
    turns: list[int] = []
    for _ in range(40):
        now_us += data.draw(st.integers(0, 3))
        after, decision = decide(state, now_us, 1, limit, limit.max_wait_us)
        if decision.allowed:
            state = after
            turns.append(decision.receipt)
    for end_us in turns:
        within = sum(end_us - limit.period_us < turn <= end_us for turn in turns)
        assert within <= 2 * limit.count


@given(st.data())
def test_who_does_not_stop_asking_stays_refused(data: st.DataObject) -> None:
    """With count_refused a full key that is asked for all again each period gets nothing."""
    limit = data.draw(limits(NAME, refused=True))
    state, decision = decide(None, START_US, limit.count, limit, 0)
    assert decision.allowed
    now_us = START_US
    for _ in range(20):
        now_us += data.draw(st.integers(0, limit.period_us))
        state, decision = decide(state, now_us, limit.count, limit, 0)
        assert not decision.allowed
        assert max(state[1:]) <= limit.count


@pytest.mark.parametrize("step_us", [100_000, 50_000, 7_001])
def test_even_use_loses_less_than_one_request(step_us: int) -> None:
    """Of a client that sends evenly, at the limit or above it, 9 to 10 pass in each period."""
    limit = Limit(10, 1_000_000, 10, NAME)
    begin_us = START_US - START_US % limit.period_us
    state: State | None = None
    counted: Counter[int] = Counter()
    for now_us in range(begin_us, begin_us + 50 * limit.period_us, step_us):
        state, decision = decide(state, now_us, 1, limit, 0)
        counted[now_us // limit.period_us] += decision.allowed
    assert set(counted.values()) <= {9, 10}


def test_the_largest_limits_are_exact() -> None:
    """The decision at a billion a year is that of fractions, to the microsecond."""
    period_us = 366 * 86_400_000_000
    limit = Limit(10**9, period_us, 10**9, NAME)
    begin_us = START_US - START_US % period_us
    state, _ = decide(None, begin_us, 10**9 - 7, limit, 0)
    then_us = begin_us + period_us + 123_456_789_012
    used = estimate(Counter({begin_us // period_us: 10**9 - 7}), then_us, period_us)
    look = decide(state, then_us, 0, limit, 0)[1]
    assert look.remaining == (10**9 - used) // 1
    assert all(number < 2**52 for number in state)
    refused = decide(state, then_us, look.remaining + 1, limit, 0)[1]
    first_us = then_us + refused.retry_after_us
    used = estimate(Counter({begin_us // period_us: 10**9 - 7}), first_us, period_us)
    assert used + look.remaining + 1 <= 10**9
