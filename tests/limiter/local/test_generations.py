"""A dictionary that forgets in generations, against one that remembers when each entry was used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.limiter.local.generations import Generations

AGE_US = 10
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 25)), max_size=40)


@given(steps=STEPS)
def test_what_is_used_within_its_age_is_kept_and_what_is_long_unused_is_forgotten(
    steps: list[tuple[str, bool, int]],
) -> None:
    """As long as there is room, an entry is there for its age after each use, and not for three."""
    kept = Generations[str, int](100, AGE_US)
    values: dict[str, int] = {}
    used_us: dict[str, int] = {}
    now_us = 0
    for key, is_put, later_us in steps:
        now_us += later_us
        found = kept.get(key, now_us)
        if found is not None:
            assert found == values[key]
        if key in used_us:
            unused_us = now_us - used_us[key]
            assert found is not None or unused_us >= AGE_US
            assert found is None or unused_us < 3 * AGE_US
        if is_put:
            values[key] = now_us
            kept.put(key, now_us, now_us)
        if is_put or found is not None:
            used_us[key] = now_us
        else:
            used_us.pop(key, None)


@given(keys=st.lists(st.integers(0, 50), max_size=200), capacity=st.integers(1, 8))
def test_no_more_is_kept_than_there_is_room_for(keys: list[int], capacity: int) -> None:
    """Two generations of so many entries; the entry that was put last is always there."""
    kept = Generations[int, int](capacity, AGE_US)
    for key in keys:
        kept.put(key, key, 0)
        assert len(kept) <= 2 * capacity
        assert kept.get(key, 0) == key
