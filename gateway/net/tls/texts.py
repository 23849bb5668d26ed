"""Certificates of listeners whose library does TLS itself, from PEM texts.

gRPC is such a library. The files are checked like those of other listeners, so that errors are
reported in the same words.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from gateway.net.tls.certificate import Certificate
from gateway.net.tls.files import KeyPair, TlsFileError, files_of, load_authorities, load_pair
from gateway.net.tls.renewed import Renewed

PLAIN_KEY: Final = "use an unencrypted key, in a file that only this user may read"

_KEYS: Final = frozenset(["RSA", "secp256r1", "secp384r1", "secp521r1", "Ed25519"])
"""Curves that BoringSSL, which is part of gRPC, supports; OpenSSL supports more."""
_CERTIFICATES: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_PRIVATE_KEYS: Final = re.compile(
    rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)


class Texts(NamedTuple):
    """The content of the files.

    Attributes:
        pairs: each key with its certificates, as PEM.
        authorities: the authorities of clients, as PEM; None if clients are not asked for
            certificates.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    authorities: bytes | None


def comparable(name: str) -> str:
    """Return an alternative name in the form used for comparison: URIs are case-sensitive.

    Addresses have one form, the shortest, and other names contain no colon.
    """
    if ":" not in name:
        return name.lower()
    try:
        return str(IPv6Address(name))
    except ValueError:
        return name


class PairTexts(NamedTuple):
    """The content of the files of one certificate.

    Attributes:
        certificate: its content; None as in `load_pair`.
        pem: its key, and the certificate with those that follow it, as PEM without other text.
    """

    certificate: Certificate | None
    pem: tuple[bytes, bytes]


def read_pair(context: ssl.SSLContext, pair: KeyPair) -> PairTexts:
    """Read the files of a certificate.

    Args:
        context: loads them as well, so that OpenSSL checks them.
        pair: their files.

    Raises:
        TlsFileError: they cannot be used, or not with gRPC.
    """
    certificate = load_pair(context, pair, PLAIN_KEY)
    if certificate is not None and certificate.key not in _KEYS:
        message = f"{pair.cert} has a kind of key that gRPC does not support"
        raise TlsFileError("cert", message, "use RSA, or an elliptic curve: P-256 or P-384")
    key = _PRIVATE_KEYS.search(pair.key.read_bytes())
    if key is None:
        raise TlsFileError("key", f"{pair.key} changed while it was read")
    return PairTexts(certificate, (key.group(), _certificates(pair.cert)))


def _certificates(path: Path) -> bytes:
    """Return the PEM blocks without text around them: BoringSSL stops at a byte order mark."""
    return b"\n".join(_CERTIFICATES.findall(path.read_bytes()))


class TlsTexts(Renewed):
    """The files of one listener.

    Args:
        pairs: certificates with unencrypted keys; the first is for unknown names.
        client_ca: the authorities that must have signed clients' certificates; None if clients are
            not asked for certificates.
        names: the names of which a client's certificate must have one; empty for any.

    Attributes:
        is_required: whether clients must have certificates.
        names: likewise, in the form used for comparison.
    """

    def __init__(
        self, pairs: Sequence[KeyPair], client_ca: Path | None, names: Iterable[str] = ()
    ) -> None:
        self._pairs = tuple(pairs)
        self._client_ca = client_ca
        self.is_required = client_ca is not None
        self.names = frozenset(map(comparable, names))
        super().__init__(files_of(pairs, client_ca))
        self._new: Texts | None = None
        self.expiries: dict[str, int] = {}
        """When each certificate expires, in seconds since 1970, by its file."""

    def take_new(self) -> Texts | None:
        """Return what has been read since the last call; None if nothing.

        May be called in any thread.
        """
        new, self._new = self._new, None
        return new

    def _read(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found = [read_pair(context, pair) for pair in self._pairs]
        authorities = None
        if self._client_ca is not None:
            load_authorities(context, self._client_ca)
            authorities = _certificates(self._client_ca)
        self.expiries = {
            str(pair.cert): one.certificate.not_after
            for pair, one in zip(self._pairs, found, strict=True)
            if one.certificate is not None
        }
        self._new = Texts(tuple(one.pem for one in found), authorities)
