"""Limits of every algorithm with windows of a few microseconds, and keys with a past."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.decision import Decision
from gateway.limits.rate import Limit

START_US = 1_800_000_000_000_000
WITH_BURST = ("token_bucket", "paced_history")
COUNTS_REFUSED = ("sliding_window_log", "sliding_window_counter", "fixed_window")


class Past(NamedTuple):
    """What a key went through: its state now, and what was let through and not given back."""

    state: Any
    now_us: int
    passed: list[tuple[Decision, int]]


@st.composite
def limits(
    draw: st.DrawFn, algorithm: str, *, queue: bool = True, refused: bool | None = None
) -> Limit:
    """Small numbers, so that edges of windows and whole intervals are met often."""
    period_us = draw(st.integers(1, 30))
    most = min(8, period_us) if algorithm == "paced_history" else 8
    count = draw(st.integers(1, most))
    burst = draw(st.integers(1, 8)) if algorithm in WITH_BURST else count
    counts = algorithm in COUNTS_REFUSED and (draw(st.booleans()) if refused is None else refused)
    has_queue = queue and not counts and algorithm != "concurrency"
    wait_us = draw(st.integers(0, 3 * period_us)) if has_queue else 0
    return Limit(count, period_us, burst, algorithm, wait_us, count_refused=counts)


@st.composite
def pasts(draw: st.DrawFn, limit: Limit, *, steady: bool = False) -> Past:
    """A key after any decisions and undoings; unless `steady`, clocks go back as well."""
    algorithm = ALGORITHMS[limit.algorithm]
    state: Any = None
    now_us = START_US
    passed: list[tuple[Decision, int]] = []
    for _ in range(draw(st.integers(0, 14))):
        now_us += draw(st.integers(0 if steady else -limit.period_us, limit.period_us + 2))
        if passed and draw(st.integers(0, 3)) == 0:
            decision, cost = passed.pop(draw(st.integers(0, len(passed) - 1)))
            state = algorithm.give_back(state, now_us, cost, limit, decision.receipt)
            continue
        cost = draw(st.integers(1, limit.burst))
        wait_us = draw(st.sampled_from((0, limit.max_wait_us)))
        known = state is not None
        after, decision = algorithm.decide(state, now_us, cost, limit, wait_us)
        if decision.allowed or known:
            state = after
        if decision.allowed:
            passed.append((decision, cost))
    return Past(state, now_us, passed)


def longest_us(limit: Limit) -> int:
    """How long a key can be refused at most: a full limit, a full queue, and one interval."""
    window_us = max(limit.period_us, limit.burst * limit.period_us // limit.count)
    return 2 * window_us + limit.max_wait_us + limit.period_us + 2


def without_queue(limit: Limit) -> Limit:
    """The same limit for those who do not wait."""
    return replace(limit, max_wait_us=0)
