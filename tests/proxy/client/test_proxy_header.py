"""The PROXY header: what is read, what is refused, and that not a byte more is taken."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.client.proxy_header import (
    LONGEST,
    SIGNATURE,
    V1_MAX,
    ProxyHeaderError,
    ProxyHeaderReader,
)

PORTS = st.integers(0, 65_535)


def v2(family: int, addresses: bytes, command: int = 0x21, tlvs: bytes = b"") -> bytes:
    """A header of version 2."""
    size = struct.pack("!H", len(addresses) + len(tlvs))
    return SIGNATURE + bytes([command, family]) + size + addresses + tlvs


def tcp4(source: str, tlvs: bytes = b"") -> bytes:
    """One of a client with an IPv4 address."""
    addresses = socket.inet_aton(source) + socket.inet_aton("192.0.2.9") + b"\x10\x00\x01\xbb"
    return v2(0x11, addresses, tlvs=tlvs)


def tcp6(source: str) -> bytes:
    """One of a client with an IPv6 address."""
    address = socket.inet_pton(socket.AF_INET6, source)
    return v2(0x21, address + address + b"\x10\x00\x01\xbb")


def read(data: bytes) -> tuple[str | None, int]:
    """What a header says, and how many bytes it has."""
    reader = ProxyHeaderReader()
    size = reader.feed(data)
    return reader.source, size


GOOD = {
    b"PROXY TCP4 203.0.113.7 192.0.2.9 56324 443\r\n": "203.0.113.7",
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": "255.255.255.255",
    b"PROXY TCP6 2001:DB8::1 ::1 1 2\r\n": "2001:db8::1",
    b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n": "203.0.113.7",
    b"PROXY TCP6 " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n": ":".join(
        ["ffff"] * 8
    ),
    b"PROXY UNKNOWN\r\n": "",
    b"PROXY UNKNOWN " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n": "",
    tcp4("203.0.113.7"): "203.0.113.7",
    tcp4("203.0.113.7", b"\x04\x00\x03abc"): "203.0.113.7",
    tcp4("203.0.113.7", b"\xee" * 4000): "203.0.113.7",
    tcp6("2001:db8::1"): "2001:db8::1",
    tcp6("::ffff:203.0.113.7"): "203.0.113.7",
    v2(0x31, b"/run/client\0".ljust(216, b"\0")): "",
    v2(0x00, b""): "",
    v2(0x00, b"", tlvs=b"\x04\x00\x00"): "",
    v2(0x12, b"\1" * 12): "",
    v2(0x00, b"", command=0x20): "",
    v2(0x11, b"", command=0x20): "",
    v2(0x99, b"whatever", command=0x20): "",
}

BAD = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PROXY\r\n",
    b"proxy TCP4 203.0.113.7 192.0.2.9 1 2\r\n",
    b"PROXY TCP5 203.0.113.7 192.0.2.9 1 2\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 1\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2 3\r\n",
    b"PROXY TCP4  203.0.113.7 192.0.2.9 1 2\r\n",
    b"PROXY TCP4 203.0.113.07 192.0.2.9 1 2\r\n",
    b"PROXY TCP4 203.0.113 192.0.2.9 1 2\r\n",
    b"PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
    b"PROXY TCP6 203.0.113.7 192.0.2.9 1 2\r\n",
    b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 65536 2\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 01 2\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 -1 2\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.9 \xb2 2\r\n",
    b"PROXY UNKNOWN " + b"x" * V1_MAX,
    SIGNATURE.replace(b"QUIT", b"QUIE") + b"\x21\x11\x00\x0c" + b"\1" * 12,
    v2(0x11, b"\1" * 12, command=0x11),
    v2(0x11, b"\1" * 12, command=0x22),
    v2(0x11, b"\1" * 11),
    v2(0x21, b"\1" * 35),
    v2(0x31, b"\1" * 215),
    v2(0x13, b"\1" * 12),
    v2(0x41, b"\1" * 216),
    tcp4("203.0.113.7", b"\xee" * 4096),
]


@pytest.mark.parametrize("header", GOOD)
def test_what_is_read(header: bytes) -> None:
    """The address of the client, and where the header ends: what follows is not its own."""
    assert read(header) == (GOOD[header], len(header))
    assert read(header + b"\r\nPROXY GET / HTTP/1.1\r\n") == (GOOD[header], len(header))


@pytest.mark.parametrize("header", GOOD)
def test_headers_that_come_in_pieces(header: bytes) -> None:
    """A header is read as one, wherever it was cut, and a byte at a time."""
    for cut in range(1, len(header), max(1, len(header) // 97)):
        reader = ProxyHeaderReader()
        assert reader.feed(header[:cut]) == cut
        assert not reader.is_complete
        assert reader.feed(header[cut:] + b"GET") == len(header) - cut
        assert reader.source == GOOD[header]
    reader = ProxyHeaderReader()
    for at in range(len(header)):
        assert not reader.is_complete
        assert reader.feed(header[at : at + 1]) == 1
    assert reader.source == GOOD[header]


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_header(data: bytes) -> None:
    """It is refused, however it comes."""
    with pytest.raises(ProxyHeaderError):
        read(data)
    reader = ProxyHeaderReader()
    with pytest.raises(ProxyHeaderError):
        for at in range(len(data)):
            reader.feed(data[at : at + 1])
            assert not reader.is_complete


@given(
    source=st.ip_addresses(v=4) | st.ip_addresses(v=6),
    ports=st.tuples(PORTS, PORTS),
    rest=st.binary(max_size=20),
)
def test_every_address_arrives(
    source: IPv4Address | IPv6Address, ports: tuple[int, int], rest: bytes
) -> None:
    """In both versions, the same text for the same address."""
    mapped = source.ipv4_mapped if isinstance(source, IPv6Address) else None
    word = f"TCP{source.version}"
    one = f"PROXY {word} {source} {source} {ports[0]} {ports[1]}\r\n".encode()
    family = 0x11 if source.version == 4 else 0x21
    two = v2(family, source.packed * 2 + struct.pack("!HH", *ports))
    for header in (one, two):
        assert read(header + rest) == (str(mapped or source), len(header))


@given(
    st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 1.2.3.4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]),
    st.binary(max_size=300),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_any_bytes(begin: bytes, rest: bytes, cuts: list[int]) -> None:
    """They are a header or not, whole or in pieces alike; no more than there can be is taken."""
    data = begin + rest
    whole, taken = _outcome([data])
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert _outcome(pieces) == (whole, taken)
    assert taken <= LONGEST


def _outcome(pieces: list[bytes]) -> tuple[str | None, int]:
    reader = ProxyHeaderReader()
    taken = 0
    try:
        for piece in pieces:
            if not reader.is_complete:
                taken += reader.feed(piece)
    except ProxyHeaderError:
        return "refused", 0
    return reader.source, taken
