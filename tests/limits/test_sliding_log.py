"""The laws of the sliding window log, whatever is asked in whatever order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER
from gateway.limits.rate import Limit
from gateway.limits.sliding_log import State, expires_us, give_back

decide = ALGORITHMS["sliding_window_log"].decide

START_US = 1_800_000_000_000_000


@st.composite
def limits(draw: st.DrawFn, *, queue: bool = True) -> Limit:
    """Small limits in a window of a few microseconds, so that its edges are met often."""
    count = draw(st.integers(1, 8))
    window_us = draw(st.integers(1, 30))
    wait_us = draw(st.integers(0, 3 * window_us)) if queue else 0
    return Limit(count, window_us, count, "sliding_window_log", max_wait_us=wait_us)


def assert_lawful(turns: list[int], limit: Limit) -> None:
    """No window, closed at both ends, holds more than the count."""
    for end_us in turns:
        assert sum(end_us - limit.period_us <= turn <= end_us for turn in turns) <= limit.count


@given(st.data())
def test_never_more_than_the_law_allows(data: st.DataObject) -> None:
    """Waiting, costs and undoing in any order let no window hold more than the count."""
    limit = data.draw(limits())
    state: State | None = None
    now_us = START_US
    passed: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        if passed and data.draw(st.integers(0, 3)) == 0:
            turn_us, cost = passed.pop(data.draw(st.integers(0, len(passed) - 1)))
            state = give_back(state, now_us, cost, limit, turn_us)
            continue
        cost = data.draw(st.integers(1, limit.count))
        wait_us = data.draw(st.sampled_from((0, limit.max_wait_us)))
        new, decision = decide(state, now_us, cost, limit, wait_us)
        assert tuple(sorted(new)) == new
        if decision.allowed:
            state = new
            assert 0 <= decision.wait_us <= wait_us
            assert decision.receipt == now_us + decision.wait_us
            passed.append((decision.receipt, cost))
    assert_lawful([turn for turn, cost in passed for _ in range(cost)], limit)


@given(st.data())
def test_never_refused_what_the_law_allows(data: st.DataObject) -> None:
    """Without waiting, a request passes exactly if the window that ends with it has room."""
    limit = data.draw(limits(queue=False))
    state: State | None = None
    now_us = START_US
    passed: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        cost = data.draw(st.integers(1, limit.count))
        used = sum(turn >= now_us - limit.period_us for turn in passed)
        state, decision = decide(state, now_us, cost, limit, 0)
        assert decision.allowed == (used + cost <= limit.count)
        assert decision.remaining == limit.count - used - (cost if decision.allowed else 0)
        if decision.allowed:
            passed += [now_us] * cost


@st.composite
def logs(draw: st.DrawFn, limit: Limit) -> State:
    """Any log: of this limit, of one that held more, or of a clock that ran ahead."""
    offsets = draw(st.lists(st.integers(-2 * limit.period_us, 4 * limit.period_us), max_size=12))
    return tuple(sorted(START_US + offset for offset in offsets))


@given(st.data())
def test_retry_after_is_kept_to_the_microsecond(data: st.DataObject) -> None:
    """Refused at every earlier moment, admitted at that one; from any log whatever."""
    limit = data.draw(limits())
    cost = data.draw(st.integers(1, limit.count))
    wait_us = data.draw(st.integers(0, limit.max_wait_us))
    state, decision = decide(data.draw(logs(limit)), START_US, cost, limit, wait_us)
    if decision.allowed:
        assert decision.retry_after_us == 0
        return
    assert decision.retry_after_us > 0
    for moment_us in range(START_US, START_US + decision.retry_after_us):
        assert not decide(state, moment_us, cost, limit, wait_us)[1].allowed
    then_us = START_US + decision.retry_after_us
    assert decide(state, then_us, cost, limit, wait_us)[1].allowed


@given(st.data())
def test_at_the_reset_the_log_is_unused(data: st.DataObject) -> None:
    """Not a microsecond earlier either; from then on the key can be forgotten."""
    limit = data.draw(limits())
    cost = data.draw(st.integers(0, limit.count + 1))
    state, decision = decide(data.draw(logs(limit)), START_US, cost, limit, limit.max_wait_us)
    reset_us = START_US + decision.reset_us
    assert decide(state, reset_us, 0, limit, 0)[1].remaining == limit.count
    if decision.reset_us:
        assert decide(state, reset_us - 1, 0, limit, 0)[1].remaining < limit.count
        assert expires_us(state, limit) == reset_us
    else:
        assert expires_us(state, limit) == 0


@given(st.data())
def test_waits_are_a_queue(data: st.DataObject) -> None:
    """No request passes before an earlier one."""
    limit = data.draw(limits())
    state: State | None = None
    now_us = START_US
    turns: list[int] = []
    for _ in range(data.draw(st.integers(2, 30))):
        now_us += data.draw(st.integers(0, limit.period_us // 2 + 1))
        cost = data.draw(st.integers(1, limit.count))
        state, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        if decision.allowed:
            turns.append(now_us + decision.wait_us)
    assert all(earlier <= later for earlier, later in pairwise(turns))


@given(st.data())
def test_cost_n_is_n_times_cost_1(data: st.DataObject) -> None:
    """Without waiting, one request of cost n leaves what n of cost 1 leave."""
    limit = data.draw(limits(queue=False))
    before = data.draw(logs(limit))
    cost = data.draw(st.integers(1, limit.count))
    at_once, decision = decide(before, START_US, cost, limit, 0)
    state, last = before, decision
    for _ in range(cost):
        state, last = decide(state, START_US, 1, limit, 0)
        if not last.allowed:
            break
    assert last.allowed == decision.allowed
    if decision.allowed:
        assert (state, last) == (at_once, decision)


@given(st.data())
def test_a_look_changes_nothing(data: st.DataObject) -> None:
    """Cost 0 always passes, takes nothing, and shows what the next request will find."""
    limit = data.draw(limits(queue=False))
    before = data.draw(logs(limit))
    state, look = decide(before, START_US, 0, limit, 0)
    assert look.allowed
    assert look.wait_us == 0
    assert look.remaining == max(limit.count - len(state), 0)
    assert decide(before, START_US, 1, limit, 0)[1].allowed == (look.remaining >= 1)
    assert give_back(state, START_US, 0, limit, look.receipt) == state


@given(st.data())
def test_a_clock_that_goes_back_neither_frees_nor_locks(data: st.DataObject) -> None:
    """After a step back of any size the key waits for one window and its queue at most."""
    limit = data.draw(limits())
    state, decision = decide(None, START_US, limit.count, limit, 0)
    assert decision.allowed
    back_us = START_US - data.draw(st.integers(1, 10**9))
    state, decision = decide(state, back_us, 1, limit, 0)
    assert not decision.allowed
    assert decision.retry_after_us <= limit.period_us + 1 + limit.max_wait_us
    assert decide(state, back_us + decision.retry_after_us, 1, limit, 0)[1].allowed


@given(st.data())
def test_a_changed_limit_holds_at_once(data: st.DataObject) -> None:
    """The log is read by the new limit's window and count; nothing has to be reset."""
    after = data.draw(limits())
    state = data.draw(logs(after))
    decision = decide(state, START_US, 1, after, 0)[1]
    assert decision.limit == after.count
    assert decision.retry_after_us <= after.period_us + 1 + after.max_wait_us


