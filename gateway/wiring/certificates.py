"""The certificate files of a configuration: how they are used, and checks of them.

The only place where sections of the configuration become arguments of `gateway.net.tls`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Final

from gateway.base.clock import wall_us
from gateway.config.checking.check import Inspect, Inspection
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.listeners import CertificateConfig, ListenerTls
from gateway.config.models.upstreams import UpstreamTlsConfig
from gateway.config.values.findings import Finding, Path
from gateway.net.tls.certificate import Certificate
from gateway.net.tls.client import UpstreamTls
from gateway.net.tls.files import (
    ClientAuth,
    KeyPair,
    TlsFileError,
    load_authorities,
    load_pair,
)
from gateway.net.tls.handshake import PROTOCOLS, PROTOCOLS_WITH_HTTP2
from gateway.net.tls.server import ServerTls
from gateway.net.tls.texts import TlsTexts, read_pair
from gateway.proxy.upstream.pool import H2
from gateway.wiring.tokens import inspect_keys

DAY_S: Final = 86_400
SOON_S: Final = 14 * DAY_S
"""Certificates that expire within this time cause a warning."""


def server_tls(tls: ListenerTls) -> ServerTls:
    """Return TLS of a listener that offers HTTP/2 and HTTP/1.1, not loaded yet."""
    return _server_tls(tls, PROTOCOLS_WITH_HTTP2)


def server_tls_http1(tls: ListenerTls) -> ServerTls:
    """Return TLS of a listener that offers HTTP/1.1 only, not loaded yet."""
    return _server_tls(tls, PROTOCOLS)


def _server_tls(tls: ListenerTls, protocols: Sequence[str]) -> ServerTls:
    clients = None
    if tls.client_certificates is not None and tls.client_ca is not None:
        is_required = tls.client_certificates == "required"
        clients = ClientAuth(tls.client_ca, is_required, is_strict=tls.client_strict)
    pairs = [_pair(one) for one in tls.pairs]
    return ServerTls(pairs, tls.min_version, clients, is_strict=tls.strict_sni, protocols=protocols)


def frontend_tls(tls: ListenerTls) -> TlsTexts:
    """Return TLS of a listener for other systems' clients, not loaded yet."""
    return TlsTexts([_pair(one) for one in tls.pairs], tls.client_ca, tls.client_names)


def upstream_tls(tls: UpstreamTlsConfig | None, protocol: str = "") -> UpstreamTls:
    """Return TLS to an upstream, not loaded yet.

    Args:
        tls: as configured; None for what is usual.
        protocol: what is agreed on with its servers (ALPN); empty for anything.
    """
    if tls is None:
        return UpstreamTls(None, None, protocol=protocol)
    return UpstreamTls(
        tls.ca,
        _pair_of(tls),
        tls.server_name or "",
        verifies=tls.verify,
        is_strict=tls.strict,
        protocol=protocol,
    )


def upstream_tls_http2(tls: UpstreamTlsConfig | None) -> UpstreamTls:
    """Return TLS to an upstream that speaks HTTP/2, not loaded yet."""
    return upstream_tls(tls, H2)


def inspection(*, is_start: bool) -> Inspect:
    """Return a function that checks the files.

    Args:
        is_start: whether the gateway is about to start. It also starts with an expired certificate,
            because a restart must not make things worse.
    """
    return partial(_inspect, now_s=wall_us() // 1_000_000, is_start=is_start)


def _inspect(config: GatewayConfig, *, now_s: int, is_start: bool) -> Inspection:
    problems: list[Finding] = []
    warnings: list[Finding] = []
    for path, pair in _pairs(config):
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            is_text = path[0] == "listeners"
            certificate = (
                read_pair(context, pair).certificate if is_text else load_pair(context, pair)
            )
        except TlsFileError as error:
            problems.append(Finding((*path, error.field), error.message, error.hint))
            if error.field == "cert":
                problems += _unreadable((*path, "key"), pair.key)
            continue
        if certificate is None:
            message = (
                f"{pair.cert} does not conform to RFC 5280: its names and dates cannot be read"
            )
            hint = "have it reissued; until then it is not selected by server name"
            warnings.append(Finding((*path, "cert"), message, hint))
            continue
        finding = _validity((*path, "cert"), pair.cert, certificate, now_s)
        if finding is not None:
            is_over = not certificate.not_before <= now_s < certificate.not_after
            (problems if is_over and not is_start else warnings).append(finding)
    problems += inspect_keys(config)
    for path, ca in _authorities(config):
        try:
            load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ca)
        except TlsFileError as error:
            problems.append(Finding(path, error.message, error.hint))
    return Inspection(problems, warnings)


def files_of_certificates(config: GatewayConfig) -> list[FilePath]:
    """Return each file of a certificate, key or authority, and of the keys of tokens."""
    files = [file for _, pair in _pairs(config) for file in (pair.cert, pair.key)]
    files += [config.jwt.file] if config.jwt is not None and config.jwt.file is not None else []
    return files + [file for _, file in _authorities(config)]


def _unreadable(path: Path, file: FilePath) -> Iterator[Finding]:
    try:
        file.open("rb").close()
    except OSError as error:
        yield Finding(path, f"{file} cannot be read: {error.strerror or error}")


def _listeners(config: GatewayConfig) -> Iterator[tuple[Path, ListenerTls]]:
    for index, listener in enumerate(config.listen):
        if listener.tls is not None:
            yield ("listen", index, "tls"), listener.tls
    for index, frontend in enumerate(config.listeners):
        if frontend.tls is not None:
            yield ("listeners", index, "tls"), frontend.tls


def _pairs(config: GatewayConfig) -> Iterator[tuple[Path, KeyPair]]:
    for base, tls in _listeners(config):
        for number, one in enumerate(tls.pairs):
            path = base if tls.cert is not None else (*base, "certificates", number)
            yield path, _pair(one)
    for name, upstream in config.upstreams.items():
        pair = _pair_of(upstream.tls)
        if pair is not None:
            yield ("upstreams", name, "tls"), pair


def _authorities(config: GatewayConfig) -> Iterator[tuple[Path, FilePath]]:
    for base, tls in _listeners(config):
        if tls.client_ca is not None:
            yield (*base, "client_ca"), tls.client_ca
    for name, upstream in config.upstreams.items():
        if upstream.tls is not None and upstream.tls.ca is not None:
            yield ("upstreams", name, "tls", "ca"), upstream.tls.ca


def _validity(path: Path, file: FilePath, certificate: Certificate, now_s: int) -> Finding | None:
    """Return the warning about the validity of a certificate, if any."""
    begin, end = certificate.not_before, certificate.not_after
    if now_s < begin:
        return Finding(path, f"{file} is not valid before {_date(begin)}", "check the system clock")
    if now_s >= end:
        return Finding(path, f"{file} expired on {_date(end)}", "renew it: clients refuse it")
    # Some are issued for a few days only, and then always expire soon.
    soon_s = min(SOON_S, (end - begin) // 3)
    if end - now_s < soon_s:
        days = (end - now_s) // DAY_S
        left = f"in {days} days" if days > 1 else "within two days"
        return Finding(path, f"{file} expires on {_date(end)}, {left}", "renew it")
    return None


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _pair(one: CertificateConfig) -> KeyPair:
    return KeyPair(one.cert, one.key, one.key_password)


def _pair_of(tls: UpstreamTlsConfig | None) -> KeyPair | None:
    if tls is None or tls.cert is None or tls.key is None:
        return None
    return KeyPair(tls.cert, tls.key, tls.key_password)
