"""Real certificates for tests: an authority of the test's own, and what it signs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    CertificatePublicKeyTypes,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = timedelta(days=1)
_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)

ONLY_OPENSSL_READS: Final = x509.UnrecognizedExtension(
    x509.BasicConstraints.oid, bytes.fromhex("3003010100")
)
"""Says that it is no authority in so many words, where RFC 5280 wants nothing said."""


class Issued(NamedTuple):
    """A certificate and its key, in files."""

    cert: Path
    key: Path

    @property
    def not_after(self) -> datetime:
        """When it ends."""
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).not_valid_after_utc

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in hexadecimal digits."""
        certificate = x509.load_pem_x509_certificate(self.cert.read_bytes())
        return certificate.fingerprint(hashes.SHA256()).hex()

    def replace_by(self, other: Issued) -> None:
        """Put another one in its place."""
        for old, new in zip(self, other, strict=True):
            old.write_bytes(new.read_bytes())


class Authority:
    """Signs certificates.

    Args:
        folder: where its own certificate is written, as `NAME.pem`.
        name: what it is called.
        is_complete: whether its certificates have every extension that RFC 5280 asks for; many a
            private authority's have not.
    """

    def __init__(self, folder: Path, name: str = "ca", *, is_complete: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._is_complete = is_complete
        self._count = 0
        builder = self._builder(self._name, self._key.public_key(), DAY, 30 * DAY)
        if is_complete:
            builder = builder.add_extension(_CA_USAGE, critical=True)
        certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(self._key, hashes.SHA256())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        *names: str,
        subject: Sequence[tuple[x509.ObjectIdentifier, str]] = (),
        starts: timedelta = -DAY,
        lasts: timedelta = 30 * DAY,
        password: str = "",
        key: CertificateIssuerPrivateKeyTypes | None = None,
        extensions: Sequence[x509.ExtensionType] = (),
    ) -> Issued:
        """Sign a new certificate, for servers and clients.

        Args:
            names: its alternative names: hosts, addresses, or URIs.
            subject: attributes of its name; the first of `names` as common name if left out.
            starts: from when on it is valid, counted from now.
            lasts: for how long.
            password: what its key is protected by.
            key: its key; one on P-256 if left out.
            extensions: what it has beside the usual ones.
        """
        self._count += 1
        key = key or ec.generate_private_key(ec.SECP256R1())
        said = subject or [(NameOID.COMMON_NAME, names[0])]
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in said])
        builder = self._builder(name, key.public_key(), -starts, lasts + starts)
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(one) for one in names])
            builder = builder.add_extension(alternatives, critical=False)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = self._folder / f"{self.file.stem}-{self._count}"
        issued = Issued(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        issued.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        return issued

    def client_context(self, shown: Issued | None = None) -> ssl.SSLContext:
        """A context of a client that trusts this authority alone."""
        context = ssl.create_default_context(cafile=str(self.file))
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        return context

    def server_context(self, shown: Issued, *, asks: bool = False) -> ssl.SSLContext:
        """A context of a server; `asks` for certificates that this authority has signed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown.cert, shown.key)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(self.file))
        return context

    def _builder(
        self, name: x509.Name, key: CertificatePublicKeyTypes, before: timedelta, after: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - before)
            .not_valid_after(now + after)
        )
        if not self._is_complete:
            return builder
        ours = self._key.public_key()
        return builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key), critical=False
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)


def _general_name(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
