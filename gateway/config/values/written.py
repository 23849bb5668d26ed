"""Values that keep their spelling in the file.

A parsed number loses its spelling (`1.10`, `0660`, `0x1F`), and text with replaced references no
longer shows which parts came from elsewhere. Both are needed: messages quote what a person wrote,
and the content of a variable or file is never treated as a template or shown.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gateway.config.values.redaction import CREDENTIAL, HIDDEN

is_credential: Final = re.compile(CREDENTIAL, re.IGNORECASE).search
"""Finds the name of a header field that carries credentials."""


class WrittenPart(NamedTuple):
    """A part of a text: literal text, or a reference with its value."""

    text: str
    is_given: bool


class FilledText(str):
    """Text with its references replaced.

    Attributes:
        written: the text in the file, with the references.
        parts: its parts, in order.
    """

    __slots__ = ("parts", "written")

    written: str
    parts: tuple[WrittenPart, ...]

    @classmethod
    def of(cls, written: str, parts: tuple[WrittenPart, ...]) -> FilledText:
        """Join the parts of a text."""
        filled = cls("".join(part.text for part in parts))
        filled.written, filled.parts = written, parts
        return filled


class WrittenInt(int):
    """A whole number that is displayed as it was written, such as `0660` or `0x1F`.

    Attributes:
        written: its spelling.
        filled: the text after references were replaced, if there were any; otherwise None.
    """

    written: str = ""
    filled: FilledText | None = None

    def __str__(self) -> str:
        return self.written or super().__repr__()


class WrittenFloat(float):
    """A number with a fraction or exponent that is displayed as it was written, such as `1.10`.

    Attributes:
        written: its spelling.
        filled: as in `WrittenInt`.
    """

    written: str = ""
    filled: FilledText | None = None

    def __str__(self) -> str:
        return self.written or super().__repr__()


def remember(value: object, written: str, filled: FilledText | None = None) -> object:
    """Return a number that keeps its spelling; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if str(value) == written:
        return value
    number = WrittenInt(value) if isinstance(value, int) else WrittenFloat(value)
    number.written, number.filled = written, filled
    return number


def as_text(value: object) -> object:
    """Return the value of references as text, even if it looks like a number."""
    filled = value.filled if isinstance(value, WrittenInt | WrittenFloat) else None
    return value if filled is None else filled


def reference_or_digits(value: int) -> str:
    """Return a number as in an address: the reference that it came from, or its digits."""
    filled = value.filled if isinstance(value, WrittenInt) else None
    return filled.written if filled is not None else f"{int(value)}"


def literal(text: str, escapes: dict[str, str]) -> str:
    """Return a text with the parts from references escaped, and the rest unchanged.

    Args:
        text: any text; only `FilledText` has such parts.
        escapes: the replacement of each special character.
    """
    if not isinstance(text, FilledText):
        return text
    table = str.maketrans(escapes)
    return "".join(
        part.text.translate(table) if part.is_given else part.text for part in text.parts
    )


def show_field(name: str, value: str, written: str) -> str:
    """Return a header field for display, without possible secrets.

    Args:
        name: the name of the field.
        value: its value.
        written: its text in the file, in which references are shown as such.
    """
    if value == "*" or written != value:
        return f"{name}: {written}"
    return f"{name}: {HIDDEN if is_credential(name) else value}"
