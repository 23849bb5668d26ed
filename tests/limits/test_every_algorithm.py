"""What holds for every algorithm, after any past of a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER
from gateway.limits.horizon import horizon_us
from tests.limits.schedules import limits, longest_us, pasts

every = pytest.mark.parametrize("name", ALGORITHMS)


@every
@given(st.data())
def test_retry_after_is_kept_to_the_microsecond(name: str, data: st.DataObject) -> None:
    """Refused at every earlier moment, admitted at that one, if there are no other requests."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    cost = data.draw(st.integers(1, limit.burst))
    wait_us = data.draw(st.integers(0, limit.max_wait_us))
    state, decision = decide(past.state, past.now_us, cost, limit, wait_us)
    if decision.allowed:
        assert decision.retry_after_us == 0
        assert 0 <= decision.wait_us <= wait_us
        return
    assert 0 < decision.retry_after_us <= longest_us(limit)
    then_us = past.now_us + decision.retry_after_us
    for moment_us in range(past.now_us + 1, then_us):
        assert not decide(state, moment_us, cost, limit, wait_us)[1].allowed
    assert decide(state, then_us, cost, limit, wait_us)[1].allowed


@every
@given(st.data())
def test_what_is_left_can_be_had_and_no_more(name: str, data: st.DataObject) -> None:
    """Without waiting, a request passes exactly if it costs no more than what remains."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name, queue=name != "sliding_window_log"))
    past = data.draw(pasts(limit))
    look = decide(past.state, past.now_us, 0, limit, 0)[1]
    assert look.limit == limit.burst
    for cost in range(1, limit.burst + 1):
        decision = decide(past.state, past.now_us, cost, limit, 0)[1]
        assert decision.allowed == (cost <= look.remaining)
        if decision.allowed:
            assert decision.remaining == look.remaining - cost


@every
@given(st.data())
def test_a_look_changes_nothing(name: str, data: st.DataObject) -> None:
    """Cost 0 passes at once; keeping the state that comes with it makes no difference."""
    decide, give_back = ALGORITHMS[name].decide, ALGORITHMS[name].give_back
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    state, look = decide(past.state, past.now_us, 0, limit, limit.max_wait_us)
    assert (look.allowed, look.wait_us, look.retry_after_us) == (True, 0, 0)
    assert give_back(state, past.now_us, 0, limit, look.receipt) == state
    cost = data.draw(st.integers(1, limit.burst))
    seen = decide(state, past.now_us, cost, limit, limit.max_wait_us)
    assert seen == decide(past.state, past.now_us, cost, limit, limit.max_wait_us)


@every
@given(st.data())
def test_more_than_the_limit_never_passes(name: str, data: st.DataObject) -> None:
    """It is refused for good, and takes nothing, whether or not refused requests count."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    before = decide(past.state, past.now_us, 0, limit, 0)
    state, decision = decide(past.state, past.now_us, limit.burst + 1, limit, limit.max_wait_us)
    assert (decision.allowed, decision.retry_after_us) == (False, NEVER)
    assert decision.remaining == before[1].remaining
    assert decide(state, past.now_us, 0, limit, 0) == before


@every
@given(st.data())
def test_a_state_can_be_forgotten_when_it_expires(name: str, data: st.DataObject) -> None:
    """From then on every answer is the same as for an unknown key."""
    decide, expires_us = ALGORITHMS[name].decide, ALGORITHMS[name].expires_us
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    if past.state is None:
        return
    then_us = max(expires_us(past.state, limit), past.now_us) + data.draw(st.integers(0, 40))
    cost = data.draw(st.integers(0, limit.burst))
    known = decide(past.state, then_us, cost, limit, limit.max_wait_us)
    unknown = decide(None, then_us, cost, limit, limit.max_wait_us)
    assert known[1] == unknown[1]
    assert decide(known[0], then_us, 1, limit, 0)[1] == decide(unknown[0], then_us, 1, limit, 0)[1]


