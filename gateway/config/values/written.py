"""Values that remember how they were written in a file.

Python's reading of a number loses its spelling (`1.10`, `0660`, `0x1F`), and text whose references
are filled in no longer says which part of it came from elsewhere. Both are wanted: messages quote
what a person wrote, and what a variable or a file holds is never a template nor shown.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gateway.config.values.redaction import CREDENTIAL, HIDDEN

_is_credential: Final = re.compile(CREDENTIAL, re.IGNORECASE).search


class WrittenPart(NamedTuple):
    """A part of a text: as it stands in the file, or what a reference in its place stands for."""

    text: str
    is_given: bool


class Filled(str):
    """Text with its references filled in.

    Attributes:
        written: the text in the file, with the references.
        parts: what it is made of, in order.
    """

    __slots__ = ("parts", "written")

    written: str
    parts: tuple[WrittenPart, ...]

    @classmethod
    def of(cls, written: str, parts: tuple[WrittenPart, ...]) -> Filled:
        """Join the parts of a text."""
        filled = cls("".join(part.text for part in parts))
        filled.written, filled.parts = written, parts
        return filled


class WrittenInt(int):
    """A whole number that shows itself as it was written, such as `0660` or `0x1F`.

    Attributes:
        written: how.
        filled: the text that it was made of, if references were filled in; otherwise None.
    """

    written: str = ""
    filled: Filled | None = None

    def __str__(self) -> str:
        return self.written or super().__repr__()


class WrittenFloat(float):
    """A number with a fraction or exponent that shows itself as it was written, such as `1.10`.

    Attributes:
        written: how.
        filled: as in `WrittenInt`.
    """

    written: str = ""
    filled: Filled | None = None

    def __str__(self) -> str:
        return self.written or super().__repr__()


def remember(value: object, written: str, filled: Filled | None = None) -> object:
    """Return a number that knows how it was written; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if str(value) == written:
        return value
    number = WrittenInt(value) if isinstance(value, int) else WrittenFloat(value)
    number.written, number.filled = written, filled
    return number


def as_text(value: object) -> object:
    """Return what references hold as the text that it is, though it looks like a number."""
    filled = value.filled if isinstance(value, WrittenInt | WrittenFloat) else None
    return value if filled is None else filled


def reference_or_digits(value: int) -> str:
    """Return a number as it may stand in an address: the reference it is from, or its digits."""
    filled = value.filled if isinstance(value, WrittenInt) else None
    return filled.written if filled is not None else f"{int(value)}"


def literal(text: str, escapes: dict[str, str]) -> str:
    """Return a text in which what came from references is escaped, and the rest is not.

    Args:
        text: any text; only `Filled` has such parts.
        escapes: what is written for each character that means something.
    """
    if not isinstance(text, Filled):
        return text
    table = str.maketrans(escapes)
    return "".join(
        part.text.translate(table) if part.is_given else part.text for part in text.parts
    )


def show_field(name: str, value: str, written: str) -> str:
    """Return a header field for people to read, without what may be a secret in it.

    Args:
        name: of the field.
        value: what it is.
        written: what is in the file: references are shown as such.
    """
    if value == "*" or written != value:
        return f"{name}: {written}"
    return f"{name}: {HIDDEN if _is_credential(name) else value}"
