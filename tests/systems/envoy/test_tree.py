"""Which rule a descriptor is held to."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.envoy.tree import Entry, Tree, is_like

KEYS = st.sampled_from("ab")
VALUES = st.text("xy", max_size=3)
PATTERNS = st.text("xy*", max_size=4).map(lambda text: re.sub(r"\*+", "*", text))
MATCHES = st.lists(st.tuples(KEYS, PATTERNS), min_size=1, max_size=3).map(tuple)
ENTRIES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3)


def tree(*matches: Sequence[Entry]) -> Tree[int]:
    """A tree of the numbers of some matches."""
    made = Tree[int]()
    for number, match in enumerate(matches):
        made.add(match, number)
    return made


def test_a_value_that_is_written_comes_before_any_value() -> None:
    """In whichever order they were added."""
    for found in (tree([("k", "*")], [("k", "v")]), tree([("k", "v")], [("k", "*")])):
        assert found.find([("k", "v")]) != found.find([("k", "w")]) is not None


def test_patterns_come_between_in_the_order_in_which_they_were_added() -> None:
    """The first that the value is like."""
    found = tree([("p", "*")], [("p", "/v1/*")], [("p", "/v1/a*")], [("p", "/v1/ab")])
    assert found.find([("p", "/v1/abc")]) == 1
    assert found.find([("p", "/v1/ab")]) == 3
    assert found.find([("p", "/v2")]) == 0


def test_a_descriptor_is_as_deep_as_its_rule() -> None:
    """Neither less nor more."""
    found = tree([("a", "1"), ("b", "2")])
    assert found.find([("a", "1"), ("b", "2")]) == 0
    assert found.find([("a", "1")]) is None
    assert found.find([("a", "1"), ("b", "2"), ("c", "3")]) is None
    assert found.find([("b", "2"), ("a", "1")]) is None


def test_there_is_no_way_back_from_a_written_value() -> None:
    """As with Envoy's own service."""
    found = tree([("a", "1"), ("b", "*")], [("a", "*"), ("c", "*")])
    assert found.find([("a", "2"), ("c", "x")]) == 1
    assert found.find([("a", "1"), ("c", "x")]) is None


def test_two_rules_with_the_same_match_are_an_error() -> None:
    """Which of them would it be?"""
    with pytest.raises(ValueError, match="same match"):
        tree([("a", "*")], [("a", "*")])


@given(VALUES, st.text("xy*", max_size=5).filter(lambda text: "*" in text))
def test_a_star_stands_for_any_text(value: str, pattern: str) -> None:
    """As in an equivalent regular expression."""
    wanted = re.fullmatch(pattern.replace("*", ".*"), value) is not None
    assert is_like(value, pattern.split("*")) == wanted


def naive(matches: Sequence[tuple[Entry, ...]], entries: Sequence[Entry]) -> int | None:
    """The same, looked up in the list itself."""
    path: tuple[Entry, ...] = ()
    for key, value in entries:
        here = [
            match[len(path)][1]
            for match in matches
            if match[: len(path)] == path and len(match) > len(path) and match[len(path)][0] == key
        ]
        like = [one for one in here if re.fullmatch(one.replace("*", ".*"), value)]
        ranked = sorted(like, key=lambda one: (one != value, one == "*"))
        if not ranked:
            return None
        path = (*path, (key, ranked[0]))
    return matches.index(path) if path in matches else None


@given(st.lists(MATCHES, unique=True, max_size=8), ENTRIES)
def test_whatever_is_added_is_found_as_in_a_list(
    matches: list[tuple[Entry, ...]], entries: list[Entry]
) -> None:
    """Any rules, any descriptor."""
    assert tree(*matches).find(entries) == naive(matches, entries)
