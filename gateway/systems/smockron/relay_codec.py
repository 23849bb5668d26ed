"""What masters of Sluice tell each other of whom they hold: no message of Smockron's.

A version, who says it, and any number of entries: domain and identifier, each behind its length,
and a time. Later versions begin otherwise, and are passed over by masters that do not know them.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from gateway.systems.smockron.codec import DelayUntil, MalformedMessage, decode_name, encode_name

ORIGIN_BYTES: Final = 8
"""Of the random number by which a master knows what it has said itself."""
_VERSION: Final = b"\x01"
_HEAD: Final = len(_VERSION) + ORIGIN_BYTES
_entry: Final = Struct(">BBQ")


def write_relay(origin: bytes, found: Iterable[DelayUntil]) -> bytes:
    """A message of the master `origin`; names are those that `protocols.smockron` reads."""
    parts = [_VERSION, origin]
    for one in found:
        domain, identifier = encode_name(one.domain), encode_name(one.identifier)
        parts += (_entry.pack(len(domain), len(identifier), one.until_us), domain, identifier)
    return b"".join(parts)


def origin_of(data: bytes) -> bytes:
    """Who says it."""
    return data[len(_VERSION) : _HEAD]


def read_relay(data: bytes) -> list[DelayUntil]:
    """What it says.

    Raises:
        Malformed: it is no such message.
    """
    if len(data) < _HEAD or not data.startswith(_VERSION):
        raise MalformedMessage("masters of another version say this")
    found = []
    at = _HEAD
    while at < len(data):
        names = at + _entry.size
        if names > len(data):
            raise MalformedMessage("an entry ends in the middle")
        domain_bytes, identifier_bytes, until_us = _entry.unpack_from(data, at)
        identifier = names + domain_bytes
        at = identifier + identifier_bytes
        if at > len(data):
            raise MalformedMessage("a name ends in the middle")
        found.append(
            DelayUntil(
                decode_name(data[names:identifier]), decode_name(data[identifier:at]), until_us
            )
        )
    return found
