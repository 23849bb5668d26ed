"""The PROXY protocol header, versions 1 and 2: the client's address as a proxy reports it.

Bytes in, an address out; the specification is
https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt. Whatever follows a header belongs to
the connection, so a reader returns how many of the bytes it is shown belong to the header.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

V1_MAX: Final = 107
"""Bytes of a version 1 header, including its line end (section 2.1)."""
V2_MAX: Final = 4096
"""Bytes that may follow the fixed part of a version 2 header: addresses and TLVs."""
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED: Final = 16
LONGEST: Final = FIXED + V2_MAX

_V1_BEGIN: Final = b"PROXY "
_LOCAL: Final = 0
_PROXY: Final = 1
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_SIZES: Final = {0x00: 0, _TCP4: 12, 0x12: 12, _TCP6: 36, 0x22: 36, 0x31: 216, 0x32: 216}
"""Bytes of the addresses of each family and transport (section 2.2)."""

_port: Final = re.compile(rb"0|[1-9][0-9]{0,4}")
_MAX_PORT: Final = 65_535


class ProxyHeaderError(ValueError):
    """The bytes are not a valid header."""


class ProxyHeaderReader:
    """Reads one header.

    Attributes:
        source: the address of the client, once the header is complete; empty if the proxy itself
            is the client (LOCAL), or if the client has no address (UNKNOWN, Unix).
    """

    __slots__ = ("_buffer", "source")

    def __init__(self) -> None:
        self._buffer = b""
        self.source: str | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether the header is complete."""
        return self.source is not None

    def feed(self, data: bytes) -> int:
        """Read the next bytes of the connection.

        Args:
            data: the bytes after those returned as part of the header so far.

        Returns:
            How many of them belong to the header.

        Raises:
            ProxyHeaderError: they cannot be a header.
        """
        seen = len(self._buffer)
        whole = self._buffer + data
        end = _end(whole)
        if end is None or len(whole) < end:
            self._buffer = whole
            return len(data)
        header = whole[:end]
        self.source = _read_v1(header) if header[:1] == b"P" else _read_v2(header)
        return end - seen


def _end(data: bytes) -> int | None:
    """Return the length of the header, if it is known yet."""
    if data[:1] == b"P":
        if not data.startswith(_V1_BEGIN[: len(data)]):
            raise ProxyHeaderError("no signature")
        newline = data.find(b"\n", 0, V1_MAX)
        if newline < 0 and len(data) >= V1_MAX:
            raise ProxyHeaderError("version 1: too long")
        return newline + 1 if newline >= 0 else None
    if not data.startswith(SIGNATURE[: len(data)]):
        raise ProxyHeaderError("no signature")
    if len(data) < FIXED:
        return None
    size = int.from_bytes(data[14:16])
    if size > V2_MAX:
        raise ProxyHeaderError("version 2: too long")
    return FIXED + size


def _read_v1(line: bytes) -> str:
    if not line.endswith(b"\r\n"):
        raise ProxyHeaderError("version 1: no CRLF")
    words = line[len(_V1_BEGIN) : -2].split(b" ")
    if words[0] == b"UNKNOWN":
        # "the receiver must ignore anything presented before the CRLF" (section 2.1).
        return ""
    if len(words) != 5 or words[0] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError("version 1: not two addresses and ports")
    read = IPv4Address if words[0] == b"TCP4" else IPv6Address
    try:
        source, _ = (read(word.decode("ascii")) for word in words[1:3])
    except ValueError:
        raise ProxyHeaderError("version 1: not an address") from None
    if b"%" in words[1] or not all(map(_is_port, words[3:])):
        raise ProxyHeaderError("version 1: not an address and a port")
    return _text(source)


def _is_port(word: bytes) -> bool:
    return _port.fullmatch(word) is not None and int(word) <= _MAX_PORT


def _read_v2(header: bytes) -> str:
    version, command = divmod(header[12], 16)
    if version != 2 or command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError("version 2: unknown version or command")
    if command == _LOCAL:
        # "must discard the protocol block including the family" (section 2.2).
        return ""
    family = header[13]
    size = _SIZES.get(family)
    if size is None or len(header) < FIXED + size:
        raise ProxyHeaderError("version 2: unknown family, or addresses cut off")
    if family == _TCP4:
        return str(IPv4Address(header[FIXED : FIXED + 4]))
    if family == _TCP6:
        return _text(IPv6Address(header[FIXED : FIXED + 16]))
    return ""


def _text(address: IPv4Address | IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
