"""The message of one Sluice master to the others on held clients; not part of Smockron's protocol.

It has a version, the sender, and any number of entries: the lengths of domain and identifier, a
time, and the two names. Masters ignore messages of other versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from gateway.systems.smockron.codec import DelayUntil, MalformedMessage, decode_name, encode_name

ORIGIN_BYTES: Final = 8
"""Length of the random number by which a master recognises its own messages."""
_VERSION: Final = b"\x01"
_HEAD: Final = len(_VERSION) + ORIGIN_BYTES
_entry: Final = Struct(">BBQ")


def write_relay(origin: bytes, found: Iterable[DelayUntil]) -> bytes:
    """Return a message of the master `origin`; names are as `codec` reads them."""
    parts = [_VERSION, origin]
    for one in found:
        domain, identifier = encode_name(one.domain), encode_name(one.identifier)
        parts += (_entry.pack(len(domain), len(identifier), one.until_us), domain, identifier)
    return b"".join(parts)


def origin_of(data: bytes) -> bytes:
    """Return the sender of a message."""
    return data[len(_VERSION) : _HEAD]


def read_relay(data: bytes) -> list[DelayUntil]:
    """Return the entries of a message.

    Raises:
        MalformedMessage: it is not a message of this version.
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
