"""Expressions: what they mean, and what is none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.expression import (
    MAX_COST,
    ExpressionError,
    as_cost,
    as_number,
    parse_expression,
)


def value(text: str, names: Mapping[str, float | None] | None = None) -> float | None:
    """What an expression gives."""
    known = names or {}
    evaluate = parse_expression(text).compile(lambda name: lambda _: known.get(name))
    return evaluate(None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5", 5),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("8 / 4 / 2", 1),
        ("1.5*2", 3),
        ("max(1, 2, 3) + min(4, 5)", 7),
        ("64KiB / 1KiB", 64),
        ("1MB", 1e6),
        ("1m / 500ms", 120),
        ("1 / 0", None),
        ("first(1 / 0, 7)", 7),
    ],
)
def test_arithmetic(text: str, wanted: float | None) -> None:
    """As in school."""
    assert value(text) == wanted


def test_names() -> None:
    """A missing one makes the whole missing, unless another takes its place."""
    names = {"size": 100_000.0, "header:X-Cost": None, "json:usage.total_tokens": 7.0}
    assert value("1 + size / 64KiB", names) == 1 + 100_000 / 65_536
    assert value("1 + header:X-Cost", names) is None
    assert value("max(1, header:X-Cost)", names) == 1
    assert value("min(5, size, header:X-Cost)", names) == 5
    assert value("max(header:X-Cost, query:no)", names) is None
    assert value("first(header:X-Cost, json:usage.total_tokens, 3)", names) == 7
    assert value("first(header:X-Cost, query:no)", names) is None
    assert value("header:X-Cost * 0", names) is None
    read = parse_expression("header:X-A-1 + size - header:X-A-1")
    assert read.names == ("header:X-A-1", "size")
    assert (read.constant, parse_expression("2 * 2.1").constant) == (None, 5)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "the expression ends too early"),
        ("1 +", 4, "the expression ends too early"),
        ("1 2", 3, "'2' was not expected here"),
        ("1 + * 2", 5, "a number or a name was expected, and found '*'"),
        ("(1 + 2", 7, "a closing parenthesis is missing"),
        ("max(1", 6, "a closing parenthesis is missing"),
        ("max 1", 5, "max is a function"),
        ("5 bananas", 3, "'bananas' was not expected here"),
        ("5bananas", 1, "'bananas' is not a unit"),
        ("size ** 2", 7, "a number or a name was expected, and found '*'"),
        ("__import__('os')", 11, "\"('os')\" was not expected here"),
        ("1 if 2 else 3", 3, "'if 2 else 3' was not expected here"),
        ("-5", 1, "a number or a name was expected, and found '-'"),
        ("(" * 40 + "1" + ")" * 40, 18, "the expression is nested too deeply"),
        ("1+" * 200 + "1", 1, "an expression has at most 256 characters"),
    ],
)
def test_what_is_none(text: str, column: int, message: str) -> None:
    """It is said what, and where."""
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert (caught.value.message, caught.value.column) == (message, column)


@given(st.text(max_size=300))
def test_no_text_does_harm(text: str) -> None:
    """Every text is an expression or an error, and all that is in one is a number or a name."""
    try:
        found = parse_expression(text)
    except ExpressionError:
        return
    cost = as_cost(found.compile(lambda _: lambda _: 1.0)(None))
    assert cost is None or 0 <= cost <= MAX_COST


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_it_counts_as_python_does(a: int, b: int, c: int) -> None:
    """With whole numbers that a float holds exactly."""
    wanted = {
        f"{a} + {b} * {c}": a + b * c,
        f"({a} - {b}) / {c}": (a - b) / c,
        f"max({a}, {b}) - min({b}, {c})": max(a, b) - min(b, c),
    }
    for text, result in wanted.items():
        assert value(text) == result


def test_it_is_sent_to_other_processes() -> None:
    """As what it was written as."""
    read = parse_expression("1 + size / 64KiB")
    for other in (pickle.loads(pickle.dumps(read)), copy.deepcopy(read)):  # noqa: S301 - our own
        assert (other, other.names, hash(other)) == (read, ("size",), hash(read))
        assert other.compile(lambda _: lambda _: 65_536.0)(None) == 2


def test_costs_are_whole_and_bounded() -> None:
    """Rounded up; never negative, and never more than can be counted."""
    assert [as_cost(each) for each in (0.0, 0.1, 2.0, -3.0, 1e300)] == [0, 1, 2, 0, MAX_COST]
    assert [as_cost(each) for each in (None, float("inf"), float("nan"))] == [None] * 3


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("12", 12.0),
        (" 1.5 ", 1.5),
        (7, 7.0),
        ("-1", None),
        ("1e9", None),
        ("0x10", None),
        ("", None),
        (None, None),
        (True, None),
        ("9" * 16, float(MAX_COST)),
        ("9" * 500, float(MAX_COST)),
        (10**400, float(MAX_COST)),
        (float("inf"), float(MAX_COST)),
        (float("nan"), None),
        ("٣", None),
    ],
)
def test_numbers_of_others(text: object, wanted: float | None) -> None:
    """Only plain ones are believed."""
    assert as_number(text) == wanted
