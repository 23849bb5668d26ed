"""TLS of a gRPC server, whose certificates change when their files do."""

from __future__ import annotations

import grpc

from gateway.net.tls.texts import Texts, TlsTexts, comparable
from gateway.systems.grpc.calls import Context


def credentials_of(files: TlsTexts) -> grpc.ServerCredentials:
    """Return a port's credentials, which check before each handshake for new certificates.

    Args:
        files: already loaded, and not in use yet.
    """
    first = files.take_new()
    assert first is not None, "it is loaded"

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        # Called by a grpcio thread, so nothing is read here.
        new = files.take_new()
        return None if new is None else _configuration(new)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(first),
        fetch,  # type: ignore[arg-type] # None is "no change", which its types do not know
        require_client_authentication=files.is_required,
    )


def is_named(context: Context, names: frozenset[str]) -> bool:
    """Return whether the certificate of a call's client has one of these alternative names."""
    found = context.auth_context().get("x509_subject_alternative_name", ())
    return any(comparable(name.decode("utf-8", "replace")) in names for name in found)


def _configuration(texts: Texts) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(list(texts.pairs), texts.authorities)
