"""A share begins as full as the store last said that the whole limit was."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.assumed import assumed_state
from gateway.limits.rate import Limit

START_US = 1_800_000_000_000_000
RATES = ((100, 1_000_000), (7, 1_000_000), (1000, 3_600_000_000), (1, 60_000_000))
NAMES = sorted(set(ALGORITHMS) - {"concurrency"})


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    """Limits of all algorithms that count what passed."""
    count, period_us = draw(st.sampled_from(RATES))
    algorithm = draw(st.sampled_from(NAMES))
    bursts = (
        st.integers(1, 40) if algorithm in ("token_bucket", "paced_history") else st.just(count)
    )
    return Limit(count, period_us, draw(bursts), algorithm)


def _remaining(limit: Limit, state: Any, now_us: int) -> int:
    return ALGORITHMS[limit.algorithm].decide(state, now_us, 0, limit, 0)[1].remaining


@given(limits(), st.integers(1, 5), st.data())
def test_shares_have_left_what_the_whole_had_left(
    limit: Limit, parts: int, data: st.DataObject
) -> None:
    """When the answer arrives, a share has its part of the store's remainder, or one less."""
    share = limit.share(parts)
    algorithm = ALGORITHMS[limit.algorithm]
    state, now_us = None, START_US
    for pause_us in data.draw(st.lists(st.integers(0, limit.period_us // 3), max_size=60)):
        now_us += pause_us
        after, said = algorithm.decide(state, now_us, 1, limit, 0)
        state = after if said.allowed or state is not None else None
    said = algorithm.decide(state, now_us, 0, limit, 0)[1]
    left = _remaining(share, assumed_state(limit, share, said, now_us), now_us)
    assert left <= -(-said.remaining * share.burst // limit.burst)
    assert left >= said.remaining * share.burst // limit.burst - 1


@given(limits(), st.integers(1, 5))
def test_who_has_used_nothing_has_a_whole_share(limit: Limit, parts: int) -> None:
    """An unused limit has unused shares."""
    share = limit.share(parts)
    said = ALGORITHMS[limit.algorithm].decide(None, START_US, 0, limit, 0)[1]
    assert _remaining(share, assumed_state(limit, share, said, START_US), START_US) == share.burst


@given(limits(), st.integers(1, 5))
def test_what_was_said_is_forgotten_with_time(limit: Limit, parts: int) -> None:
    """Two periods of the share later, nothing is held against a key."""
    share = limit.share(parts)
    algorithm = ALGORITHMS[limit.algorithm]
    state, said = algorithm.decide(None, START_US, 1, limit, 0)
    for _ in range(limit.burst - 1):
        state, said = algorithm.decide(state, START_US, 1, limit, 0)
    later_us = START_US + 2 * max(share.period_us * share.burst // share.count, share.period_us)
    state = assumed_state(limit, share, said, START_US)
    assert _remaining(share, state, later_us + 1) == share.burst
