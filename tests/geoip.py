"""Writes databases of addresses in MaxMind's format, version 2.0, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

MARKER: Final = b"\xab\xcd\xefMaxMind.com"
SEPARATOR: Final = bytes(16)
_STRING, _UINT16, _UINT32, _MAP, _UINT64, _ARRAY, _BOOLEAN = 2, 5, 6, 7, 9, 11, 14
_Node = list[Any]
"""The two records of a node: a node, the offset of data, or None for nothing."""


def country(code: str) -> dict[str, Any]:
    """A record as MaxMind writes it."""
    names = dict.fromkeys(("de", "en", "fr", "ja", "pt-BR"), f"Country {code}")
    return {
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "country": {"geoname_id": 1, "iso_code": code, "is_in_european_union": True},
        "registered_country": {"geoname_id": 2, "iso_code": "XX", "names": names},
    }


def system(number: int) -> dict[str, Any]:
    """A record of an autonomous system."""
    return {
        "autonomous_system_number": number,
        "autonomous_system_organization": f"Network {number}",
    }


def database(
    records: Mapping[str, object], kind: str, *, ip_version: int = 6, record_size: int = 28
) -> bytes:
    """Return the content of a database.

    Args:
        records: what there is of each network; none of them may be in another.
        kind: the type of the database, such as `GeoLite2-Country`.
        ip_version: 4 if there is no IPv6.
        record_size: bits of a record of the tree: 24, 28 or 32.
    """
    root: _Node = [None, None]
    data = b""
    offsets: dict[bytes, int] = {}
    for text, record in records.items():
        network = ip_network(text)
        bits = 128 if ip_version == 6 else 32
        prefix = network.prefixlen + bits - network.max_prefixlen
        encoded = _encoded(record)
        if encoded not in offsets:
            offsets[encoded] = len(data)
            data += encoded
        _put(root, int(network.network_address), prefix, bits, offsets[encoded])
    nodes = list(_nodes(root))
    numbers = {id(node): number for number, node in enumerate(nodes)}

    def record_of(child: object) -> int:
        if isinstance(child, list):
            return numbers[id(child)]
        return len(nodes) if child is None else len(nodes) + len(SEPARATOR) + int(str(child))

    tree = b"".join(
        _packed(record_of(left), record_of(right), record_size) for left, right in nodes
    )
    about = {
        "binary_format_major_version": (_UINT16, 2),
        "binary_format_minor_version": (_UINT16, 0),
        "build_epoch": (_UINT64, 1_790_000_000),
        "database_type": kind,
        "description": {"en": "made for a test"},
        "ip_version": (_UINT16, ip_version),
        "languages": ["en"],
        "node_count": (_UINT32, len(nodes)),
        "record_size": (_UINT16, record_size),
    }
    return tree + SEPARATOR + data + MARKER + _encoded(about)


def write_countries(path: Path, records: Mapping[str, str]) -> None:
    """Write a database of countries by network, and rename it into its place."""
    content = database({net: country(code) for net, code in records.items()}, "GeoLite2-Country")
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)


def _put(root: _Node, number: int, prefix: int, bits: int, offset: int) -> None:
    node = root
    for position in range(bits - 1, bits - prefix, -1):
        side = number >> position & 1
        if node[side] is None:
            node[side] = [None, None]
        node = node[side]
    node[number >> (bits - prefix) & 1] = offset


def _nodes(root: _Node) -> Iterator[_Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in node if isinstance(child, list)]


def _packed(left: int, right: int, record_size: int) -> bytes:
    if record_size != 28:
        return b"".join(one.to_bytes(record_size // 8, "big") for one in (left, right))
    # The middle byte has the highest four bits of both.
    lower = [(one & 0xFFFFFF).to_bytes(3, "big") for one in (left, right)]
    return bytes([*lower[0], left >> 24 << 4 | right >> 24, *lower[1]])


def _encoded(value: object) -> bytes:
    """Encode a value; a number of another type than uint32 comes with its type."""
    match value:
        case bool():
            return _control(_BOOLEAN, int(value))
        case int():
            return _number(_UINT32, value)
        case (int() as kind, int() as number):
            return _number(kind, number)
        case str():
            text = value.encode()
            return _control(_STRING, len(text)) + text
        case list():
            return _control(_ARRAY, len(value)) + b"".join(map(_encoded, value))
        case dict():
            pairs = [_encoded(name) + _encoded(one) for name, one in value.items()]
            return _control(_MAP, len(pairs)) + b"".join(pairs)
    raise TypeError(f"{value!r} cannot be written")


def _number(kind: int, number: int) -> bytes:
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return _control(kind, len(digits)) + digits


def _control(kind: int, size: int) -> bytes:
    """Encode the type and the size of a value, of at most 284 bytes."""
    first, extended = (kind << 5, b"") if kind <= _MAP else (0, bytes([kind - _MAP]))
    if size < 29:
        return bytes([first | size]) + extended
    return bytes([first | 29]) + extended + bytes([size - 29])
