"""Which tries may be followed by others, how long after, and how many: without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import (
    UpstreamBusyError,
    UpstreamClosedError,
    UpstreamConnectError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
)
from gateway.config.models.gateway import RetryConfig
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.proxy.upstream.retry import SLOTS, RetryBudget, RetryRule, retries_of
from gateway.wiring.routes import compile_rule

US = 1_000_000


def rule(**said: object) -> RetryRule:
    """The rule of a configuration."""
    compiled = compile_rule(RetryConfig.model_validate(said))
    assert compiled is not None
    return compiled


@pytest.mark.parametrize(
    ("outcome", "get", "post"),
    [
        (UpstreamConnectError("refused"), "connect", "connect"),
        (UpstreamTimeout("connect"), "connect", "connect"),
        (UpstreamClosedError("reset"), "reset", ""),
        (UpstreamTimeout("first_byte"), "timeout", ""),
        (503, "status", ""),
        (500, "", ""),
        (UpstreamTimeout("idle"), "", ""),
        (UpstreamTimeout("total"), "", ""),
        (UpstreamTimeout("queue"), "", ""),
        (UpstreamBusyError("full"), "", ""),
        (UpstreamProtocolError("no HTTP"), "", ""),
    ],
)
def test_what_may_be_tried_again(outcome: int | UpstreamError, get: str, post: str) -> None:
    """What has begun to be answered, or was never sent for lack of room, is left alone."""
    strict = rule(when=["connect", "reset", "timeout", 503])
    free = rule(when=["connect", "reset", "timeout", 503], methods="any")
    named = rule(when=["connect", "reset", "timeout", 503], methods=["POST"])

    assert strict.reason(outcome, "GET") == get
    assert strict.reason(outcome, "POST") == post
    assert free.reason(outcome, "POST") == get
    assert named.reason(outcome, "POST") == get
    assert named.reason(outcome, "GET") == post


def test_only_what_is_named_is_tried_again() -> None:
    """By default a connection that cannot be made, or ends."""
    assert rule().reason(UpstreamTimeout("first_byte"), "GET") == ""
    assert rule(when=[503]).reason(UpstreamConnectError("refused"), "GET") == ""
    assert rule(when="reset").reason(UpstreamClosedError("reset"), "GET") == "reset"


def test_one_try_is_no_retry() -> None:
    """Nothing is kept for a rule that never holds."""
    assert compile_rule(RetryConfig.model_validate(1)) is None
    assert compile_rule(None) is None


@given(st.integers(0, 9), st.floats(0, 1))
def test_pauses_double_up_to_the_longest(retries: int, part: float) -> None:
    """And are drawn whole: from nothing up to what the number of tries allows."""
    pause = rule(backoff="10ms", max_backoff="100ms").backoff_s(retries, part)

    assert 0 <= pause <= min(0.01 * 2**retries, 0.1)
    assert pause == pytest.approx(min(0.01 * 2**retries, 0.1) * part)


STEPS = st.lists(st.tuples(st.integers(0, 4 * US), st.integers(0, 300)), max_size=60)


@given(STEPS, st.integers(1, PARTS_PER_WHOLE), st.integers(0, 20))
def test_a_budget_is_kept(steps: list[tuple[int, int]], share: int, floor: int) -> None:
    """Of all requests no more than the share are retries, or the floor in each ten seconds."""
    budget = RetryBudget()
    now, requests, retries = 0, 0, 0
    granted: list[int] = []
    for passed, came in steps:
        now += passed
        requests += came
        if budget.spend(now, requests, share, floor):
            granted.append(now)
            retries += 1
        recent = [at for at in granted if at // US > now // US - SLOTS]
        assert len(recent) <= max(requests * share // PARTS_PER_WHOLE, floor)
    spans = now // (SLOTS * US) + 1
    assert retries <= requests * share / PARTS_PER_WHOLE * 2 + floor * spans * 2


def test_a_budget_comes_back_with_time_and_with_requests() -> None:
    """What was spent ten seconds ago counts no more; what came long ago allows nothing now."""
    budget = RetryBudget()
    share = PARTS_PER_WHOLE // 5
    assert [budget.spend(0, 10, share, 0) for _ in range(3)] == [True, True, False]
    assert budget.spend(0, 15, share, 0)
    assert not budget.spend(9 * US, 15, share, 0)
    assert not budget.spend(30 * US, 15, share, 0)
    # Of 600 that came evenly in a minute, 100 came in the last ten seconds.
    now = 90 * US
    granted = sum(budget.spend(now, 615, share, 0) for _ in range(100))
    assert granted == 20


def test_a_budget_has_a_floor() -> None:
    """So that a gateway with few requests can try again at all."""
    budget = RetryBudget()
    assert [budget.spend(0, 1, 1, 2) for _ in range(3)] == [True, True, False]
    assert budget.spend(10 * US, 2, 1, 2)


def test_the_retries_that_are_always_allowed_are_those_of_all_workers() -> None:
    """Each has its share of its own requests besides; what is ten seconds old does not count."""
    budgets = [RetryBudget() for _ in range(3)]

    def spend(number: int, now_us: int, requests: int = 0) -> bool:
        others = [one.record for one in budgets if one is not budgets[number]]
        elsewhere = retries_of(others, now_us)
        return budgets[number].spend(now_us, requests, PARTS_PER_WHOLE // 5, 3, elsewhere)

    now_us = 1000 * US
    assert [spend(number, now_us) for number in (0, 1, 0, 1, 2)] == [True, True, True, False, False]
    assert [spend(2, now_us, requests=10) for _ in range(3)] == [True, True, False]
    assert not spend(1, now_us + (SLOTS - 1) * US)
    assert spend(1, now_us + SLOTS * US)
