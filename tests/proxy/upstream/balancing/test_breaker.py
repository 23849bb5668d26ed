"""The circuit breaker: what opens it, what passes meanwhile, and what closes it."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream.balancing import NO_TICKET, BreakerNumbers, WindowBreaker

S: Final = 1_000_000


def breaker_of(percent: int = 50, min_requests: int = 4, trials: int = 2) -> WindowBreaker:
    """A window of 10 s, and 5 s open."""
    return WindowBreaker(BreakerNumbers(percent, 100, min_requests, 10 * S, 5 * S, trials))


def ask(breaker: WindowBreaker, now: int, *outcomes: bool) -> None:
    """Requests that are answered at once; True for one that fails."""
    for is_failure in outcomes:
        ticket = breaker.admit(now)
        assert ticket != NO_TICKET
        breaker.report(ticket, now, is_failure=is_failure)


def opened(now: int = 0) -> WindowBreaker:
    """One that has just opened."""
    breaker = breaker_of()
    ask(breaker, now, True, True, True, True)
    assert breaker.state.value == "open"
    return breaker


def test_it_opens_by_share_and_with_enough_requests() -> None:
    """Three failures of three are too few requests; two of four are half."""
    breaker = breaker_of()
    ask(breaker, 0, True, True, True)
    assert breaker.state.value == "closed"

    breaker = breaker_of()
    ask(breaker, 0, False, False, False, True)
    assert breaker.state.value == "closed"
    ask(breaker, 0, True, True)
    assert breaker.state.value == "open"
    assert breaker.retry_after_us(1 * S) == 4 * S


def test_what_is_long_ago_does_not_count() -> None:
    """The window slides: failures leave it, and so do successes."""
    breaker = breaker_of()
    ask(breaker, 0, True, True, True)
    ask(breaker, 11 * S, True, True, True)
    assert breaker.state.value == "closed"
    ask(breaker, 12 * S, True)
    assert breaker.state.value == "open"


def test_it_refuses_until_its_time_is_over() -> None:
    """And then lets so many trials through, and no more."""
    breaker = opened()
    assert breaker.admit(5 * S - 1) == NO_TICKET
    first, second = breaker.admit(5 * S), breaker.admit(5 * S)
    assert NO_TICKET not in {first, second}
    assert breaker.admit(5 * S) == NO_TICKET
    assert breaker.state.value == "half_open"
    assert breaker.retry_after_us(5 * S) == 0

    assert not breaker.report(first, 5 * S, is_failure=False)
    assert breaker.report(second, 5 * S, is_failure=False)
    assert breaker.state.value == "closed"
    ask(breaker, 5 * S, True, True, True)
    assert breaker.state.value == "closed", "it begins anew"


def test_a_trial_that_fails_opens_it_again() -> None:
    """Immediately, whatever the other trials report later."""
    breaker = opened()
    first, second = breaker.admit(5 * S), breaker.admit(5 * S)
    assert breaker.report(first, 6 * S, is_failure=True)
    assert breaker.state.value == "open"
    assert not breaker.report(second, 7 * S, is_failure=False)
    assert breaker.admit(11 * S - 1) == NO_TICKET
    assert breaker.admit(11 * S) != NO_TICKET


def test_a_trial_that_nobody_waits_for_gives_its_place_back() -> None:
    """A client that left decides nothing."""
    breaker = opened()
    ticket = breaker.admit(5 * S)
    assert breaker.admit(5 * S) != NO_TICKET
    assert breaker.admit(5 * S) == NO_TICKET
    breaker.report(ticket, 5 * S, is_failure=None)
    assert breaker.admit(5 * S) != NO_TICKET


def test_trials_that_are_never_heard_of_are_made_again() -> None:
    """After as long as it was open; the old ones no longer count."""
    breaker = opened()
    lost = [breaker.admit(5 * S) for _ in range(2)]
    assert breaker.admit(10 * S - 1) == NO_TICKET
    assert breaker.admit(10 * S) != NO_TICKET
    for ticket in lost:
        assert not breaker.report(ticket, 10 * S, is_failure=True)
    assert breaker.state.value == "half_open"


def test_answers_from_before_it_opened_say_nothing() -> None:
    """They neither close it nor count as trials."""
    breaker = breaker_of()
    old = breaker.admit(0)
    ask(breaker, 0, True, True, True, True)
    assert breaker.admit(5 * S) != NO_TICKET
    for _ in range(9):
        assert not breaker.report(old, 5 * S, is_failure=False)
    assert breaker.state.value == "half_open"


@given(
    st.integers(1, 100),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 3 * S), st.booleans()), max_size=80),
)
def test_it_opens_only_with_reason(
    percent: int, min_requests: int, requests: list[tuple[int, bool]]
) -> None:
    """The share was reached among what the window may hold; and reached in all of it, it opens."""
    breaker = breaker_of(percent, min_requests)
    now = 20 * S
    past: list[tuple[int, bool]] = []
    for pause, is_failure in requests:
        now += pause
        ask(breaker, now, is_failure)
        past.append((now, is_failure))
        slot = now // S
        window = [failed for moment, failed in past if moment // S > slot - 10]
        has_reason = len(window) >= min_requests and 100 * sum(window) >= percent * len(window)
        is_open = breaker.state.value == "open"
        assert is_open == (has_reason and is_failure)
        if is_open:
            break
