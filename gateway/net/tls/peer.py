"""The identity of a client, from its verified certificate.

Values have exactly one form per certificate: they become keys of limits and header fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""Attribute types of RFC 4514, section 3; others keep OpenSSL's name."""

_special: Final = re.compile(r'^[ #]|[,+"\\<>;=]| $')
_not_printable: Final = re.compile(r"[^\x20-\x7e]")


class ClientCertificate(NamedTuple):
    """A verified certificate.

    Attributes:
        subject: its distinguished name, such as `CN=alice,O=Example` (RFC 4514).
        san: its alternative names, such as `DNS:alice.example.com,URI:spiffe://example/alice`;
            empty if it has none.
        fingerprint: SHA-256 of the certificate, as 64 hexadecimal digits.
    """

    subject: str
    san: str
    fingerprint: str


def client_certificate(decoded: Mapping[str, Any], der: bytes) -> ClientCertificate:
    """Return the identity in a certificate that `ssl` has verified.

    Args:
        decoded: as `SSLSocket.getpeercert()` returns it.
        der: the certificate itself.
    """
    names = (
        f"{kind.replace('IP Address', 'IP')}:{_value(str(name))}"
        for kind, name in decoded.get("subjectAltName", ())
    )
    return ClientCertificate(
        subject=distinguished_name(decoded.get("subject", ())),
        san=",".join(names),
        fingerprint=sha256(der).hexdigest(),
    )


def distinguished_name(names: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return the text of a name (RFC 4514): the last part first, in printable ASCII."""
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_value(value)}" for kind, value in relative)
        for relative in reversed(names)
    )


def _value(text: str) -> str:
    """Return a value, escaped: no other value gives the same text."""
    return _not_printable.sub(_escape, _special.sub(lambda match: f"\\{match[0]}", text))


def _escape(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
