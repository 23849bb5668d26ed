"""Values as they stand in YAML, between braces and brackets too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./*-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""What some readers of YAML take for something else than text."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BYTE: Final = 0x100
_TWO_BYTES: Final = 0x10000


def quoted(text: str) -> str:
    """Text that is read as just this text; without quotes if it needs none."""
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
    """A mapping in one line; values are written as they are given."""
    return "{ " + ", ".join(f"{quoted(key)}: {value}" for key, value in pairs) + " }"


def sequence(values: Iterable[str]) -> str:
    """A list in one line; likewise."""
    return f"[{', '.join(values)}]"


def data(value: Any) -> str:
    """Plain data in one line: mappings, lists and what is in them."""
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
    """A number that is read as one: YAML's have a point."""
    digits, letter, exponent = repr(value).partition("e")
    return (digits if "." in digits else f"{digits}.0") + letter + exponent


def comment(text: str, indent: int) -> str:
    """A line of comment, whatever is in the text."""
    shown = "".join(one if one.isprintable() else _escaped(one) for one in text)
    return f"{' ' * indent}# {shown}\n"
