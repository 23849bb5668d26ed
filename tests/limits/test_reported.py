"""What others let through, against Smockron's rule and a history that forgets nothing."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.rate import Limit
from gateway.limits.reported import (
    ALGORITHMS,
    FURTHEST_US,
    SPARED,
    History,
    Reported,
    furthest_next_us,
)
from tests.limits.reported import State, record
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


def kept(limit: Limit) -> Reported:
    """What is kept of a new key."""
    return ALGORITHMS[limit.algorithm]()


def times(limit: Limit) -> st.SearchStrategy[int]:
    """How far before or after now a request may have gone on."""
    return st.integers(-3 * limit.period_us * limit.burst, 3 * limit.period_us)


@given(st.data())
def test_the_rule_word_for_word(data: st.DataObject) -> None:
    """With late or early reports, the next passes when the rule says so for the whole history."""
    limit = data.draw(limits("paced_history"))
    one = History()
    history: list[int] = []
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        at_us = now_us + data.draw(times(limit))
        one.record(at_us, now_us, limit)
        history.append(at_us)
        assert one.next_us == rule(history, now_us, limit)
        assert len(one) == len(one.times) <= limit.burst
        assert one.times == sorted(one.times)
        assert bool(one) == (one.expires_us > now_us)


@given(st.sampled_from(["paced_history", "token_bucket"]), st.data())
def test_what_is_kept_is_what_the_reference_keeps(algorithm: str, data: st.DataObject) -> None:
    """Whatever comes, also where the limit changes, the clock goes back, and many are dropped."""
    one = ALGORITHMS[algorithm]()
    state: State = ()
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 12))):
        burst = data.draw(st.integers(1, 4) | st.integers(SPARED, 3 * SPARED))
        limit = Limit(1, data.draw(st.sampled_from([1, 7, FURTHEST_US])), burst, algorithm)
        now_us += data.draw(st.integers(-burst, burst + 2)) * limit.period_us
        for _ in range(data.draw(st.integers(0, 3) | st.integers(0, 3 * SPARED))):
            now_us += 1
            one.record(now_us, now_us, limit)
            state = record(state, now_us, now_us, limit).state
        ahead = data.draw(st.integers(-2 * burst, 9)) * limit.period_us
        at_us = now_us + min(ahead, FURTHEST_US)
        one.record(at_us, now_us, limit)
        after = record(state, at_us, now_us, limit)
        state = after.state
        assert (one.next_us, one.expires_us) == after[1:]
        assert one.next_us <= now_us + furthest_next_us([limit])
        assert len(one) == len(state) or algorithm == "token_bucket"
        if isinstance(one, History):
            assert tuple(one.times) == state


@given(st.data())
def test_a_bucket_owes_what_went_on_without_a_token(data: st.DataObject) -> None:
    """Every request takes one, at the time at which it went on."""
    limit = data.draw(limits("token_bucket"))
    one = kept(limit)
    history: list[tuple[int, int]] = []
    now_us = START_US
    for _ in range(data.draw(st.integers(1, 40))):
        now_us += data.draw(st.integers(0, limit.period_us + 2))
        history.append((now_us + data.draw(times(limit)), now_us))
        one.record(history[-1][0], now_us, limit)
        assert one.next_us == bucket(history, now_us, limit)


@given(st.sampled_from(["paced_history", "token_bucket"]), st.integers(1, 30))
def test_exactly_the_burst_goes_on_at_once(algorithm: str, burst: int) -> None:
    """The last of the burst is what makes the next one wait, for 1 / rate."""
    limit = Limit(1, SECOND_US, burst, algorithm)
    one = kept(limit)
    for number in range(1, burst + 1):
        one.record(START_US, START_US, limit)
        assert one.next_us == (START_US + SECOND_US if number == burst else 0)


def test_five_seconds_after_a_burst_of_ten() -> None:
    """The history lets one more go and then paces; the bucket has five tokens again."""
    later_us = START_US + 5 * SECOND_US
    passed = {}
    for algorithm in ("paced_history", "token_bucket"):
        limit = Limit(1, SECOND_US, 10, algorithm)
        one = kept(limit)
        for _ in range(10):
            one.record(START_US, START_US, limit)
        passed[algorithm] = 0
        while not passed[algorithm] or not one.next_us:
            one.record(later_us, later_us, limit)
            passed[algorithm] += 1
    assert passed == {"paced_history": 1, "token_bucket": 5}


@given(st.sampled_from(["paced_history", "token_bucket"]), st.integers(1, 500))
def test_nobody_is_held_much_longer_than_a_time_may_be_ahead(algorithm: str, flood: int) -> None:
    """However many reports have the latest possible time."""
    limit = Limit(1, SECOND_US, 3, algorithm)
    one = kept(limit)
    for _ in range(flood):
        one.record(START_US + FURTHEST_US, START_US, limit)
    assert one.next_us <= START_US + FURTHEST_US + 2 * SECOND_US


def test_a_clock_that_goes_back_holds_nobody_for_long() -> None:
    """Times that are too far ahead now are brought within reach."""
    limit = Limit(1, SECOND_US, 2)
    paced = Limit(1, SECOND_US, 2, "paced_history")
    for each in (limit, paced):
        one = kept(each)
        for _ in range(2):
            one.record(START_US, START_US, each)
        back_us = START_US - 3600 * SECOND_US
        one.record(back_us, back_us, each)
        assert one.next_us <= back_us + FURTHEST_US + 2 * SECOND_US
