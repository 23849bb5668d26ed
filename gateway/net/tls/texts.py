"""Certificates of a listener whose library makes TLS by itself, of texts that it is given.

gRPC is one. The files are looked at as those of other listeners are, so that what will not do is
told in the same words, whoever uses it in the end.
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

PLAIN_KEY: Final = "a key without a passphrase, in a file that only this user may read"

_KEYS: Final = frozenset(["RSA", "secp256r1", "secp384r1", "secp521r1", "Ed25519"])
"""What BoringSSL takes, which is in gRPC's library; OpenSSL takes more."""
_CERTIFICATES: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_PRIVATE_KEYS: Final = re.compile(
    rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)


class Texts(NamedTuple):
    """What is in the files.

    Attributes:
        pairs: each key with its certificates, as PEM.
        authorities: those of clients, as PEM; None if clients are asked for nothing.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    authorities: bytes | None


def comparable(name: str) -> str:
    """An alternative name in the form in which it is compared: of URIs the case counts.

    Addresses have one form, the shortest, and other names have no colon.
    """
    if ":" not in name:
        return name.lower()
    try:
        return str(IPv6Address(name))
    except ValueError:
        return name


class PairTexts(NamedTuple):
    """What is in the files of one certificate.

    Attributes:
        certificate: what it says itself; None as of `load_pair`.
        pem: its key, and it with those that follow it, as PEM with nothing around it.
    """

    certificate: Certificate | None
    pem: tuple[bytes, bytes]


def read_pair(context: ssl.SSLContext, pair: KeyPair) -> PairTexts:
    """Read the files of a certificate.

    Args:
        context: takes them as well, so that OpenSSL says what is wrong with them.
        pair: their files.

    Raises:
        TlsFileError: they will not do, or not for gRPC.
    """
    certificate = load_pair(context, pair, PLAIN_KEY)
    if certificate is not None and certificate.key not in _KEYS:
        message = f"{pair.cert} has a key of a kind that gRPC does not take"
        raise TlsFileError("cert", message, "RSA, or an elliptic curve: P-256 or P-384")
    key = _PRIVATE_KEYS.search(pair.key.read_bytes())
    if key is None:
        raise TlsFileError("key", f"{pair.key} has changed meanwhile")
    return PairTexts(certificate, (key.group(), _certificates(pair.cert)))


def _certificates(path: Path) -> bytes:
    """Without what may stand around them: BoringSSL does not read past a byte order mark."""
    return b"\n".join(_CERTIFICATES.findall(path.read_bytes()))


class TlsTexts(Renewed):
    """The files of one listener.

    Args:
        pairs: certificates, of which no key is encrypted; the first is for names that none of
            them has.
        client_ca: the authorities whose certificates clients must have; None if they are asked
            for none.
        names: of which a client's certificate must have one; none if any will do.

    Attributes:
        is_required: whether clients must have certificates.
        names: likewise, as they are compared.
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
        """When each certificate ends, in seconds since 1970, by its file."""

    def take_new(self) -> Texts | None:
        """What has been read since it was last taken; None if nothing has.

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
