"""Percent-encoding (RFC 3986, section 2.1) at the speed of copying.

Clients choose how many escapes there are, so there is no Python step per escape: a path of 16 kB
made of escapes costs little more than one without.
"""

from __future__ import annotations

import re
from typing import Final

PRINTABLE: Final = bytes(range(0x20, 0x7F))
"""Printable ASCII, including the space."""

_PERCENT: Final = ord("%")
_FEW: Final = 24
"""Up to this many different bytes are replaced one after the other; beyond that, one pass is
faster.
"""


_without_escape = re.compile(rb"%(?![0-9A-Fa-f]{2})").sub


class Escapes:
    """Escapes all bytes but some.

    Args:
        kept: the bytes that are not escaped: printable ASCII, including letters and digits.
    """

    __slots__ = ("_escapes", "_kept", "_texts")

    def __init__(self, kept: bytes) -> None:
        self._kept = kept
        self._texts = [chr(byte) if byte in kept else f"%{byte:02X}" for byte in range(256)]
        self._escapes = [text.encode("ascii") for text in self._texts]

    def apply(self, data: bytes) -> str:
        """Return the bytes as escaped text."""
        others = set(data.translate(None, self._kept))
        if len(others) > _FEW:
            return "".join(map(self._texts.__getitem__, data))
        if _PERCENT in others:
            # Before other escapes contain it.
            others.discard(_PERCENT)
            data = data.replace(b"%", b"%25")
        for byte in others:
            data = data.replace(bytes((byte,)), self._escapes[byte])
        return data.decode("ascii")


def unescape(data: bytes) -> bytes:
    """Decode all escapes.

    Raises:
        ValueError: a `%` is not followed by two hexadecimal digits.
    """
    return _as_python(data).decode("unicode_escape").encode("latin-1")


def unescape_form(text: str) -> str:
    """Decode the escapes of a form, in which `+` is a space; a `%` without escape is literal."""
    return as_text(unescape_parameters(text, b""))


def unescape_parameters(text: str, separators: bytes) -> str:
    """Decode the escapes of a form, and keep escaped separators distinct from others.

    Args:
        text: the text as it was sent.
        separators: ASCII characters that have another meaning if they were escaped: their code
            is then `ESCAPED` higher.

    Returns:
        Bytes as characters, which `as_text` converts to text.
    """
    if "%" not in text and "+" not in text and text.isascii():
        return text
    data = text.encode("utf-8", "surrogateescape").replace(b"+", b" ")
    try:
        return _escaped_apart(data, separators)
    except ValueError:
        # Runs of percent signs first, in larger steps.
        data = data.replace(b"%%", b"%25%").replace(b"%%", b"%25%")
        return _escaped_apart(_without_escape(b"%25", data), separators)


ESCAPED: Final = 0x100
"""Added to the code of an escaped separator."""

_AS_SENT: Final = {ESCAPED + code: code for code in range(0x80)}


def as_text(data: str) -> str:
    """Return the text of bytes as characters; bytes that are not UTF-8 become lone surrogates."""
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
    """Return the data with Python's own escapes, which are decoded in C."""
    return data.replace(b"\\", b"%5C").replace(b"%", b"\\x")
