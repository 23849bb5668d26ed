"""Patterns of owners and resources, and which rule is found by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.ratio.rules import RulePattern, compile_pattern, compile_rules

TEXTS = st.text("ab/*", max_size=8)


def _matches(pattern: str, text: str) -> bool:
    """The meaning of a star, said as plainly as can be."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_matches(pattern[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return text[:1] == pattern[0] and _matches(pattern[1:], text[1:])


@given(TEXTS, TEXTS)
def test_a_star_stands_for_any_text(pattern: str, text: str) -> None:
    """And everything else for itself."""
    assert compile_pattern(pattern)(text) == _matches(pattern, text)


@pytest.mark.parametrize("text", [".", "a.b", "[a]", "(", "\\", "a\nb", "ä", "$", "^", "{x}", ""])
def test_nothing_else_means_anything(text: str) -> None:
    """Characters that mean something elsewhere are characters, lines are no ends."""
    assert compile_pattern(text)(text)
    assert compile_pattern(f"*{text}*")(f"x{text}\ny")
    assert not compile_pattern(text)(f"{text}x")


def test_a_long_text_against_many_stars_takes_no_time() -> None:
    """The timeout of tests decides: trying every way to split it would take forever."""
    pattern = compile_pattern("*a" * 400 + "*b")
    assert not pattern("a" * 60_000)
    assert compile_pattern("*ab" * 300 + "*")("ab" * 20_000)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5), TEXTS, TEXTS)
def test_the_first_rule_that_matches_is_found(
    pairs: list[tuple[str, str]], owner: str, resource: str
) -> None:
    """By owner and resource; -1 if there is none."""
    found = compile_rules([RulePattern(*pair) for pair in pairs])(owner, resource)
    matching = [
        index
        for index, (one, other) in enumerate(pairs)
        if _matches(one, owner) and _matches(other, resource)
    ]
    assert found == (matching[0] if matching else -1)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_is_wider_matches_all_that_the_other_does(
    owner: str, resource: str, one: str, other: str
) -> None:
    """So that a rule after it never has its turn."""
    pattern = RulePattern(owner, resource)
    assert pattern.short() in pattern.wider()
    if _matches(owner, one) and _matches(resource, other):
        for wide in pattern.wider():
            assert _matches(wide[0], one)
            assert _matches(wide[1], other)
