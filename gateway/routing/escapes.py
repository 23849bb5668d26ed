"""Percent-encoding (RFC 3986, section 2.1) at the speed of copying.

Clients choose how many escapes there are, so there is no step in Python for each: a path of 16 kB
that is all escapes costs little more than one without any.
"""

from __future__ import annotations

import re
from typing import Final

PRINTABLE: Final = bytes(range(0x20, 0x7F))
"""ASCII that can be seen, and the space."""

_PERCENT: Final = ord("%")
_FEW: Final = 24
"""So many different bytes are replaced one after the other; beyond that one walk is shorter."""


_without_escape = re.compile(rb"%(?![0-9A-Fa-f]{2})").sub


class Escapes:
    """Escapes all bytes but some.

    Args:
        kept: those that stand for themselves: printable ASCII, letters and digits among them.
    """

    __slots__ = ("_escapes", "_kept", "_texts")

    def __init__(self, kept: bytes) -> None:
        self._kept = kept
        self._texts = [chr(byte) if byte in kept else f"%{byte:02X}" for byte in range(256)]
        self._escapes = [text.encode("ascii") for text in self._texts]

    def apply(self, data: bytes) -> str:
        """The bytes as text, escaped."""
        others = set(data.translate(None, self._kept))
        if len(others) > _FEW:
            return "".join(map(self._texts.__getitem__, data))
        if _PERCENT in others:
            # Before there are others of it.
            others.discard(_PERCENT)
            data = data.replace(b"%", b"%25")
        for byte in others:
            data = data.replace(bytes((byte,)), self._escapes[byte])
        return data.decode("ascii")


def unescape(data: bytes) -> bytes:
    """Undo all escapes.

    Raises:
        ValueError: a `%` is not followed by two hexadecimal digits.
    """
    return _as_python(data).decode("unicode_escape").encode("latin-1")


def unescape_form(text: str) -> str:
    """Undo the escapes of a form, in which `+` is a space; a `%` of no escape stands for itself."""
    return as_text(unescape_parameters(text, b""))


def unescape_parameters(text: str, separators: bytes) -> str:
    """Undo the escapes of a form, and still know which separators were not escaped.

    Args:
        text: as it was sent.
        separators: ASCII characters that mean something else if they were escaped: these are
            `ESCAPED` higher than their own code.

    Returns:
        Bytes as characters, of which `as_text` makes text.
    """
    if "%" not in text and "+" not in text and text.isascii():
        return text
    data = text.encode("utf-8", "surrogateescape").replace(b"+", b" ")
    try:
        return _escaped_apart(data, separators)
    except ValueError:
        # Runs of them first, which are found in larger steps.
        data = data.replace(b"%%", b"%25%").replace(b"%%", b"%25%")
        return _escaped_apart(_without_escape(b"%25", data), separators)


ESCAPED: Final = 0x100
"""What is added to the code of a separator that was escaped."""

_AS_SENT: Final = {ESCAPED + code: code for code in range(0x80)}


def as_text(data: str) -> str:
    """What bytes as characters mean; those that are not UTF-8 as lone surrogates."""
    if data.isascii():
        return data
    return data.translate(_AS_SENT).encode("latin-1").decode("utf-8", "surrogateescape")


def _escaped_apart(data: bytes, separators: bytes) -> str:
    data = _as_python(data)
    for code in separators:
        for escape in {b"\\x%02x" % code, b"\\x%02X" % code}:
            data = data.replace(escape, b"\\u%04x" % (ESCAPED + code))
    return data.decode("unicode_escape")


def _as_python(data: bytes) -> bytes:
    """Escapes of Python's own, but for one byte of their beginning, which are undone in C."""
    return data.replace(b"\\", b"%5C").replace(b"%", b"\\x")
