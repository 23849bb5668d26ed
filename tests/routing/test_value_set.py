"""Sets of texts are sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.value_set import ValueSet, ValueTable

TEXTS = st.text(max_size=6) | st.text("ab", max_size=3) | st.sampled_from(["\udc80", "é", "\0"])


@given(st.lists(TEXTS, max_size=40), st.lists(TEXTS, max_size=20))
def test_they_have_what_was_put_in_and_nothing_else(values: list[str], others: list[str]) -> None:
    """Whatever the texts, and however often each was put in."""
    found = ValueSet(values)
    for text in (*values, *others):
        assert (text in found) == (text in set(values))


def test_a_text_has_one_number() -> None:
    """The same one may be there twice."""
    assert ValueTable([("a", 1), ("b", 2), ("a", 1)]).find("a") == 1
    with pytest.raises(ValueError, match="a"):
        ValueTable([("a", 1), ("b", 2), ("a", 3)])


def test_many() -> None:
    """More than fit in one piece, with pauses between."""
    pauses: list[int] = []
    found = ValueSet((str(number) for number in range(5_000)), lambda: pauses.append(1))
    assert len(pauses) > 10
    assert all(str(number) in found for number in range(5_000))
    assert not any(str(number) in found for number in range(5_000, 10_000))
