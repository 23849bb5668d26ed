"""Debits: what was used already counts, whatever the limit says, and what is owed has an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, Decision
from gateway.limits.rate import Limit

SECOND_US = 1_000_000
START_US = 1_800_000_000 * SECOND_US
TEN = {
    name: Limit(10, 10 * SECOND_US, 10, name, debt=10)
    for name in ALGORITHMS
    if name != "concurrency"
}
MONTH = replace(TEN["fixed_window"], calendar="month", period_us=30 * 86_400 * SECOND_US)
LIMITS = [*TEN.values(), MONTH]
COUNT_REFUSED = [
    replace(TEN[name], count_refused=True)
    for name in ("fixed_window", "sliding_window_counter", "sliding_window_log")
]


class Key:
    """One key of a limit, as a store has it, at a time that a test moves."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.now_us = START_US
        self.state: Any = None

    def ask(self, cost: int, max_wait_us: int = 0, limit: Limit | None = None) -> Decision:
        """What is said; what is allowed is kept, and so is a refusal's state put right."""
        limit = limit or self.limit
        algorithm = ALGORITHMS[limit.algorithm]
        state, decision = algorithm.decide(self.state, self.now_us, cost, limit, max_wait_us)
        if cost if decision.allowed else self.state is not None:
            self.state = state
        return decision

    def debit(self, cost: int) -> Decision:
        """What is said of what was used already."""
        decision = self.ask(cost, DEBIT)
        assert decision.allowed
        assert decision.retry_after_us == 0
        return decision

    def owed_us(self) -> int:
        """How long something is owed."""
        before = self.state
        owed_us = self.debit(0).wait_us
        assert self.state == before, "a look keeps nothing"
        return owed_us


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_debit_counts_beyond_the_limit_and_ends(limit: Limit) -> None:
    """No request passes while there is a debt; a query returns when it ends, to the microsecond."""
    key = Key(limit)
    assert key.debit(7).remaining == 3
    assert key.ask(0).remaining == 3
    assert key.owed_us() == 0
    told = key.debit(7)
    assert told.remaining == 0
    owed_us = key.owed_us()
    assert 0 < owed_us == told.wait_us
    assert not key.ask(1).allowed
    key.now_us += owed_us - 1
    assert key.owed_us() == 1
    assert not key.ask(1).allowed
    key.now_us += 1
    assert key.owed_us() == 0


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_exactly_the_limit_owes_nothing(limit: Limit) -> None:
    """As with Envoy's own service, which refuses a query if more is counted than the limit."""
    key = Key(limit)
    key.debit(10)
    assert key.owed_us() == 0
    assert key.ask(0).remaining == 0
    assert not key.ask(1).allowed
    key.debit(1)
    assert key.owed_us() > 0


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_no_more_is_owed_than_the_debt(limit: Limit) -> None:
    """With any usage, no key is refused forever."""
    once, often = Key(limit), Key(limit)
    once.debit(20)
    for cost in (10**9, 3, 10**12, 1):
        often.debit(cost)
    longest_us = once.owed_us()
    assert often.owed_us() == longest_us
    period_us = 31 * 86_400 * SECOND_US if limit.calendar else limit.period_us
    assert longest_us <= 2 * period_us
    often.now_us += longest_us
    assert often.owed_us() == 0


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_where_nothing_may_be_owed_a_debit_fills_the_limit(limit: Limit) -> None:
    """And no more."""
    key = Key(replace(limit, debt=0))
    key.debit(7)
    assert key.debit(7).remaining == 0
    assert key.owed_us() == 0


@pytest.mark.parametrize("limit", COUNT_REFUSED, ids=str)
def test_a_refused_request_that_counts_forgives_no_debt(limit: Limit) -> None:
    """The newest are kept then, and what is owed with them."""
    key = Key(limit)
    key.debit(15)
    for _ in range(30):
        assert not key.ask(1).allowed
        assert key.owed_us() > 0


COSTS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from((0, DEBIT)), st.integers(0, 12 * SECOND_US)),
    max_size=12,
)


@given(st.sampled_from([*LIMITS, *COUNT_REFUSED]), COSTS)
def test_debits_are_never_in_anybodys_favour(
    limit: Limit, steps: list[tuple[int, int, int]]
) -> None:
    """With debits, no request passes that would not pass without, and debts always end."""
    with_debits, without = Key(limit), Key(limit)
    for cost, max_wait_us, pause_us in steps:
        for key in (with_debits, without):
            key.now_us += pause_us
        if max_wait_us == DEBIT:
            with_debits.debit(cost)
        elif with_debits.ask(cost).allowed:
            assert cost == 0 or without.ask(cost).allowed
    with_debits.now_us += with_debits.owed_us()
    assert with_debits.owed_us() == 0


@given(st.sampled_from(LIMITS), st.integers(1, 40), st.integers(0, 30 * SECOND_US))
def test_gateways_that_know_no_debts_read_what_is_owed(
    limit: Limit, cost: int, later_us: int
) -> None:
    """As a spent limit: they admit no request that an empty one would refuse."""
    key, full = Key(limit), Key(limit)
    key.debit(cost)
    full.debit(min(cost, 10))
    for one in (key, full):
        one.now_us += later_us
    older = replace(limit, debt=0)
    said = key.ask(1, limit=older)
    if said.allowed:
        assert full.ask(1, limit=older).allowed
    assert said.retry_after_us >= 0
    assert key.ask(0, limit=older).remaining >= 0
