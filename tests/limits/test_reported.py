"""What others let through, against Smockron's rule and a history that forgets nothing."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.rate import Limit
from gateway.limits.reported import FURTHEST_US, State, record
from tests.limits.schedules import START_US, limits

SECOND_US = 1_000_000


def interval(limit: Limit) -> int:
    """One by the rate, rounded up to a whole microsecond."""
    return -(-limit.period_us // limit.count)


def rule(history: list[int], now_us: int, limit: Limit) -> int:
    """Smockron's README, word for word: when the next request is allowed, 0 for now."""
    past = Fraction(limit.burst * limit.period_us, limit.count)
    if sum(now_us - time <= past for time in history) < limit.burst:
        return 0
    return max(now_us, *history) + interval(limit)


def bucket(history: list[tuple[int, int]], now_us: int, limit: Limit) -> int:
    """When a bucket of whole intervals has a token again, told from all that was taken.

    The history is what was taken at which time, and the moment at which that was told.
    """
    whole = limit.burst * interval(limit)
    full = 0
    for at_us, told_us in history:
        full = max(full, at_us) if full > told_us else at_us
        full = min(full, told_us + FURTHEST_US + whole) + interval(limit)
    next_us = full + interval(limit) - whole
    return next_us if next_us > now_us else 0


def times(limit: Limit) -> st.SearchStrategy[int]:
    """How far before or after now a request may have gone on."""
    return st.integers(-3 * limit.period_us * limit.burst, 3 * limit.period_us)


@given(st.data())
def test_the_rule_word_for_word(data: st.DataObject) -> None:
    """Whatever comes late or ahead, the next is allowed when the whole history says so."""
    limit = data.draw(limits("paced_history"))
    state: State = ()
    history: list[int] = []
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        at_us = now_us + data.draw(times(limit))
        after = record(state, at_us, now_us, limit)
        history.append(at_us)
        state = after.state
        assert after.next_us == rule(history, now_us, limit)
        assert len(state) <= limit.burst
        assert list(state) == sorted(state)
        assert bool(state) == (after.expires_us > now_us)


@given(st.data())
def test_a_bucket_owes_what_went_on_without_a_token(data: st.DataObject) -> None:
    """Every request takes one, at the time at which it went on."""
    limit = data.draw(limits("token_bucket"))
    state: State = ()
    history: list[tuple[int, int]] = []
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        history.append((now_us + data.draw(times(limit)), now_us))
        after = record(state, history[-1][0], now_us, limit)
        state = after.state
        assert after.next_us == bucket(history, now_us, limit)


@given(st.sampled_from(["paced_history", "token_bucket"]), st.integers(1, 30))
def test_exactly_the_burst_goes_on_at_once(algorithm: str, burst: int) -> None:
    """The last of the burst is what makes the next one wait, for 1 / rate."""
    limit = Limit(1, SECOND_US, burst, algorithm)
    state: State = ()
    for number in range(1, burst + 1):
        after = record(state, START_US, START_US, limit)
        state = after.state
        assert after.next_us == (START_US + SECOND_US if number == burst else 0)


def test_five_seconds_after_a_burst_of_ten() -> None:
    """The history lets one more go and then paces; the bucket has five tokens again."""
    later_us = START_US + 5 * SECOND_US
    passed = {}
    for algorithm in ("paced_history", "token_bucket"):
        limit = Limit(1, SECOND_US, 10, algorithm)
        state: State = ()
        for _ in range(10):
            state = record(state, START_US, START_US, limit).state
        passed[algorithm] = 0
        next_us = 0
        while not next_us:
            after = record(state, later_us, later_us, limit)
            state, next_us = after.state, after.next_us
            passed[algorithm] += 1
    assert passed == {"paced_history": 1, "token_bucket": 5}


@given(st.sampled_from(["paced_history", "token_bucket"]), st.integers(1, 500))
def test_nobody_is_held_much_longer_than_a_time_may_be_ahead(algorithm: str, flood: int) -> None:
    """However many say that they go on as late as may be."""
    limit = Limit(1, SECOND_US, 3, algorithm)
    state: State = ()
    next_us = 0
    for _ in range(flood):
        state, next_us, _ = record(state, START_US + FURTHEST_US, START_US, limit)
    assert next_us <= START_US + FURTHEST_US + 2 * SECOND_US


def test_a_clock_that_goes_back_holds_nobody_for_long() -> None:
    """Times that are too far ahead now are brought within reach."""
    limit = Limit(1, SECOND_US, 2)
    paced = Limit(1, SECOND_US, 2, "paced_history")
    for one in (limit, paced):
        state: State = ()
        for _ in range(2):
            state = record(state, START_US, START_US, one).state
        back_us = START_US - 3600 * SECOND_US
        after = record(state, back_us, back_us, one)
        assert after.next_us <= back_us + FURTHEST_US + 2 * SECOND_US
