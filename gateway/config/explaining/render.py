"""Problems as a compiler shows them: position, message, the line with a caret, and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import east_asian_width

from gateway.base.errors import Problem

_TAB = "    "


def render(problems: Iterable[Problem], label: str = "") -> str:
    """Return all problems as text, separated by empty lines; ends without a newline.

    Args:
        problems: what to show.
        label: the kind of problem, such as `warning`; may be empty.
    """
    return "\n\n".join(_render(problem, label) for problem in problems)


def _render(problem: Problem, label: str) -> str:
    place = f"{problem.file}:{problem.line}:{problem.column}" if problem.line else problem.file
    where = f" {_printable(problem.path)}:" if problem.path else ""
    kind = f" {label}:" if label else ""
    lines = [f"{place}:{kind}{where} {_printable(problem.message)}"]
    if problem.source.strip():
        cut = "..." if problem.source_column > 1 else ""
        source = cut + problem.source
        before = source[: len(cut) + problem.column - problem.source_column]
        number = str(problem.line)
        lines.append(f"  {number} | {_printable(source)}")
        lines.append(f"  {' ' * len(number)} | {' ' * _width(_printable(before))}^")
    if problem.hint:
        lines.append(f"  hint: {_printable(problem.hint)}")
    return "\n".join(lines)


def _printable(text: str) -> str:
    """Return the text without characters that control a terminal."""
    text = text.replace("\t", _TAB)
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _width(text: str) -> int:
    """Return the width of the text on a terminal, in columns."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
