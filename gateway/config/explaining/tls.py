"""TLS and PROXY headers of listeners and upstreams, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.listeners import ListenerConfig, ListenerTls
from gateway.config.models.upstreams import UpstreamConfig

STRICT: Final = "Certificates must have every extension that RFC 5280 requires."


def explain_listener(listener: ListenerConfig, where: str) -> Iterator[str]:
    """Describe what clients of a listener must show and are shown."""
    senders = listener.proxy_protocol
    if senders:
        named = ", ".join(map(str, senders)) if isinstance(senders, tuple) else ""
        who = named or "trusted proxies"
        yield (
            f"On {where}, connections from {who} begin with a PROXY header, which has the "
            "client's address."
        )
    if listener.redirect_to_https is not None:
        port = listener.redirect_to_https
        yield (
            f"On {where}, clients are redirected to https on port {port}, except for ACME "
            "challenges."
        )
    if listener.tls is not None:
        yield from explain_tls(listener.tls, where)
        if listener.http2 is False:
            yield "  They speak HTTP/1.1 only."
    elif listener.speaks_http2:
        yield f"On {where}, clients that know of it may speak HTTP/2."


def explain_tls(tls: ListenerTls, where: str) -> Iterator[str]:
    """Describe the certificates of a listener, and those that it asks clients for."""
    files = [str(pair.cert) for pair in tls.pairs]
    others = f", others by name: {', '.join(files[1:])}" if len(files) > 1 else ""
    yield (
        f"On {where}, clients use TLS {tls.min_version} or newer; the certificate is "
        f"{files[0]}{others}."
    )
    if tls.strict_sni:
        yield "  Clients that ask for an unknown name are refused."
    if tls.client_certificates is not None:
        verb = "must" if tls.client_certificates == "required" else "may"
        yield f"  Clients {verb} show a certificate that is signed by {tls.client_ca}."
    if tls.client_strict:
        yield f"  {STRICT}"
    if tls.client_names:
        yield f"  It must be for {' or '.join(tls.client_names)}."
    if tls.client_headers is not None:
        fields = ", ".join(f"{d} in {n}" for d, n in tls.client_headers.by_detail.items())
        yield f"  Upstreams receive {fields}; clients cannot set these fields."


def explain_upstream_tls(upstream: UpstreamConfig) -> Iterator[str]:
    """Describe how targets are verified."""
    tls = upstream.tls
    if tls is None or all(target.scheme == "http" for target in upstream.targets):
        return
    name = tls.server_name or "the host of the target"
    if not tls.verify:
        yield f"TLS requests the name {name}, and the certificate is not verified."
    else:
        by = tls.ca or "an authority of the system"
        yield f"Its certificate must be for {name}, and signed by {by}."
    if tls.strict:
        yield STRICT
    if tls.cert is not None:
        yield f"If the upstream asks for a certificate, it receives {tls.cert}."
