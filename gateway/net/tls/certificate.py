"""The content of a server certificate: names, validity and kind of key.

Python's `ssl` reports these only for a peer's certificate, after a handshake; `cryptography` reads
them from the file. OpenSSL does all verification.
"""

from __future__ import annotations

import warnings
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509


class CertificateError(ValueError):
    """Bytes that are not a certificate, or not one according to RFC 5280."""


class Certificate(NamedTuple):
    """The content of a server certificate.

    Attributes:
        names: its host names and addresses, in lower case; its common name if it has no alternative
            names.
        not_before, not_after: seconds since 1970 between which it is valid.
        key: the kind of its public key: `RSA`, `Ed25519` or the name of a curve, such as
            `secp256r1`; empty for others.
    """

    names: tuple[str, ...]
    not_before: int
    not_after: int
    key: str


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate.

    Raises:
        CertificateError: it is not a certificate.
    """
    # Imported here, because processes without TLS do not need it.
    from cryptography import x509

    try:
        # About serial numbers that are not positive and long names, which we cannot change.
        with warnings.catch_warnings(action="ignore"):
            found = x509.load_der_x509_certificate(der)
            return Certificate(
                _alternative_names(found) or _common_names(found),
                int(found.not_valid_before_utc.timestamp()),
                int(found.not_valid_after_utc.timestamp()),
                _kind_of_key(found, der),
            )
    except (
        ValueError,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise CertificateError("not a certificate according to RFC 5280") from error


def _alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    found: list[str] = []
    for name in extension.value:
        if isinstance(name, x509.DNSName):
            found.append(name.value.encode("ascii").decode().lower())
        elif isinstance(name, x509.IPAddress):
            # A network is not the name of a server.
            found.append(str(ip_address(str(name.value))))
    return tuple(found)


def _common_names(certificate: x509.Certificate) -> tuple[str, ...]:
    from cryptography.x509.oid import NameOID

    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return tuple([str(one.value).lower() for one in found])


def _kind_of_key(certificate: x509.Certificate, der: bytes) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        key = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return ""
    if key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) not in der:
        # RSA for PSS signatures only, or a curve with explicit parameters: few libraries support
        # these.
        return ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name
    if isinstance(key, rsa.RSAPublicKey):
        return "RSA"
    return "Ed25519" if isinstance(key, ed25519.Ed25519PublicKey) else ""
