"""Smockron's rule, word for word, against a history that forgets nothing."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.paced_history import State, give_back, interval_us, window_us
from gateway.limits.rate import Limit
from tests.limits.schedules import START_US, limits

decide = ALGORITHMS["paced_history"].decide

NAME = "paced_history"
SECOND_US = 1_000_000


def rule(history: list[int], now_us: int, limit: Limit) -> int:
    """When the next request of cost 1 is allowed, in the words of Smockron's document.

    If the number of requests in the past burst / rate is less than burst, at once; otherwise at
    the greater of the present and the last time of the history, plus 1 / rate.
    """
    past = Fraction(limit.burst * limit.period_us, limit.count)
    if sum(now_us - time <= past for time in history) < limit.burst:
        return now_us
    return max(now_us, *history) - (-limit.period_us // limit.count)


@given(st.data())
def test_the_rule_word_for_word(data: st.DataObject) -> None:
    """Each request passes or waits as the rule says for the complete history."""
    limit = data.draw(limits(NAME))
    state: State | None = None
    now_us = START_US
    history: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        wait_us = rule(history, now_us, limit) - now_us
        state, decision = decide(state, now_us, 1, limit, limit.max_wait_us)
        assert decision.allowed == (wait_us <= limit.max_wait_us)
        assert len(state) <= limit.burst + 1
        if decision.allowed:
            assert decision.wait_us == wait_us
            history.append(now_us + wait_us)


@given(st.data())
def test_delayed_turns_are_distinct(data: st.DataObject) -> None:
    """Waiting requests pass one by one, at least 1 / rate apart, in order."""
    limit = data.draw(limits(NAME))
    state: State | None = None
    now_us = START_US
    turns: list[int] = []
    for _ in range(data.draw(st.integers(2, 30))):
        now_us += data.draw(st.integers(0, limit.period_us // 2 + 1))
        cost = data.draw(st.integers(1, limit.burst))
        state, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        if decision.wait_us:
            turns.append(decision.receipt)
    assert all(later - earlier >= interval_us(limit) for earlier, later in pairwise(turns))


@given(st.data())
def test_undoing_never_lets_more_through_than_the_rule(data: st.DataObject) -> None:
    """Whatever is given back in whatever order, the rest could have gone without the undone."""
    limit = data.draw(limits(NAME))
    state: State | None = None
    now_us = START_US
    kept: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us))
        if data.draw(st.booleans()) and kept:
            turn_us, cost = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            state = give_back(state, now_us, cost, limit, turn_us)
            continue
        cost = data.draw(st.integers(1, limit.burst))
        after, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        if not decision.allowed:
            continue
        state = after
        history = [turn for turn, amount in kept for _ in range(amount)]
        used = sum(now_us - turn <= window_us(limit) for turn in history)
        lacking = min(used, limit.burst) + cost - limit.burst
        if lacking > 0:
            assert decision.receipt >= max(now_us, *history) + lacking * interval_us(limit)
        kept.append((decision.receipt, cost))


def test_the_example_of_the_document() -> None:
    """One a second, burst ten: ten at once, the eleventh a second later, each second one more."""
    limit = Limit(1, SECOND_US, 10, NAME, max_wait_us=5 * SECOND_US)
    state: State | None = None
    waits = []
    for _ in range(15):
        state, decision = decide(state, START_US, 1, limit, limit.max_wait_us)
        waits.append(decision.wait_us // SECOND_US)
    assert waits == [0] * 10 + [1, 2, 3, 4, 5]
    state, refused = decide(state, START_US, 1, limit, limit.max_wait_us)
    assert (refused.allowed, refused.retry_after_us) == (False, SECOND_US)


def test_a_spent_burst_does_not_come_back_a_little_at_a_time() -> None:
    """Half a window after a full burst one request must wait; a token bucket would let five go."""
    limit = Limit(1, SECOND_US, 10, NAME, max_wait_us=5 * SECOND_US)
    state, _ = decide(None, START_US, 10, limit, 0)
    later_us = START_US + 5 * SECOND_US
    assert decide(state, later_us, 1, limit, limit.max_wait_us)[1].wait_us == SECOND_US
    assert not decide(state, later_us, 1, limit, 0)[1].allowed


def test_one_exactly_a_window_old_still_counts() -> None:
    """At burst / rate to the microsecond it counts, one later no more; two at once are two."""
    limit = Limit(1, SECOND_US, 2, NAME)
    state, _ = decide(None, START_US, 1, limit, 0)
    state, both = decide(state, START_US, 1, limit, 0)
    assert (both.allowed, both.remaining) == (True, 0)
    assert not decide(state, START_US + 2 * SECOND_US, 1, limit, 0)[1].allowed
    assert decide(state, START_US + 2 * SECOND_US + 1, 2, limit, 0)[1].allowed


def test_a_turn_given_back_leaves_the_burst_spent() -> None:
    """The turn is free again, but what was dropped from the history for it still counts."""
    limit = Limit(1, SECOND_US, 1, NAME, max_wait_us=9 * SECOND_US)
    state: State | None = decide(None, START_US, 1, limit, 0)[0]
    for _ in range(3):
        taken, waiting = decide(state, START_US, 1, limit, limit.max_wait_us)
        assert waiting.wait_us == SECOND_US
        state = give_back(taken, START_US, 1, limit, waiting.receipt)
        assert not decide(state, START_US, 1, limit, 0)[1].allowed
    assert decide(state, START_US + SECOND_US + 1, 1, limit, 0)[1].allowed


def test_a_burst_given_back_is_whole_though_the_clock_has_just_begun() -> None:
    """A clock that is younger than the window has nothing in its past that could count."""
    limit = Limit(5, 1000 * SECOND_US, 5, NAME)
    state, decision = decide(None, SECOND_US, 5, limit, 0)
    unspent = give_back(state, SECOND_US, 5, limit, decision.receipt)
    assert decide(unspent, SECOND_US, 0, limit, 0)[1].remaining == 5
