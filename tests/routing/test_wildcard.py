"""Values with `*` for any text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.wildcard import compile_value, covers, is_wildcard

PATTERNS = st.text("ab*", max_size=6)
VALUES = st.text("ab", max_size=6)


@given(PATTERNS, VALUES)
def test_they_match_as_expressions_do(pattern: str, value: str) -> None:
    """With any number of asterisks."""
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert compile_value(pattern)(value) == bool(re.fullmatch(expression, value))
    assert is_wildcard(pattern) == ("*" in pattern)


@given(PATTERNS, PATTERNS, VALUES)
def test_what_covers_another_matches_all_of_its_values(
    general: str, special: str, value: str
) -> None:
    """Otherwise a route would be called unreachable that is not."""
    if covers(general, special) and compile_value(special)(value):
        assert compile_value(general)(value)


def test_a_literal_asterisk() -> None:
    """After a backslash, which is itself only special there."""
    assert compile_value("a\\*b")("a*b")
    assert not compile_value("a\\*b")("axb")
    assert not is_wildcard("a\\*b")
    assert compile_value("\\*/*")("*/json")
    assert compile_value("C:\\x")("C:\\x")
    assert covers("a*", "a\\*b")
    assert not covers("b*", "a\\*b")
    assert covers("*", "a*")
    assert not covers("a*", "*")
