"""The laws of the token bucket, whatever is asked in whatever order."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.token_bucket import expires_us, give_back

decide = ALGORITHMS["token_bucket"].decide

START_US = 1_800_000_000_000_000
SECOND_US = 1_000_000

RATES = ((7, SECOND_US), (3, 300 * SECOND_US), (10**7, SECOND_US), (1, 1), (10, SECOND_US))


@st.composite
def limits(draw: st.DrawFn, *, queue: bool = True) -> Limit:
    """Limits with odd and even rates, small bursts, and sometimes a queue."""
    count, period_us = draw(st.sampled_from(RATES))
    burst = draw(st.integers(1, 12))
    plain = Limit(count, period_us, burst)
    most = 8 * plain.interval_ns // NS_PER_US
    return Limit(count, period_us, burst, max_wait_us=draw(st.integers(0, most)) if queue else 0)


def steps_us(limit: Limit) -> st.SearchStrategy[int]:
    """Pauses that matter to a limit: none, odd parts, whole intervals and the whole burst."""
    interval_us = limit.interval_ns // NS_PER_US
    return st.one_of(
        st.just(0),
        st.integers(0, 2 * interval_us + 2),
        st.integers(0, 4).map(lambda count: count * interval_us),
        st.just(limit.tolerance_ns // NS_PER_US + 1),
    )


class Passed(NamedTuple):
    """A request that was let through."""

    turn_ns: int
    cost: int
    decision: Decision


def assert_lawful(passed: list[Passed], limit: Limit) -> None:
    """No window, closed at both ends, holds more than burst and rate allow."""
    in_order = sorted(passed)
    for first in range(len(in_order)):
        cost = 0
        for request in in_order[first:]:
            cost += request.cost
            window_ns = request.turn_ns - in_order[first].turn_ns
            assert cost * limit.interval_ns <= limit.tolerance_ns + window_ns


@given(st.data())
def test_never_more_than_the_law_allows(data: st.DataObject) -> None:
    """Waiting, costs and undoing in any order let no window hold more than the limit."""
    limit = data.draw(limits())
    state: int | None = None
    now_us = START_US
    passed: list[Passed] = []
    for _ in range(data.draw(st.integers(1, 25))):
        now_us += data.draw(steps_us(limit))
        is_undoing = data.draw(st.booleans(), label="give back")
        if passed and is_undoing:
            undone = passed.pop(data.draw(st.integers(0, len(passed) - 1)))
            state = give_back(state, now_us, undone.cost, limit, undone.decision.receipt)
            continue
        cost = data.draw(st.integers(1, limit.burst))
        wait_us = data.draw(st.sampled_from((0, limit.max_wait_us)))
        new, decision = decide(state, now_us, cost, limit, wait_us)
        if decision.allowed:
            state = new
            assert 0 <= decision.wait_us <= wait_us
            turn_ns = decision.receipt
            assert decision.wait_us == -(-(turn_ns - now_us * NS_PER_US) // NS_PER_US)
            passed.append(Passed(turn_ns, cost, decision))
    assert_lawful(passed, limit)


@given(st.data())
def test_never_refused_what_the_law_allows(data: st.DataObject) -> None:
    """Without waiting, a request passes exactly if every window that ends with it has room."""
    limit = data.draw(limits(queue=False))
    state: int | None = None
    now_us = START_US
    passed: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        now_us += data.draw(steps_us(limit))
        cost = data.draw(st.integers(1, limit.burst))
        now_ns = now_us * NS_PER_US
        sums = [
            (cost + sum(other for _, other in passed[first:]), now_ns - passed[first][0])
            for first in range(len(passed))
        ]
        fits = all(
            total * limit.interval_ns <= limit.tolerance_ns + window for total, window in sums
        )
        new, decision = decide(state, now_us, cost, limit, 0)
        assert decision.allowed == fits
        if decision.allowed:
            state = new
            passed.append((now_ns, cost))


@given(st.data())
def test_retry_after_is_kept_to_the_microsecond(data: st.DataObject) -> None:
    """Refused at every earlier moment, admitted at that one; from any state whatever."""
    limit = data.draw(limits())
    most = 3 * (limit.tolerance_ns + limit.max_wait_us * NS_PER_US) + 1
    ahead_ns = data.draw(st.integers(-limit.tolerance_ns, most))
    cost = data.draw(st.integers(1, limit.burst))
    wait_us = data.draw(st.integers(0, limit.max_wait_us))
    state, decision = decide(START_US * NS_PER_US + ahead_ns, START_US, cost, limit, wait_us)
    if decision.allowed:
        assert decision.retry_after_us == 0
        return
    assert decision.retry_after_us > 0
    then_us = START_US + decision.retry_after_us
    earlier_us = data.draw(st.integers(START_US, then_us - 1))
    assert not decide(state, earlier_us, cost, limit, wait_us)[1].allowed
    assert not decide(state, then_us - 1, cost, limit, wait_us)[1].allowed
    assert decide(state, then_us, cost, limit, wait_us)[1].allowed


@given(st.data())
def test_what_is_said_of_the_bucket_is_true(data: st.DataObject) -> None:
    """`remaining` requests of cost 1 pass and not one more; at the reset everything passes."""
    limit = data.draw(limits(queue=False))
    ahead_ns = data.draw(st.integers(-limit.tolerance_ns, limit.tolerance_ns))
    cost = data.draw(st.integers(0, limit.burst + 2))
    state, decision = decide(START_US * NS_PER_US + ahead_ns, START_US, cost, limit, 0)
    if decision.remaining:
        assert decide(state, START_US, decision.remaining, limit, 0)[1].allowed
    assert not decide(state, START_US, decision.remaining + 1, limit, 0)[1].allowed
    reset_us = START_US + decision.reset_us
    assert decide(state, reset_us, limit.burst, limit, 0)[1].allowed
    if decision.reset_us:
        assert not decide(state, reset_us - 1, limit.burst, limit, 0)[1].allowed
        assert expires_us(state, limit) == reset_us


@given(st.data())
def test_waits_are_a_queue(data: st.DataObject) -> None:
    """Turns are in order, an interval apart: none overtakes or shares one."""
    limit = data.draw(limits())
    state: int | None = None
    now_us = START_US
    turns: list[int] = []
    for _ in range(data.draw(st.integers(2, 25))):
        now_us += data.draw(steps_us(limit))
        new, decision = decide(state, now_us, 1, limit, limit.max_wait_us)
        if decision.allowed:
            state = new
            if decision.wait_us:
                turns.append(decision.receipt)
    assert all(later - earlier >= limit.interval_ns for earlier, later in pairwise(turns))


@given(st.data())
def test_cost_n_is_n_times_cost_1(data: st.DataObject) -> None:
    """One request of cost n leaves the same as n of cost 1, and reports the same state."""
    limit = data.draw(limits())
    ahead_ns = data.draw(st.integers(-limit.tolerance_ns, limit.tolerance_ns))
    before = START_US * NS_PER_US + ahead_ns
    cost = data.draw(st.integers(1, limit.burst))
    at_once, decision = decide(before, START_US, cost, limit, limit.max_wait_us)
    state, last = before, decision
    for _ in range(cost):
        state, last = decide(state, START_US, 1, limit, limit.max_wait_us)
        if not last.allowed:
            break
    assert last.allowed == decision.allowed
    if decision.allowed:
        assert (state, last) == (at_once, decision)


@given(st.data())
def test_a_look_changes_nothing(data: st.DataObject) -> None:
    """Cost 0 always passes, takes nothing, and shows what the next request will find."""
    limit = data.draw(limits())
    ahead_ns = data.draw(st.integers(-limit.tolerance_ns, limit.tolerance_ns))
    before = START_US * NS_PER_US + ahead_ns
    state, look = decide(before, START_US, 0, limit, 0)
    assert look.allowed
    assert look.wait_us == 0
    assert state == max(before, START_US * NS_PER_US)
    assert decide(before, START_US, 1, limit, 0)[1].allowed == (look.remaining >= 1)
    assert give_back(before, START_US, 0, limit, look.receipt) == before


@given(st.data())
def test_a_clock_that_goes_back_neither_frees_nor_locks(data: st.DataObject) -> None:
    """After a step back of any size the key waits at most for its burst and its queue."""
    limit = data.draw(limits())
    state: int | None = None
    for _ in range(limit.burst):
        state, decision = decide(state, START_US, 1, limit, 0)
        assert decision.allowed
    back_us = START_US - data.draw(st.integers(1, 10**9))
    state, decision = decide(state, back_us, 1, limit, 0)
    assert not decision.allowed
    longest_ns = limit.interval_ns + limit.max_wait_us * NS_PER_US
    assert decision.retry_after_us <= -(-longest_ns // NS_PER_US)
    assert decide(state, back_us + decision.retry_after_us, 1, limit, 0)[1].allowed


@given(st.data())
def test_a_changed_limit_holds_at_once(data: st.DataObject) -> None:
    """Whatever a key did under another limit, the new one is all it has to wait for."""
    before, after = data.draw(limits()), data.draw(limits())
    state: int | None = None
    for _ in range(data.draw(st.integers(1, before.burst))):
        state, _ = decide(state, START_US, 1, before, before.max_wait_us)
    state, decision = decide(state, START_US, 1, after, 0)
    assert decision.limit == after.burst
    longest_ns = after.interval_ns + after.max_wait_us * NS_PER_US
    assert decision.retry_after_us <= -(-longest_ns // NS_PER_US)
    if not decision.allowed:
        assert decide(state, START_US + decision.retry_after_us, 1, after, 0)[1].allowed


@given(st.data())
def test_more_than_the_burst_never_passes(data: st.DataObject) -> None:
    """A cost above the burst is refused for good and takes nothing."""
    limit = data.draw(limits())
    state, decision = decide(None, START_US, limit.burst + 1, limit, limit.max_wait_us)
    assert not decision.allowed
    assert decision.retry_after_us == NEVER
    assert decision.remaining == limit.burst
    assert decide(state, START_US, limit.burst, limit, 0)[1].allowed


def test_a_turn_is_given_back_only_by_the_last_in_the_queue() -> None:
    """The last one's slot is free again at once; a gap in the middle is not sold twice."""
    limit = Limit(1, SECOND_US, 1, max_wait_us=10 * SECOND_US)
    state, _ = decide(None, START_US, 1, limit, limit.max_wait_us)
    state, second = decide(state, START_US, 1, limit, limit.max_wait_us)
    state, third = decide(state, START_US, 1, limit, limit.max_wait_us)
    assert (second.wait_us, third.wait_us) == (SECOND_US, 2 * SECOND_US)
    assert give_back(state, START_US, 1, limit, second.receipt) == state
    without_third = give_back(state, START_US + 1, 1, limit, third.receipt)
    assert decide(without_third, START_US + 1, 1, limit, limit.max_wait_us)[1].wait_us == (
        2 * SECOND_US - 1
    )


def test_only_what_was_not_refilled_is_given_back() -> None:
    """Half the time that a request took has gone by: half of it is given back, then nothing."""
    limit = Limit(10, SECOND_US, 10)
    taken, decision = decide(None, START_US, 10, limit, 0)
    half_us = START_US + SECOND_US // 2
    half = give_back(taken, half_us, 10, limit, decision.receipt)
    assert half == taken - limit.tolerance_ns // 2
    assert give_back(taken, START_US + SECOND_US, 10, limit, decision.receipt) == taken
    assert give_back(None, START_US, 10, limit, decision.receipt) is None


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_the_shares_of_a_limit_add_up_to_it(parts: int) -> None:
    """What some gateways may spend alone, together, is not more than the rate they share."""
    limit = Limit(10, SECOND_US, 20)
    share = limit.share(parts)
    assert parts * 10**18 // share.interval_ns <= 10**18 // limit.interval_ns
    assert share.burst * parts <= limit.burst
