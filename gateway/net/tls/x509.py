"""What a certificate says: names, validity and kind of key, read from its DER form (RFC 5280).

Python's `ssl` tells this of a peer's certificate only, and after a handshake. Here it is read
from the file, as far as it is needed: nothing is verified, OpenSSL does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OCTET_STRING: Final = 0x04
IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
VERSION: Final = 0xA0
EXTENSIONS: Final = 0xA3
DNS_NAME: Final = 0x82
IP_ADDRESS: Final = 0x87

SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")
COMMON_NAME: Final = bytes.fromhex("550403")


class CertificateError(ValueError):
    """Bytes that are no certificate."""


class Certificate(NamedTuple):
    """What a server's certificate says.

    Attributes:
        names: host names and addresses that it is for, in lower case; its common name if it
            has no alternative names.
        not_before, not_after: seconds since 1970 between which it is valid.
        key: the identifiers of what its public key is for, and of its curve if that has a name.
    """

    names: tuple[str, ...]
    not_before: int
    not_after: int
    key: tuple[bytes, ...]


class _Element(NamedTuple):
    tag: int
    content: bytes


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate.

    Raises:
        CertificateError: it is none.
    """
    try:
        return _read(der)
    except (IndexError, StopIteration, ValueError) as error:
        raise CertificateError("not a certificate in DER form") from error


def _read(der: bytes) -> Certificate:
    outer = next(_elements(der))
    body = next(_elements(_of(outer, SEQUENCE)))
    fields = iter(list(_elements(_of(body, SEQUENCE))))
    first = next(fields)
    if first.tag == VERSION:
        first = next(fields)
    # After the serial number: signature algorithm, issuer, validity, subject, public key.
    _, _, validity, subject, public_key, *others = fields
    not_before, not_after = map(_time, _elements(_of(validity, SEQUENCE)))
    names: tuple[str, ...] = ()
    for other in others:
        if other.tag == EXTENSIONS:
            names = _alternative_names(other.content)
    algorithm = next(_elements(_of(public_key, SEQUENCE)))
    key = tuple(one.content for one in _elements(_of(algorithm, SEQUENCE)) if one.tag == IDENTIFIER)
    names = names or _common_names(_of(subject, SEQUENCE))
    return Certificate(names, not_before, not_after, key)


def _of(element: _Element, tag: int) -> bytes:
    if element.tag != tag:
        raise ValueError(f"tag {element.tag:#x}")
    return element.content


def _elements(data: bytes) -> Iterator[_Element]:
    """The elements of a constructed value, which have lengths of the definite form."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
        if at + length > len(data):
            raise ValueError("cut off")
        yield _Element(tag, data[at : at + length])
        at += length


def _time(element: _Element) -> int:
    text = element.content.decode("ascii")
    if element.tag == UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: two digits of a year up to 2049.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif element.tag != GENERALIZED_TIME:
        raise ValueError("not a time")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _alternative_names(data: bytes) -> tuple[str, ...]:
    found: list[str] = []
    for extension in _elements(_of(next(_elements(data)), SEQUENCE)):
        identifier, *values = _elements(_of(extension, SEQUENCE))
        if identifier.content != SUBJECT_ALT_NAME:
            continue
        names = next(_elements(_of(values[-1], OCTET_STRING)))
        for name in _elements(_of(names, SEQUENCE)):
            if name.tag == DNS_NAME:
                found.append(name.content.decode("ascii").lower())
            elif name.tag == IP_ADDRESS:
                found.append(str(ip_address(name.content)))
    return tuple(found)


def _common_names(subject: bytes) -> tuple[str, ...]:
    found: list[str] = []
    for relative in _elements(subject):
        for attribute in _elements(_of(relative, SET)):
            identifier, value = _elements(_of(attribute, SEQUENCE))
            if identifier.content == COMMON_NAME:
                found.append(value.content.decode("utf-8", "replace").lower())
    return tuple(found)
