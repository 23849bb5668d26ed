"""Problems on a terminal."""

from __future__ import annotations

from gateway.base.errors import Problem
from gateway.config.explaining.render import render


def test_a_problem_has_its_line_a_caret_and_a_hint() -> None:
    """As a compiler would show it."""
    problem = Problem("f.yaml", 12, 3, "a.b", "found 'x'", "y would do", "a: x")

    assert render([problem], "warning") == (
        "f.yaml:12:3: warning: a.b: found 'x'\n  12 | a: x\n     |   ^\n  hint: y would do"
    )


def test_a_problem_without_a_place_is_one_line() -> None:
    """A file that cannot be read has no line to show."""
    assert render([Problem("f.yaml", 0, 0, "", "cannot be read")]) == "f.yaml: cannot be read"


def test_the_caret_stands_under_the_character() -> None:
    """Wide characters take two columns, tabs four, and what a terminal obeys is spelled out."""
    problem = Problem("f", 1, 5, "", "m", "", "\t漢\x1b:x")

    assert render([problem]).splitlines()[1:] == [
        "  1 |     漢\\x1b:x",
        "  1 | ".replace("1", " ") + " " * (4 + 2 + 4 + 1) + "^",
    ]


def test_nothing_that_a_terminal_would_obey_is_printed() -> None:
    """Escape sequences in a file do not reach the terminal of the user who checks it."""
    problem = Problem("f", 1, 1, "\x1b[2J", "\x1b]0;x\x07", "\u202e", "\x9b31m")

    assert render([problem]).replace("\n", "").isprintable()
