"""Limits in ThrottleX's words, held against its own two limiters."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import Limit
from gateway.limits.throttlex import (
    DEFAULTS,
    FOREVER_US,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Numbers,
    is_scope,
    limit_of,
    scope_of,
)
from tests.throttlex import Bucket, Window

START_MS: Final = 1_800_000_000_000
WHOLE_RATES: Final = (1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 125, 200, 250, 500, 1000)
"""Rates at which a token takes whole milliseconds, as in ThrottleX all do."""

pauses = st.lists(
    st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 5_000), st.just(1_000)), max_size=60
)


def play(limit: Limit, times_ms: list[int]) -> list[tuple[bool, int]]:
    """Requests at these times: whether each may pass, and what is left then."""
    state = None
    seen = []
    for now_ms in times_ms:
        state, decision = ALGORITHMS[limit.algorithm].decide(state, now_ms * 1000, 1, limit, 0)
        seen.append((decision.allowed, decision.remaining))
    return seen


def moments(waits_ms: list[int]) -> list[int]:
    """Times from the start on, with these pauses between them."""
    now_ms = START_MS
    times = [now_ms]
    for wait_ms in waits_ms:
        now_ms += wait_ms
        times.append(now_ms)
    return times


def test_the_defaults_are_its_own() -> None:
    """100 tokens, ten a second, a window of a minute."""
    assert Numbers(TOKEN_BUCKET, 100, Fraction(10), 60) == DEFAULTS
    assert limit_of(DEFAULTS) == Limit(10, 1_000_000, 100)


@given(capacity=st.integers(1, 12), rate=st.sampled_from(WHOLE_RATES), waits_ms=pauses)
def test_a_bucket_that_is_not_full_decides_as_its_own(
    capacity: int, rate: int, waits_ms: list[int]
) -> None:
    """The same verdicts and the same tokens, request by request, until the bucket is full."""
    times = moments(waits_ms)
    theirs = Bucket(capacity, rate, START_MS)
    for ours, now_ms in zip(
        play(limit_of(Numbers(TOKEN_BUCKET, capacity, Fraction(rate))), times), times, strict=True
    ):
        allowed = theirs.allow(now_ms)
        if theirs.was_full:
            break
        assert ours == (allowed, theirs.tokens)


@given(capacity=st.integers(1, 12), rate=st.sampled_from(WHOLE_RATES), waits_ms=pauses)
def test_a_bucket_is_never_more_than_a_token_from_its_own(
    capacity: int, rate: int, waits_ms: list[int]
) -> None:
    """ThrottleX's full bucket keeps gathering part of a token; Sluice's does not."""
    times = moments(waits_ms)
    theirs = Bucket(capacity, rate, START_MS)
    for (_, remaining), now_ms in zip(
        play(limit_of(Numbers(TOKEN_BUCKET, capacity, Fraction(rate))), times), times, strict=True
    ):
        theirs.allow(now_ms)
        assert abs(remaining - theirs.tokens) <= 1


@given(capacity=st.integers(1, 12), rate=st.integers(1, 1000), waits_ms=pauses)
def test_a_bucket_of_any_rate_has_no_more_than_its_own(
    capacity: int, rate: int, waits_ms: list[int]
) -> None:
    """Its whole milliseconds refill some rates a little too fast; ours are exact."""
    times = moments(waits_ms)
    theirs = Bucket(capacity, rate, START_MS)
    for (_, remaining), now_ms in zip(
        play(limit_of(Numbers(TOKEN_BUCKET, capacity, Fraction(rate))), times), times, strict=True
    ):
        theirs.allow(now_ms)
        assert remaining <= theirs.tokens + 1


@given(capacity=st.integers(1, 8), seconds=st.integers(1, 5), waits_ms=pauses)
def test_a_window_decides_as_its_own(capacity: int, seconds: int, waits_ms: list[int]) -> None:
    """The same verdict each time, a request exactly one window old included."""
    times = moments(waits_ms)
    theirs = Window(capacity, seconds)
    ours = play(limit_of(Numbers(SLIDING_WINDOW, capacity, window_seconds=seconds)), times)
    assert [allowed for allowed, _ in ours] == [theirs.allow(now_ms) for now_ms in times]


def test_a_request_exactly_one_window_old_counts() -> None:
    """A millisecond later it does not."""
    limit = limit_of(Numbers(SLIDING_WINDOW, 1, window_seconds=2))
    assert [allowed for allowed, _ in play(limit, moments([2_000, 1]))] == [True, False, True]


def test_a_rate_of_zero_never_refills() -> None:
    """Years later the bucket is as it was left; what is left can still be had."""
    limit = limit_of(Numbers(TOKEN_BUCKET, 3, Fraction(0)))
    year_ms = 366 * 86_400_000
    seen = play(limit, moments([0, 20 * year_ms, 20 * year_ms, year_ms]))
    assert seen == [(True, 2), (True, 1), (True, 0), (False, 0), (False, 0)]
    assert limit.period_us == FOREVER_US


@pytest.mark.parametrize("kind", [TOKEN_BUCKET, SLIDING_WINDOW])
@pytest.mark.parametrize("rate", [0, 10])
def test_a_capacity_of_zero_lets_nothing_through(kind: str, rate: int) -> None:
    """Nor does a share of it, and there is no use in coming back."""
    limit = limit_of(Numbers(kind, 0, Fraction(rate)))
    for one in (limit, limit.share(3)):
        _, decision = ALGORITHMS[one.algorithm].decide(None, START_MS * 1000, 1, one, 0)
        assert not decision.allowed
        assert (decision.retry_after_us, decision.remaining) == (NEVER, 0)


def test_a_fraction_of_a_token_a_second() -> None:
    """0.4 a second is one in two and a half, to the millisecond."""
    limit = limit_of(Numbers(TOKEN_BUCKET, 1, Fraction("0.4")))
    assert [allowed for allowed, _ in play(limit, moments([2_499, 1]))] == [True, False, True]


def test_what_says_nothing_to_a_type_is_not_looked_at() -> None:
    """A bucket has no window, and a window no rate, even if they are set."""
    assert limit_of(Numbers(TOKEN_BUCKET, 5, Fraction(1), -1)) == Limit(1, 1_000_000, 5)
    window = Limit(5, 7_000_000, 5, "sliding_window_log")
    assert limit_of(Numbers(SLIDING_WINDOW, 5, Fraction(-1), 7)) == window


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        (
            Numbers("LEAKY_BUCKET"),
            "the type 'LEAKY_BUCKET' is not one of TOKEN_BUCKET, SLIDING_WINDOW",
        ),
        (Numbers(capacity=-1), "a capacity of -1 is negative"),
        (Numbers(refill_rate=Fraction(-2)), "a refill rate of -2 is negative"),
        (Numbers(SLIDING_WINDOW, window_seconds=0), "a window of 0 seconds has no length"),
    ],
)
def test_numbers_that_mean_no_limit(numbers: Numbers, why: str) -> None:
    """The message names the number."""
    with pytest.raises(ValueError, match=why):
        limit_of(numbers)


def test_more_than_anybody_needs_is_as_much_as_is_counted() -> None:
    """What the table can hold is no error."""
    limit = limit_of(Numbers(TOKEN_BUCKET, 2**62, Fraction(2**62)))
    assert (limit.burst, limit.interval_ns) == (10**9, 1)


def test_scopes_are_known_by_their_ends() -> None:
    """A policy may have any name, and no key word is `throttlex`."""
    assert is_scope(scope_of("api/throttlex/x"))
    window = scope_of("a/b", Numbers(SLIDING_WINDOW, window_seconds=5))
    assert is_scope(window)
    assert window.rpartition("/")[0] == "a/b"
    assert scope_of("api", DEFAULTS) == scope_of("api") == "api/throttlex"
    assert not is_scope("throttlex/ip")


def test_a_book_finds_what_its_table_has() -> None:
    """Capitals are other letters, unless they are not to the table; what is gone is gone."""
    book = KeyOverrides(lambda key: key.replace("%", "%25"))
    assert book.find("a") is None
    book.replace({book.identity("A%", folds=False): DEFAULTS}, folds=False)
    assert book.find("A%25") == DEFAULTS
    assert book.find("a%25") is None
    book.replace({book.identity("A%", folds=True): DEFAULTS}, folds=True)
    assert book.find("a%25") == book.find("A%25") == DEFAULTS
    book.replace({}, folds=True)
    assert book.find("a%25") is None
