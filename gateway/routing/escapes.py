"""Percent-encoding (RFC 3986, section 2.1) at the speed of copying.

Clients choose how many escapes there are, so there is no step in Python for each: a path of 16 kB
that is all escapes costs little more than one without any.
"""

from __future__ import annotations

from typing import Final

PRINTABLE: Final = bytes(range(0x20, 0x7F))
"""ASCII that can be seen, and the space."""

_PERCENT: Final = ord("%")
_FEW: Final = 24
"""So many different bytes are replaced one after the other; beyond that one walk is shorter."""


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
    # Escapes of Python's own, but for one byte of their beginning, and undone in C.
    text = data.replace(b"\\", b"%5C").replace(b"%", b"\\x").decode("unicode_escape")
    return text.encode("latin-1")
