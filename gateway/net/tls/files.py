"""Contexts made from files: keys, certificates and authorities, as they are on disk.

OpenSSL's errors become a `TlsFileError`, which names the key at fault. Everything here blocks: an
event loop runs it in a thread.
"""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

from gateway.base.errors import UnusableFileError
from gateway.base.regular import open_regular
from gateway.net.tls.certificate import Certificate, CertificateError, read_certificate
from gateway.net.tls.handshake import PROTOCOLS, ServerContext

MAX_BYTES: Final = 1 << 20
"""The maximum size of a file; bundles of all public authorities have 200 KiB."""

CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)
"""Mozilla's "intermediate" for TLS 1.2 (version 5.7), without DHE, which needs parameters and which
no client depends on; all those of TLS 1.3 are good.
"""

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

Field = Literal["cert", "key", "key_password", "ca"]


class TlsFileError(UnusableFileError):
    """A file that cannot be used.

    Attributes:
        field: the key that names it, or a related one.
    """

    def __init__(self, field: Field, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.field = field


class KeyPair(NamedTuple):
    """The paths of a certificate and its key.

    Attributes:
        cert: the certificate, followed by intermediate certificates, as PEM.
        key: its private key, as PEM.
        key_password: the password of the key; None if it is not encrypted.
    """

    cert: Path
    key: Path
    key_password: str | None = None


class ClientAuth(NamedTuple):
    """The certificates that clients must or may present.

    Attributes:
        ca: the authorities that sign them, as PEM.
        is_required: whether clients without one are refused.
        is_strict: whether certificates need every extension that RFC 5280 requires.
    """

    ca: Path
    is_required: bool
    is_strict: bool = False


def files_of(pairs: Iterable[KeyPair], authorities: Path | None) -> tuple[Path, ...]:
    """Return all files of some certificates, and of authorities if there are any."""
    files = [path for pair in pairs for path in (pair.cert, pair.key)]
    return (*files, *(() if authorities is None else (authorities,)))


def digest(paths: Iterable[Path]) -> bytes:
    """Return a fingerprint that changes with the files; an unreadable file counts as empty."""
    total = sha256()
    for path in paths:
        try:
            with open_regular(path) as stream:
                content = stream.read()
        except OSError:
            content = b""
        total.update(sha256(content).digest())
    return total.digest()


def leaf(pair: KeyPair) -> Certificate | None:
    """Return the first certificate of a pair's file; None if perhaps only OpenSSL can read it.

    Raises:
        TlsFileError: there is no certificate.
    """
    text = _read(pair.cert, "cert", _test_pair_hint(pair))
    begin = text.find(ssl.PEM_HEADER)
    end = text.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        hint = "use text that begins with -----BEGIN CERTIFICATE-----"
        raise TlsFileError("cert", f"{pair.cert} contains no certificate in PEM format", hint)
    try:
        der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
    except ValueError:
        raise _broken(pair) from None
    with suppress(CertificateError):
        return read_certificate(der)
    return None


def _broken(pair: KeyPair) -> TlsFileError:
    return TlsFileError("cert", f"{pair.cert} contains a damaged certificate")


def load_pair(
    context: ssl.SSLContext,
    pair: KeyPair,
    if_encrypted: str = "set it: key_password: ${file:/run/secrets/key_password}",
) -> Certificate | None:
    """Load a certificate into a context; returns its content.

    OpenSSL accepts some that do not conform to RFC 5280; their content is unknown.

    Args:
        context: the context.
        pair: the certificate.
        if_encrypted: the hint if the key is encrypted and there is no password.

    Raises:
        TlsFileError: it cannot be loaded, with the reason.
    """
    certificate = leaf(pair)
    if "PRIVATE KEY-----" not in _read(pair.key, "key"):
        hint = "use text that begins with -----BEGIN PRIVATE KEY-----"
        raise TlsFileError("key", f"{pair.key} contains no private key in PEM format", hint)
    is_asked = False

    def password() -> str:
        # Without a function, OpenSSL would prompt on the terminal.
        nonlocal is_asked
        is_asked = True
        return pair.key_password or ""

    try:
        context.load_cert_chain(pair.cert, pair.key, password)
    except (ssl.SSLError, OSError, ValueError) as error:
        if is_asked and pair.key_password is None:
            message = f"{pair.key} is encrypted, and there is no password"
            raise TlsFileError("key", message, if_encrypted) from None
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            message = f"{pair.key} is not the key of {pair.cert}"
            hint = "put the certificate itself first in its file, then those that signed it"
            raise TlsFileError("key", message, hint) from None
        if is_asked:
            message = f"the password does not decrypt {pair.key}"
            raise TlsFileError("key_password", message) from None
        if certificate is None:
            raise _broken(pair) from None
        words = str(reason).replace("_", " ").lower()
        message = f"{pair.cert} and {pair.key} cannot be used: {words}"
        raise TlsFileError("cert", message) from None
    return certificate


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Make a context trust the authorities in a file.

    Raises:
        TlsFileError: the file contains none.
    """
    text = _read(path, "ca")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        message = f"{path} contains no certificates in PEM format"
        hint = "use texts that begin with -----BEGIN CERTIFICATE-----"
        raise TlsFileError("ca", message, hint) from None


def server_context(
    min_version: str, clients: ClientAuth | None, protocols: Sequence[str] = PROTOCOLS
) -> ssl.SSLContext:
    """Return a context for connections from clients, without a certificate yet.

    Args:
        min_version: `1.2` or `1.3`.
        clients: the certificates to ask clients for; None for none.
        protocols: what is spoken, by ALPN names, the preferred one first.

    Raises:
        TlsFileError: a file cannot be used.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[min_version]
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(protocols)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if clients is not None:
        is_required = clients.is_required
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        load_authorities(context, clients.ca)
        _judge(context, is_strict=clients.is_strict)
    return context


def client_context(
    ca: Path | None, pair: KeyPair | None, *, verifies: bool, is_strict: bool = False
) -> ssl.SSLContext:
    """Return a context for connections to an upstream.

    Args:
        ca: the authorities to trust; None for those of the system.
        pair: the certificate to present if asked.
        verifies: whether the upstream's certificate and name are verified.
        is_strict: whether certificates need every extension that RFC 5280 requires.

    Raises:
        TlsFileError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None:
        load_authorities(context, ca)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _judge(context, is_strict=is_strict)
    if pair is not None:
        load_pair(context, pair)
    return context


def _test_pair_hint(pair: KeyPair) -> str:
    """Return a command that makes a test certificate, if there is neither certificate nor key."""
    if pair.cert.exists() or pair.key.exists():
        return ""
    folder = pair.cert.parent
    key = pair.key.name if pair.key.parent == folder else str(pair.key)
    place = shlex.quote(str(folder))
    return (
        f"for a test: mkdir -p {place} && cd {place} && openssl req -x509 -nodes "
        "-newkey rsa:2048 -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {shlex.quote(key)} -out {shlex.quote(pair.cert.name)}"
    )


def _judge(context: ssl.SSLContext, *, is_strict: bool) -> None:
    """Set how strictly certificates are verified, whatever the version of Python."""
    if is_strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    else:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT


def _read(path: Path, field: Field, if_missing: str = "") -> str:
    try:
        with open_regular(path) as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        hint = if_missing if isinstance(error, FileNotFoundError) else ""
        raise TlsFileError(field, message, hint) from None
    if len(content) > MAX_BYTES:
        raise TlsFileError(field, f"{path} is larger than {MAX_BYTES >> 20} MiB")
    # Comments may be in any encoding; OpenSSL's functions need ASCII.
    return content.decode("ascii", "replace").replace("\N{REPLACEMENT CHARACTER}", "?")
