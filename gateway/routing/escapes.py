"""Percent-encoding (RFC 3986, section 2.1) at the speed of copying.

Clients choose how many escapes there are, so there is no Python step per escape: a path of 16 kB
made of escapes costs little more than one without.
"""

from __future__ import annotations

from typing import Final

PRINTABLE: Final = bytes(range(0x20, 0x7F))
"""Printable ASCII, including the space."""

_PERCENT: Final = ord("%")
_FEW: Final = 24
"""Up to this many different bytes are replaced one after the other; beyond that, one pass is
faster.
"""


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
    # Python's own escapes, decoded in C after a change of one byte.
    text = data.replace(b"\\", b"%5C").replace(b"%", b"\\x").decode("unicode_escape")
    return text.encode("latin-1")