@every
@given(st.data())
def test_at_the_reset_the_limit_is_unused(name: str, data: st.DataObject) -> None:
    """All of it remains then, and not a microsecond earlier, without other requests."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    cost = data.draw(st.integers(0, limit.burst))
    state, decision = decide(past.state, past.now_us, cost, limit, limit.max_wait_us)
    reset_us = past.now_us + decision.reset_us
    assert decide(state, reset_us, 0, limit, 0)[1].remaining == limit.burst
    if decision.reset_us:
        assert decide(state, reset_us - 1, 0, limit, 0)[1].remaining < limit.burst


@every
@given(st.data())
def test_what_is_undone_at_once_was_never_asked(name: str, data: st.DataObject) -> None:
    """Giving back in the same microsecond restores the remainder, for callers that are not late."""
    decide, give_back = ALGORITHMS[name].decide, ALGORITHMS[name].give_back
    limit = data.draw(limits(name, queue=False))
    past = data.draw(pasts(limit, steady=True))
    cost = data.draw(st.integers(1, limit.burst))
    before = decide(past.state, past.now_us, 0, limit, 0)[1]
    state, decision = decide(past.state, past.now_us, cost, limit, 0)
    if decision.allowed:
        state = give_back(state, past.now_us, cost, limit, decision.receipt)
        assert decide(state, past.now_us, 0, limit, 0)[1].remaining == before.remaining


@every
@given(st.data())
def test_undoing_never_makes_more_than_there_was(name: str, data: st.DataObject) -> None:
    """Not for an unknown key, and at most the whole limit when everything is undone."""
    decide, give_back = ALGORITHMS[name].decide, ALGORITHMS[name].give_back
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    state, now_us = past.state, past.now_us
    assert give_back(None, now_us, 1, limit, now_us) is None
    for decision, cost in past.passed + past.passed:
        state = give_back(state, now_us, cost, limit, decision.receipt)
    look = decide(state, now_us, 0, limit, 0)[1]
    assert look.remaining <= limit.burst
    assert not decide(state, now_us, limit.burst + 1, limit, limit.max_wait_us)[1].allowed


@every
@given(st.data())
def test_a_changed_limit_holds_at_once(name: str, data: st.DataObject) -> None:
    """Whatever a key did under another limit, what the new one holds is all it waits for."""
    decide = ALGORITHMS[name].decide
    before, after = data.draw(limits(name)), data.draw(limits(name))
    past = data.draw(pasts(before))
    cost = data.draw(st.integers(1, after.burst))
    state, decision = decide(past.state, past.now_us, cost, after, 0)
    assert decision.limit == after.burst
    assert decision.retry_after_us <= longest_us(after)
    if not decision.allowed:
        then_us = past.now_us + decision.retry_after_us
        assert decide(state, then_us, cost, after, 0)[1].allowed


@every
@given(st.data())
def test_a_clock_that_goes_back_does_not_lock(name: str, data: st.DataObject) -> None:
    """After a step back of any size a key waits for a full limit and a full queue at most."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit))
    back_us = past.now_us - data.draw(st.integers(1, 10**9))
    state, decision = decide(past.state, back_us, 1, limit, 0)
    assert decision.retry_after_us <= longest_us(limit)
    if not decision.allowed:
        assert decide(state, back_us + decision.retry_after_us, 1, limit, 0)[1].allowed


@every
@given(st.data())
def test_cost_n_is_n_times_cost_1(name: str, data: st.DataObject) -> None:
    """Without waiting, one request of cost n passes if n of cost 1 do, and leaves as much."""
    decide = ALGORITHMS[name].decide
    limit = data.draw(limits(name, queue=False, refused=False))
    past = data.draw(pasts(limit, steady=True))
    cost = data.draw(st.integers(1, limit.burst))
    decision = decide(past.state, past.now_us, cost, limit, 0)[1]
    state, last = past.state, decision
    for _ in range(cost):
        state, last = decide(state, past.now_us, 1, limit, 0)
        if not last.allowed:
            break
    assert last.allowed == decision.allowed
    if decision.allowed:
        assert last.remaining == decision.remaining
        assert last.reset_us == decision.reset_us


@every
@given(st.data())
def test_nothing_is_told_from_a_state_beyond_the_horizon(name: str, data: st.DataObject) -> None:
    """After any admissions, a key is as good as new by then; some keys only just."""
    algorithm = ALGORITHMS[name]
    limit = data.draw(limits(name))
    past = data.draw(pasts(limit, steady=True))
    horizon = horizon_us(limit)
    if horizon is None:
        assert algorithm.renew is not None
        return
    if past.state is not None:
        assert algorithm.expires_us(past.state, limit) <= past.now_us + horizon + 1
