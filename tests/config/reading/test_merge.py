"""Several files as one configuration: what is in any of them, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.reading.merge import merge
from gateway.config.reading.nodes import node_of, plain

SECTIONS = st.dictionaries(
    st.sampled_from(["routes", "policies", "upstreams"]),
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(), max_size=3),
)


def merged(*files: dict[str, Any]) -> tuple[Any, list[str]]:
    """The data of the joined files, and what is wrong with them."""
    root, problems = merge([node_of(data, f"{n}.yaml") for n, data in enumerate(files)])
    return plain(root), [str(problem) for problem in problems]


@given(first=SECTIONS, second=SECTIONS)
def test_members_of_a_section_come_from_every_file(
    first: dict[str, dict[str, int]], second: dict[str, dict[str, int]]
) -> None:
    """A name in two files is a problem, and the first file's value stays; others are joined."""
    data, problems = merged(first, second)
    twice = {(a, b) for a, names in first.items() for b in names if b in second.get(a, {})}
    assert len(problems) == len(twice)
    assert data == {
        name: {**second.get(name, {}), **first.get(name, {})} for name in {**first, **second}
    }


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"listen": [1]}, {"listen": [2]}, "listen is already a list in 0.yaml:"),
        ({"domain": "a"}, {"domain": "b"}, "domain is already in 0.yaml:"),
        ({"routes": {"/": {"a": 1}}}, {"routes": {"/": {"b": 1}}}, "routes./ is already in"),
    ],
)
def test_what_stands_in_two_files_is_named_with_both(
    first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    """Lists and whole entries are written in one file."""
    _, (problem,) = merged(first, second)
    assert problem.startswith("1.yaml:")
    assert message in problem


def test_a_file_that_is_no_mapping_is_named() -> None:
    """It cannot be joined with others."""
    root, (problem,) = merge([node_of({"domain": "a"}, "0.yaml"), node_of([1], "1.yaml")])
    assert plain(root) == {"domain": "a"}
    assert "not a mapping" in str(problem)
