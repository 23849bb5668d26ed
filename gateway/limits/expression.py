"""Small arithmetic over named numbers: what a request costs.

    5 + size / 64KiB
    max(1, query:limit / 100)
    json:usage.prompt_tokens + 4 * json:usage.completion_tokens

There are numbers (with units of size and time), names, `+ - * /`, parentheses, and three functions:
`min`, `max`, and `first`, which is the first of its arguments that there is. There is nothing else,
so an expression always ends, and after as many steps as it has parts.

A name whose value is missing, or is no number, makes the whole missing, except as an argument of a
function, which looks at those that there are. A division by zero has no result either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Any, Final

Value = float | None
Evaluate = Callable[[Any], Value]
"""Returns the value of an expression for a request, a response or the like; None if missing."""

MAX_LENGTH: Final = 256
MAX_DEPTH: Final = 16
"""How deep parentheses and functions may be nested."""
MAX_COST: Final = 2**53
"""The greatest cost; from here on not every whole number is a float."""

UNITS: Final = {
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
}
"""Sizes are in bytes, and times in seconds."""

_FUNCTIONS: Final = ("min", "max", "first")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z]*)"
    r"|(?P<name>[a-z_]+(?::[A-Za-z0-9_.-]*[A-Za-z0-9_])?)"
    r"|(?P<mark>[-+*/(),]))"
)


class ExpressionError(ValueError):
    """A text that is no expression.

    Attributes:
        message: what was found.
        hint: what would do.
        column: where in the text, counted from 1.
    """

    def __init__(self, message: str, hint: str = "", column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.column = column


class Expression:
    """An expression that was read.

    Args:
        text: as written.
        names: the names in it, each once, in order.
        build: given the reader of each name, returns what evaluates it.
    """

    __slots__ = ("_build", "names", "text")

    def __init__(
        self,
        text: str,
        names: Sequence[str],
        build: Callable[[Callable[[str], Evaluate]], Evaluate],
    ) -> None:
        self.text = text
        self.names = tuple(names)
        self._build = build

    def __repr__(self) -> str:
        return f"<Expression {self.text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Callable[[str], Expression], tuple[str]]:
        # Copied, and sent to other processes, as text: what it was compiled to cannot be.
        return parse_expression, (self.text,)

    @property
    def constant(self) -> int | None:
        """The cost that it always gives; None if that depends on something."""
        return None if self.names else as_cost(self._build(_no_name)(None))

    def compile(self, reader_of: Callable[[str], Evaluate]) -> Evaluate:
        """Return what evaluates the expression.

        Args:
            reader_of: returns what reads the value of a name.
        """
        return self._build(reader_of)


def as_cost(value: Value) -> int | None:
    """Return a value as a cost, rounded up: whole, and not below 0; None if there is none."""
    if value is None or not isfinite(value):
        return None
    return min(max(ceil(value), 0), MAX_COST)


def as_number(text: object) -> Value:
    """Return the number that a header, a parameter or a field of JSON holds; None if it is none."""
    if isinstance(text, bool):
        return None
    if isinstance(text, str) and _is_number(text.strip()):
        text = float(text)
    if not isinstance(text, int | float) or text != text:  # noqa: PLR0124 - not a number
        return None
    # More than any limit has, whatever it is exactly.
    return float(max(min(text, MAX_COST), -MAX_COST))


_is_number = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII).fullmatch


def parse_expression(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: it is none.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters")
    reader = _ExpressionReader(text)
    build = reader.sum(0)
    reader.end()
    return Expression(text.strip(), list(dict.fromkeys(reader.names)), build)


_Build = Callable[[Callable[[str], Evaluate]], Evaluate]


def _no_name(name: str) -> Evaluate:
    raise AssertionError(f"there is no name in this expression: {name}")


class _ExpressionReader:
    """Reads an expression by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.names: list[str] = []

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _error(self, message: str, hint: str = "") -> ExpressionError:
        rest = self._text[self._at :]
        column = self._at + len(rest) - len(rest.lstrip()) + 1
        return ExpressionError(message, hint, column)

    def _takes(self, marks: str) -> str:
        """Read one of these marks, if it is next; return it, or nothing."""
        found = self._peek()
        mark: str | None = None if found is None else found["mark"]
        if found is None or mark is None or mark not in marks:
            return ""
        self._at = found.end()
        return mark

    def end(self) -> None:
        """Check that nothing is left."""
        rest = self._text[self._at :].strip()
        if rest:
            hint = (
                "an operator is missing" if self._peek() else "use numbers, names and + - * / ( )"
            )
            raise self._error(f"{rest!r} was not expected here", hint)

    def sum(self, depth: int) -> _Build:
        left = self._product(depth)
        while mark := self._takes("+-"):
            left = _combined(mark, left, self._product(depth))
        return left

    def _product(self, depth: int) -> _Build:
        left = self._factor(depth)
        while mark := self._takes("*/"):
            left = _combined(mark, left, self._factor(depth))
        return left

    def _factor(self, depth: int) -> _Build:
        if depth > MAX_DEPTH:
            raise self._error("the expression is nested too deeply")
        if self._takes("("):
            inner = self.sum(depth + 1)
            self._close()
            return inner
        found = self._peek()
        if found is None or found["mark"] is not None:
            rest = self._text[self._at :].strip()
            raise self._error(
                f"a number or a name was expected, and found {rest[:1]!r}"
                if rest
                else "the expression ends too early"
            )
        if found["number"] is not None:
            return self._number(found)
        name: str = found["name"]
        if name in _FUNCTIONS:
            self._at = found.end()
            return self._call(name, depth)
        self._at = found.end()
        self.names.append(name)
        return lambda reader_of: reader_of(name)

    def _number(self, found: re.Match[str]) -> _Build:
        unit: str = found["unit"]
        if unit and unit not in UNITS:
            raise self._error(f"{unit!r} is not a unit", f"use one of {', '.join(UNITS)}")
        self._at = found.end()
        number = float(found["number"]) * (UNITS[unit] if unit else 1.0)
        return lambda _: lambda _subject: number

    def _call(self, name: str, depth: int) -> _Build:
        if not self._takes("("):
            raise self._error(f"{name} is a function", f"write {name}(a, b)")
        parts = [self.sum(depth + 1)]
        while self._takes(","):
            parts.append(self.sum(depth + 1))
        self._close()
        return _called(name, parts)

    def _close(self) -> None:
        if not self._takes(")"):
            raise self._error("a closing parenthesis is missing")


def _combined(mark: str, left: _Build, right: _Build) -> _Build:
    def build(reader_of: Callable[[str], Evaluate]) -> Evaluate:
        first, second = left(reader_of), right(reader_of)

        def evaluate(subject: Any) -> Value:
            one, other = first(subject), second(subject)
            if one is None or other is None:
                return None
            match mark:
                case "+":
                    return one + other
                case "-":
                    return one - other
                case "*":
                    return one * other
            return one / other if other else None

        return evaluate

    return build


def _called(name: str, parts: Sequence[_Build]) -> _Build:
    def build(reader_of: Callable[[str], Evaluate]) -> Evaluate:
        each = [part(reader_of) for part in parts]

        def first(subject: Any) -> Value:
            for one in each:
                value = one(subject)
                if value is not None:
                    return value
            return None

        def extreme(subject: Any) -> Value:
            values: list[float] = []
            for one in each:
                value = one(subject)
                if value is not None:
                    values.append(value)
            if not values:
                return None
            return min(values) if name == "min" else max(values)

        return first if name == "first" else extreme

    return build
