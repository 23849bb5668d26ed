"""Writes values as YAML, also within braces and brackets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./*-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML parsers do not read as text."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BYTE: Final = 0x100
_TWO_BYTES: Final = 0x10000


def quoted(text: str) -> str:
    """Return text that parses to exactly this text; without quotes if it needs none."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_escaped, text.replace("${", "$${"))) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable():
        return character
    if code < _BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _TWO_BYTES else f"\\U{code:08x}"


def mapping(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a mapping on one line; values are written as given."""
    return "{ " + ", ".join(f"{quoted(key)}: {value}" for key, value in pairs) + " }"


def sequence(values: Iterable[str]) -> str:
    """Return a list on one line; likewise."""
    return f"[{', '.join(values)}]"


def data(value: Any) -> str:
    """Return plain data on one line: mappings, lists and their contents."""
    if isinstance(value, Mapping):
        return mapping((str(key), data(each)) for key, each in value.items())
    if isinstance(value, list):
        return sequence(map(data, value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return _number(value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    """Return a number that parses as a number: floats in YAML need a point."""
    digits, letter, exponent = repr(value).partition("e")
    return (digits if "." in digits else f"{digits}.0") + letter + exponent


def comment(text: str, indent: int) -> str:
    """Return a comment line, whatever the text contains."""
    shown = "".join(one if one.isprintable() else _escaped(one) for one in text)
    return f"{' ' * indent}# {shown}\n"
