"""What was admitted and the store does not know: nothing is lost, nothing is there twice."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.limiter.admissions import Unreported
from gateway.limits.rate import Limit

LIMIT: Final = Limit(10, 1_000_000, 10, scope="p/ip")
KEYS: Final = st.sampled_from(["a", "b", "c"])
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("note"), KEYS, st.integers(1, 5)),
        st.tuples(st.just("undo"), KEYS, st.integers(1, 5)),
        st.tuples(st.just("pop"), KEYS, st.just(0)),
        st.tuples(st.just("gather"), KEYS, st.just(0)),
        st.tuples(st.just("take"), KEYS, st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_each_admission_is_reported_once(steps: list[tuple[str, str, int]]) -> None:
    """Unless it was undone before; keys go in the order in which they came."""
    fresh, leaving = Unreported(), Unreported()
    left: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    for step, key, cost in steps:
        name = (LIMIT.scope, key)
        if step == "note":
            fresh.note(LIMIT, LIMIT, key, cost)
            noted[key] += cost
        elif step == "undo":
            undone = fresh.undo(name, cost)
            left[key] += undone + leaving.undo(name, cost - undone)
        elif step == "gather":
            leaving.take_over(fresh)
            fresh = Unreported()
        elif step == "pop":
            popped = leaving.pop(name)
            reported[key] += popped.cost if popped else 0
        else:
            for one in leaving.take():
                reported[one.key] += one.cost
                assert (LIMIT.scope, one.key) not in leaving
                break
    for key in "abc":
        name = (LIMIT.scope, key)
        still = fresh.cost_of(name) + leaving.cost_of(name)
        assert noted[key] == left[key] + reported[key] + still
    assert len([*leaving.take()]) <= 3
    assert leaving.first is None