def test_more_than_the_count_never_passes() -> None:
    """A cost above the count is refused for good and takes nothing."""
    limit = Limit(3, 100, 3, "sliding_window_log")
    state, decision = decide((START_US,), START_US, 4, limit, 0)
    assert (decision.allowed, decision.retry_after_us, decision.remaining) == (False, NEVER, 2)
    assert state == (START_US,)


def test_one_window_old_still_counts() -> None:
    """A window is closed at both ends: a microsecond more and the request is forgotten."""
    limit = Limit(1, 100, 1, "sliding_window_log")
    assert not decide((START_US,), START_US + 100, 1, limit, 0)[1].allowed
    assert decide((START_US,), START_US + 101, 1, limit, 0)[1].allowed


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 5), st.integers(1, 4))
def test_giving_back_takes_out_as_many_of_that_time(
    offsets: list[int], turn: int, cost: int
) -> None:
    """At most `cost` entries of exactly the turn's time go; all others stay."""
    state = tuple(sorted(offsets))
    limit = Limit(12, 5, 12, "sliding_window_log")
    after = give_back(state, 5, cost, limit, turn)
    assert after is not None
    assert after.count(turn) == max(state.count(turn) - cost, 0)
    assert [time for time in after if time != turn] == [time for time in state if time != turn]
    assert give_back(None, 5, cost, limit, turn) is None


@given(st.data())
def test_refused_requests_count_if_they_should(data: st.DataObject) -> None:
    """As if every request had been kept, though no more than the limit are; as ratio does."""
    limit = replace(data.draw(limits(queue=False)), count_refused=True)
    state: State | None = None
    now_us = START_US
    asked: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        cost = data.draw(st.integers(1, limit.count))
        used = sum(now_us - time <= limit.period_us for time in asked)
        state, decision = decide(state, now_us, cost, limit, 0)
        assert decision.allowed == (used + cost <= limit.count)
        assert len(state) <= limit.count
        asked += [now_us] * cost


def test_who_does_not_stop_asking_stays_refused() -> None:
    """Until it was quiet for a whole window."""
    limit = Limit(3, 10, 3, "sliding_window_log", count_refused=True)
    state: State | None = None
    answers = []
    for moment in range(0, 60, 3):
        state, decision = decide(state, START_US + moment, 1, limit, 0)
        answers.append(decision)
    assert [decision.allowed for decision in answers] == [True] * 3 + [False] * 17
    assert answers[-1].retry_after_us == 5
    assert decide(state, START_US + 57 + 11, 3, limit, 0)[1].allowed
