"""Explains what is probably meant where a file is not valid YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_LINE: Final = 500
"""How much of a line is examined: the patterns here are not for text of any length."""

_TAB_INDENT: Final = re.compile(r"^ *\t")
_UNQUOTED_STAR: Final = re.compile(r"(?:^|[\s,\[{:-])(\*[^\s\"',]*)")
_FLOW_VARIABLE: Final = re.compile(r"[{\[].*(?<![\"'\w$])(\$\{[^}]*\})")
_BRACKET_HOST: Final = re.compile(r":\s+(\[[0-9a-fA-F:.]+\]:\d+)")
_NO_SPACE: Final = re.compile(
    r"(?:^\s*(?:-\s+)?|[{,]\s*)(?!(?:unix|header|cookie|query|path|jwt|json|form|client_cert):)"
    r"([a-z_]+):(?!//|[0-9]+\b)([^\s,{}\[\]]+)"
)
_FLOW_BRACES: Final = re.compile(
    r"[{\[,]\s*[\w.-]+:\s+([^\s\"'{}\[\],#&*!|>]+(?:\{[\w.-]+\}[^\s\"'{}\[\],]*)+)"
)
_RESERVED_START: Final = re.compile(r"(?:^|:\s+|-\s+)([@`%][^\s]*)")


class Syntax(NamedTuple):
    """The position of the mistake, counted from 0, the mistake, and the hint."""

    line: int
    column: int
    message: str
    hint: str


def explain_syntax(
    lines: Sequence[str],
    at: tuple[int, int],
    problem: str,
    context: str,
    begin: tuple[int, int],
) -> Syntax:
    """Turn an error of a YAML parser into a useful message.

    Args:
        lines: the lines of the file.
        at: line and column, from 0, where the parser failed.
        problem: the parser's message.
        context: what the parser was reading.
        begin: where that began.
    """
    line, column = min(at[0], len(lines) - 1), at[1]
    # Parsers notice some mistakes only at the beginning of the next line.
    for number in (line, line - 1):
        known = None
        if number >= 0:
            text = lines[number][:MAX_LINE]
            known = _known_mistake(text, number, column if number == line else -1)
        if known is not None:
            return known
    if "escape" in problem or "hexdecimal" in problem:
        column = max(lines[line].rfind("\\", 0, column + 1), 0)
        hint = r"write \\ for a backslash, or put the text in single quotes"
        return Syntax(line, column, "a backslash in double quotes that begins no escape", hint)
    begun = _begun(context)
    if begun is not None:
        return Syntax(*begin, *begun)
    if "mapping values" in problem:
        hint = "quote the value, or begin a new line after the first"
        return Syntax(line, column, "a second colon in one line", hint)
    if "block" in context:
        hint = "keys of one mapping begin in one column; quote values with : or #"
        return Syntax(line, column, "this line does not fit the lines around it", hint)
    return Syntax(line, column, f"this is not YAML: {problem}", "")


def _begun(context: str) -> tuple[str, str] | None:
    """The unclosed construct, by the parser's message."""
    if "quoted scalar" in context:
        return "a quote is opened here and never closed", "close it"
    if "flow" in context:
        return "this bracket is never closed", "close it, and put commas between its entries"
    if "simple key" in context:
        return "a key needs a colon", "write 'key: value'"
    return None


def _known_mistake(text: str, line: int, column: int) -> Syntax | None:
    """Return the mistake in a line, if it is a common one; column -1 for the line before."""
    found = _tab(text, column) or _unquoted(text)
    if found is None and column >= 0:
        found = _odd_start(text, column)
    found = found or _no_space(text)
    return Syntax(line, *found) if found else None


def _tab(text: str, column: int) -> tuple[int, str, str] | None:
    message = "a tab where YAML needs spaces"
    tab = _TAB_INDENT.match(text)
    if tab:
        return tab.end() - 1, message, "indent by two spaces"
    if column >= 0 and text[column : column + 1] == "\t":
        return column, message, "write spaces instead"
    return None


def _unquoted(text: str) -> tuple[int, str, str] | None:
    """Return values that would be valid outside brackets, or with quotes."""
    variable = _FLOW_VARIABLE.search(text)
    if variable:
        hint = f'quote it inside braces or brackets: "{variable[1]}"'
        return variable.start(1), f"{variable[1]} is not quoted", hint
    braces = _FLOW_BRACES.search(text)
    if braces:
        message = "inside braces or brackets, quote a value that contains braces"
        return braces.start(1), message, f'quote it: "{braces[1]}"'
    bracket = _BRACKET_HOST.search(text)
    if bracket:
        hint = f'write "{bracket[1]}"'
        return bracket.start(1), "quote an address in brackets", hint
    return None


def _no_space(text: str) -> tuple[int, str, str] | None:
    glued = _NO_SPACE.search(text)
    if glued is None:
        return None
    message, hint = glued_key(glued[1], glued[2])
    return glued.start(1), message, hint


def split_glued(text: str) -> tuple[str, str] | None:
    """Return key and value of `upstream:http://127.0.0.1:9000`, which YAML reads as one text."""
    glued = _NO_SPACE.fullmatch(text)
    return (glued[1], glued[2]) if glued else None


def glued_key(key: str, value: str) -> tuple[str, str]:
    """Return the problem of a missing space between key and value, and the hint."""
    return f"there is no space after {key}:", f"write {key}: {value}"


def _odd_start(text: str, column: int) -> tuple[int, str, str] | None:
    """Return the problem of text that begins with a special character of YAML."""
    star = _UNQUOTED_STAR.search(text)
    if star and star.start(1) <= column <= star.end(1):
        hint = f'quote it: "{star[1].rstrip(":")}"'
        return star.start(1), "text that begins with * must be quoted", hint
    reserved = _RESERVED_START.search(text)
    if reserved and reserved.start(1) == column:
        message = f"text that begins with {reserved[1][0]} must be quoted"
        return column, message, f'write "{reserved[1]}"'
    return None
