"""The circuit breaker: when it lets calls through, and when not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.breaker import Breaker


def opened(breaker: Breaker, failures: int, now_us: int = 0) -> Breaker:
    """The breaker after as many failures in a row."""
    for _ in range(failures):
        assert breaker.allow(now_us)
        breaker.failure(now_us)
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    """A success in between starts the count again."""
    breaker = opened(Breaker(3, 100), 2)
    breaker.success(0)
    opened(breaker, 2)
    assert breaker.state.value == "closed"
    opened(breaker, 1)
    assert breaker.state.value == "open"
    assert not breaker.allow(99)


def test_one_probe_is_let_through_and_decides() -> None:
    """When the open time is over exactly one call is made; its success closes the breaker."""
    breaker = opened(Breaker(1, 100), 1)
    assert [breaker.allow(100), breaker.allow(100), breaker.allow(150)] == [True, False, False]
    assert breaker.state.value == "half_open"
    breaker.success(151)
    assert breaker.state.value == "closed"
    assert breaker.allow(151)


def test_the_open_time_doubles_to_its_cap_and_starts_anew() -> None:
    """Every failed probe doubles it, the cap ends that, a success resets it."""
    breaker = opened(Breaker(1, 100, 350), 1)
    now_us = 0
    for open_us in (100, 200, 350, 350):
        assert not breaker.allow(now_us + open_us - 1)
        now_us += open_us
        assert breaker.allow(now_us)
        breaker.failure(now_us)
    assert breaker.allow(now_us + 350)
    breaker.success(now_us + 350)
    breaker.failure(now_us + 350)
    assert breaker.allow(now_us + 450)


def test_a_probe_that_is_never_heard_of_does_not_lock_it() -> None:
    """After the open time another probe may try."""
    breaker = opened(Breaker(1, 100), 1)
    assert breaker.allow(100)
    assert not breaker.allow(199)
    assert breaker.allow(200)


def test_late_answers_of_earlier_calls_change_nothing_while_open() -> None:
    """Neither a success nor a failure moves an open breaker."""
    breaker = opened(Breaker(1, 100), 1)
    breaker.success(50)
    breaker.failure(60)
    assert breaker.state.value == "open"
    assert not breaker.allow(99)
    assert breaker.allow(100)


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=60))
def test_a_dead_target_costs_few_calls(calls: list[tuple[int, bool]]) -> None:
    """While everything fails, at most one call an open time gets through, and one always does."""
    breaker = opened(Breaker(2, 100, 100), 2)
    now_us, last_us = 0, 0
    for pause_us, is_heard_of in calls:
        now_us += pause_us
        allowed = breaker.allow(now_us)
        assert allowed == (now_us - last_us >= 100)
        if allowed:
            last_us = now_us
            if is_heard_of:
                breaker.failure(now_us)


@pytest.mark.parametrize(("failures", "open_us", "cap"), [(0, 1, 1), (1, 0, 1), (1, 2, 1)])
def test_nonsense_is_refused(failures: int, open_us: int, cap: int) -> None:
    """A breaker that could never open, or never close, is not made."""
    with pytest.raises(ValueError, match="breaker"):
        Breaker(failures, open_us, cap)


def test_repr_says_how_it_stands() -> None:
    """One line for logs."""
    assert repr(opened(Breaker(3, 100), 2)) == "<Breaker closed, 2 of 3 failures>"
