"""The first message of a TLS client (RFC 8446, section 4.1.2): the protocols it offers.

Pure. OpenSSL has already validated the message, so anything unexpected is treated as "offers none".
"""

from __future__ import annotations

from typing import Final

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_VERSION_AND_RANDOM: Final = 2 + 32
_ALPN: Final = 16


class _Bytes:
    """Reads vectors with a length prefix."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def vector(self, length_size: int) -> bytes:
        return self.take(self.number(length_size))


def offered_protocols(records: bytes) -> tuple[bytes, ...] | None:
    """Return the protocols that a client offers by ALPN (RFC 7301), in its order.

    Args:
        records: its first bytes, whole TLS records.

    Returns:
        None if it sent no such extension, or it cannot be parsed.
    """
    try:
        return _alpn(_Bytes(_message(_Bytes(records))))
    except ValueError:
        return None


def _message(records: _Bytes) -> bytes:
    """Return the body of the first handshake message, which may span several records."""
    data = b""
    while records:
        kind, _, size = records.number(1), records.number(2), records.number(2)
        if kind != _HANDSHAKE:
            break
        data += records.take(size)
    message = _Bytes(data)
    if message.number(1) != _CLIENT_HELLO:
        raise ValueError
    return message.vector(3)


def _alpn(hello: _Bytes) -> tuple[bytes, ...] | None:
    hello.take(_VERSION_AND_RANDOM)
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    extensions = _Bytes(hello.vector(2)) if hello else _Bytes(b"")
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _ALPN:
            names = _Bytes(_Bytes(content).vector(2))
            found: list[bytes] = []
            while names:
                found.append(names.vector(1))
            return tuple(found)
    return None
