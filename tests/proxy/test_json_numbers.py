"""Numbers in JSON that passes in pieces."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.expression import MAX_COST
from gateway.proxy.json_numbers import JsonNumbers

FIELDS = ("total", "usage.total", "usage.a.b", "a.total", "usage")
_keys = st.sampled_from(["usage", "total", "a", "b", 'q"{', "é", ""])
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.just('\\"{[,:'),
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_keys, inner, max_size=5)),
    max_leaves=30,
)


def read(text: bytes, fields: Sequence[str] = FIELDS, sizes: Sequence[int] = (7,)) -> JsonNumbers:
    """Read a text in pieces of these sizes, by turns."""
    numbers = JsonNumbers(fields)
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        numbers.feed(text[at : at + size])
        at += size
        turn += 1
    numbers.end()
    return numbers


def wanted(value: object, fields: Sequence[str] = FIELDS) -> dict[str, float]:
    """What a parser of whole texts finds."""
    found = {}
    for field in fields:
        part = value
        for key in field.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, int | float) and not isinstance(part, bool):
            found[field] = float(max(min(part, MAX_COST), -MAX_COST))
    return found


@given(
    st.dictionaries(_keys, _values, max_size=6),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_it_finds_what_a_parser_finds(
    value: dict[str, object], ascii_only: bool, indent: int | None, sizes: list[int]
) -> None:
    """However the text is spelled, and wherever it is cut."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert read(text, sizes=sizes).found == wanted(value)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_no_bytes_do_harm(text: bytes, sizes: list[int]) -> None:
    """What is no JSON has no numbers, or some."""
    assert all(isinstance(each, float) for each in read(text, sizes=sizes).found.values())


@pytest.mark.parametrize(
    "text",
    ['{"usage": {"total": 1}, "usage": {"total": 5}}', '{"u\\u0073age": {"total": 5}}'],
)
def test_names_are_compared_as_parsers_compare_them(text: str) -> None:
    """The last of two counts, and escapes are undone."""
    assert read(text.encode(), ["usage.total"]).found == {"usage.total": 5.0}


def test_texts_follow_each_other() -> None:
    """What one of them said stays until another says it again."""
    numbers = JsonNumbers(["usage.total"])
    for text in (b'{"usage": {"total": 3}}', b'{"usage": null}', b'{"usage": {"tot'):
        numbers.begin()
        numbers.feed(text)
    numbers.begin()
    assert numbers.found == {"usage.total": 3.0}
    numbers.feed(b'{"usage": {"total": 4}')
    assert numbers.found == {"usage.total": 4.0}


def test_long_parts_are_not_kept() -> None:
    """A text of any length passes, between fields and within them; a key has an end."""
    numbers = JsonNumbers(["usage.total"])
    piece = b"x" * 60_000 + b"\\"
    tracemalloc.start()
    numbers.feed(b'{"text": "')
    for _ in range(200):
        numbers.feed(piece)
        numbers.feed(b'"')
    numbers.feed(b'", "list": [')
    for _ in range(200):
        numbers.feed(b"0.125, " * 8_000)
    numbers.feed(b'1], "usage": {"total": 12}}')
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert numbers.found == {"usage.total": 12.0}
    assert peak < 1 << 20
    lost = JsonNumbers(["usage.total"])
    lost.feed(b'{"' + b"k" * 10_000)
    assert lost.is_lost
    lost.feed(b'": 1, "usage": {"total": 1}}')
    assert lost.found == {}
