"""The law of fixed windows: so many in each, of the clock or of a calendar."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.calendar import CALENDARS, Calendar
from gateway.limits.fixed_window import State, bounds, give_back
from gateway.limits.rate import Limit
from tests.limits.schedules import START_US, limits

decide = ALGORITHMS["fixed_window"].decide

NAME = "fixed_window"
HOUR_US = 3_600_000_000


@given(st.data())
def test_exactly_the_limit_passes_in_each_window(data: st.DataObject) -> None:
    """A request passes if its window has room for its cost; otherwise in the next that has."""
    limit = data.draw(limits(NAME, refused=False))
    state: State | None = None
    now_us = latest_us = START_US
    counted: Counter[int] = Counter()
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us // 2 + 1))
        cost = data.draw(st.integers(1, limit.count))
        turn_us = max(now_us, latest_us)
        while counted[turn_us // limit.period_us] + cost > limit.count:
            turn_us += limit.period_us - turn_us % limit.period_us
        state, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        assert decision.allowed == (turn_us - now_us <= limit.max_wait_us)
        if decision.allowed:
            assert decision.wait_us == turn_us - now_us
            latest_us = turn_us
            counted[turn_us // limit.period_us] += cost
    assert max(counted.values()) <= limit.count


@given(st.data())
def test_undoing_lets_no_window_hold_more(data: st.DataObject) -> None:
    """Whatever is given back in whatever order, no window holds more than the limit."""
    limit = data.draw(limits(NAME, refused=False))
    state: State | None = None
    now_us = START_US
    passed: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        now_us += data.draw(st.integers(0, limit.period_us))
        if data.draw(st.booleans()) and passed:
            turn_us, cost = passed.pop(data.draw(st.integers(0, len(passed) - 1)))
            state = give_back(state, now_us, cost, limit, turn_us)
            continue
        cost = data.draw(st.integers(1, limit.count))
        after, decision = decide(state, now_us, cost, limit, limit.max_wait_us)
        if decision.allowed:
            state = after
            passed.append((decision.receipt, cost))
    counted: Counter[int] = Counter()
    for turn_us, cost in passed:
        counted[turn_us // limit.period_us] += cost
    assert all(used <= limit.count for used in counted.values())


def test_a_refused_request_fills_the_window() -> None:
    """With count_refused one that was too dear takes what is left, until the next window."""
    limit = Limit(5, 1_000_000, 5, NAME, count_refused=True)
    state, _ = decide(None, START_US, 3, limit, 0)
    state, refused = decide(state, START_US + 1, 3, limit, 0)
    assert (refused.allowed, refused.remaining) == (False, 0)
    assert not decide(state, START_US + 2, 1, limit, 0)[1].allowed
    assert decide(state, START_US + 1_000_000, 5, limit, 0)[1].allowed


_DAYS = [
    ("Europe/Berlin", datetime(2026, 3, 29, 9, tzinfo=UTC), 23.0),
    ("Europe/Berlin", datetime(2026, 10, 25, 9, tzinfo=UTC), 25.0),
    ("Australia/Lord_Howe", datetime(2026, 4, 5, 9, tzinfo=UTC), 24.5),
    ("America/Sao_Paulo", datetime(2017, 10, 15, 12, tzinfo=UTC), 23.0),
    ("Asia/Kathmandu", datetime(2026, 6, 1, 12, tzinfo=UTC), 24.0),
]


@pytest.mark.parametrize(("zone", "noon", "hours"), _DAYS)
def test_a_quota_lasts_the_whole_day(zone: str, noon: datetime, hours: float) -> None:
    """Spent in its first microsecond it comes back after 23, 24, 24.5 or 25 hours, not before."""
    limit = Limit(3, CALENDARS["day"], 3, NAME, calendar="day", zone=zone)
    start_us, end_us = bounds(int(noon.timestamp()) * 1_000_000, limit)
    state, spent = decide(None, start_us, 3, limit, 0)
    assert spent.reset_us == end_us - start_us == hours * HOUR_US
    state, refused = decide(state, end_us - 1, 1, limit, 0)
    assert (refused.allowed, refused.retry_after_us) == (False, 1)
    assert decide(state, end_us, 3, limit, 0)[1].allowed


@given(
    calendar=st.sampled_from(["day", "week", "month"]),
    zone=st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "America/New_York", "UTC"]),
    steps_us=st.lists(st.integers(0, 20 * 24 * HOUR_US), min_size=1, max_size=30),
)
def test_each_window_of_a_calendar_holds_the_limit(
    calendar: Calendar, zone: str, steps_us: list[int]
) -> None:
    """Whenever requests come in a year, each passes exactly if its own window has room."""
    limit = Limit(2, CALENDARS[calendar], 2, NAME, calendar=calendar, zone=zone)
    state: State | None = None
    now_us = START_US
    counted: Counter[tuple[int, int]] = Counter()
    for step_us in steps_us:
        now_us += step_us
        here = bounds(now_us, limit)
        state, decision = decide(state, now_us, 1, limit, 0)
        assert decision.allowed == (counted[here] < 2)
        if decision.allowed:
            counted[here] += 1
        else:
            assert now_us + decision.retry_after_us == here[1]


def test_a_turn_may_lie_some_windows_ahead() -> None:
    """A request that may wait for days is counted on the first day with room."""
    day = CALENDARS["day"]
    limit = Limit(1, day, 1, NAME, max_wait_us=3 * day, calendar="day", zone="Europe/Berlin")
    noon = int(datetime(2026, 3, 28, 11, tzinfo=UTC).timestamp()) * 1_000_000
    state: State | None = None
    waits: list[float] = []
    for _ in range(4):
        state, decision = decide(state, noon, 1, limit, limit.max_wait_us)
        waits.append(decision.wait_us / HOUR_US)
    assert waits == [0, 12, 35, 59]
    assert not decide(state, noon, 1, limit, limit.max_wait_us)[1].allowed


def test_a_changed_window_keeps_what_it_may_count() -> None:
    """From days to hours and back, and to another zone, what lies in the window is counted."""
    day = Limit(5, CALENDARS["day"], 5, NAME, calendar="day", zone="UTC")
    noon = int(datetime(2026, 3, 28, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000
    state, _ = decide(None, noon, 4, day, 0)
    for other in (
        replace(day, calendar=None, period_us=HOUR_US),
        replace(day, zone="Asia/Kathmandu"),
        replace(day, calendar="month"),
    ):
        assert decide(state, noon, 0, other, 0)[1].remaining == 1
