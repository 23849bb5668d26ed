"""How keys and states lie in MySQL's tables: laws of the translation, without a server."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.rate import Limit
from gateway.stores.mysql.rows import (
    EXPIRY_GRAIN_S,
    KeyNames,
    RowSlot,
    bucket_of,
    bucket_row,
    expiry_s,
    load,
    write_sql,
)

NOW_US = 1_764_287_507_123_456
LOG = Limit(50, 1_000_000, 50, "sliding_window_log", scope="s")

limits = st.builds(
    lambda count, period_us, burst: Limit(count, period_us, burst, scope="s"),
    st.integers(1, 100_000),
    st.integers(1_000, 10**9),
    st.integers(1, 10_000),
)
times = st.lists(st.integers(0, 300), max_size=30).map(
    lambda offsets: tuple(sorted(NOW_US + offset for offset in offsets))
)


@given(limit=limits, ahead_ns=st.integers(-(10**9), 10**12))
def test_a_bucket_in_their_terms_never_has_more(limit: Limit, ahead_ns: int) -> None:
    """Read back, the tokens and their moment hold at most what they were made of, and nearly it."""
    tat = NOW_US * 1000 + ahead_ns
    tokens, since_ms = bucket_row(tat, NOW_US, limit)
    back = bucket_of(tokens, since_ms, limit)
    bounded = max(tat, NOW_US * 1000)
    assert 0 <= tokens <= limit.burst
    assert bounded <= back < bounded + 10**6


@given(
    limit=limits,
    ahead_ns=st.integers(0, 10**12),
    later_ms=st.integers(0, 10**6),
    ago_ms=st.integers(-10, 1_100),
)
def test_their_arithmetic_never_lets_more_through(
    limit: Limit, ahead_ns: int, later_ms: int, ago_ms: int
) -> None:
    """Refilled as ThrottleX does it, the row never has more tokens than the exact bucket."""
    tat = NOW_US * 1000 + ahead_ns
    tokens, since_ms = bucket_row(tat, NOW_US, limit, NOW_US // 1000 - ago_ms)
    assert 0 <= tokens <= limit.burst
    at_ms = -(-NOW_US // 1000) + later_ms
    added = int((at_ms - since_ms) * Fraction(limit.count * 1000, limit.period_us))
    theirs = min(limit.burst, tokens + max(added, 0))
    exact = ALGORITHMS["token_bucket"].decide(tat, at_ms * 1000, 0, limit, 0)[1].remaining
    # The interval is rounded up to whole nanoseconds, which theirs is not.
    elapsed_ns = (at_ms - since_ms) * 10**6
    assert theirs <= exact + 1 + max(elapsed_ns, 0) // limit.interval_ns**2


def test_a_busy_row_keeps_its_moment() -> None:
    """For a second a decision takes a token and nothing else, as in ThrottleX."""
    limit = Limit(10, 1_000_000, 100, scope="s")
    state, _ = ALGORITHMS["token_bucket"].decide(None, NOW_US, 20, limit, 0)
    tokens, since_ms = bucket_row(state, NOW_US, limit)
    for taken in range(1, 9):
        at_us = NOW_US + taken * 100_000
        state, decision = ALGORITHMS["token_bucket"].decide(state, at_us, 1, limit, 0)
        assert decision.allowed
        assert bucket_row(state, at_us, limit, since_ms) == (tokens - taken, since_ms)
    tokens, since_ms = bucket_row(state, NOW_US + 2_000_000, limit, since_ms)
    assert tokens == 80 - 8 + 20


def written(slot: RowSlot) -> dict[str, str]:
    """The statements that write a slot, by their first words."""
    statements = [text for text in write_sql([slot], NOW_US).split(";") if text != "COMMIT"]
    return {" ".join(text.split()[:3]): text for text in statements}


@given(old=times, new=times)
def test_a_log_is_changed_into_what_it_shall_be(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    """Whatever is deleted and added, the rows are those of the new state afterwards."""
    slot = RowSlot("k", LOG)
    row = (7, "k", 50, 1, None, 2**40)
    load({"k": slot}, [row], [("k", time_us, number) for number, time_us in enumerate(old)], 0)
    assert slot.state == (old or None)
    slot.state = new
    table = dict(enumerate(old))
    statements = written(slot)
    deleted = statements.get("DELETE FROM throttlex_sw_log", "")
    for number in re.findall(r"\d+", deleted):
        del table[int(number)]
    inserted = statements.get("INSERT INTO throttlex_sw_log", "")
    added = [int(ms) * 1000 + int(us) for ms, us in re.findall(r"\('k',(\d+),(\d+)\)", inserted)]
    assert sorted([*table.values(), *added]) == list(new)


def test_the_usual_change_of_a_log_is_small() -> None:
    """One that left and one that came are one row each, however long the log is."""
    old = tuple(range(NOW_US, NOW_US + 50))
    slot = RowSlot("k", LOG)
    load({"k": slot}, [(7, "k", 50, 1, None, 2**40)], [("k", t, n) for n, t in enumerate(old)], 0)
    slot.state = (*old[1:], NOW_US + 99)
    assert slot.log_changes() == ([0], (NOW_US + 99,))
    assert not slot.needs_row()


@given(
    algorithm=st.sampled_from(sorted(ALGORITHMS.keys() - {LOG.algorithm})),
    costs=st.lists(st.integers(1, 3), min_size=1),
)
def test_states_come_back_as_they_were(algorithm: str, costs: list[int]) -> None:
    """An unchanged row gives exactly the state that was written, whatever it is."""
    limit = Limit(40, 10**9, 40, algorithm, scope="s")
    state: Any = None
    for cost in costs:
        state, _ = ALGORITHMS[algorithm].decide(state, NOW_US, cost, limit, 0)
    slot = RowSlot("k", limit)
    slot.state = state
    match = re.search(
        r"\(NULL,'k',(-?\d+),(\d+),'([^']+)',(\d+)\)",
        written(slot)["INSERT INTO throttlex_usage"],
    )
    assert match
    tokens, refill, text, expires = int(match[1]), int(match[2]), match[3], int(match[4])
    again = RowSlot("k", limit)
    again.load_row((1, "k", tokens, refill, text, expires), 0)
    assert again.state == state
    assert not again.is_changed
    changed = RowSlot("k", limit)
    changed.load_row((1, "k", tokens, refill + 1, text, expires), 0)
    assert changed.state != state or algorithm == "token_bucket"


@given(limit=limits, ahead_us=st.integers(0, 10**10))
def test_expiries_are_late_by_less_than_a_grain(limit: Limit, ahead_us: int) -> None:
    """A row is never removed too early, and not kept for long."""
    state = (NOW_US + ahead_us) * 1000
    exact_us = ALGORITHMS["token_bucket"].expires_us(state, limit)
    late_us = expiry_s(state, limit) * 1_000_000 - exact_us
    assert 0 <= late_us < EXPIRY_GRAIN_S * 1_000_000


@given(
    keys=st.sets(st.text(max_size=300), min_size=2, max_size=5),
    throttlex=st.sampled_from(("", "s")),
)
def test_names_are_distinct_bounded_and_need_no_escape(keys: set[str], throttlex: str) -> None:
    """For every identity, scope, algorithm and domain, under any collation."""
    limit = Limit(1, 1, 1, scope="s")
    names = [KeyNames("d", throttlex).name(limit, key) for key in keys]
    names += [KeyNames("d", throttlex).name(replace(limit, scope="t"), key) for key in keys]
    names += [KeyNames("e", "").name(limit, key) for key in keys]
    names += [KeyNames("d", "").name(replace(limit, algorithm="fixed_window"), key) for key in keys]
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch(r"[0-9A-Za-z._:/+@#-]{1,200}", name) for name in names)
