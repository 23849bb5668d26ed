"""Clients whose handshake fails are told why by an alert (RFC 8446, section 6.2)."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.proxy.wire import OK, Running, answering, get, running


@asynccontextmanager
async def listening(folder: Path, authority: Authority, **tls: Any) -> AsyncIterator[Running]:
    """A gateway that speaks TLS, for a.test."""
    shown = authority.issue("a.test")
    files = {"cert": str(shown.cert), "key": str(shown.key)}
    listener = {"address": "127.0.0.1:0", "tls": {**files, **tls}}
    async with answering(OK) as upstream, running(folder, upstream, listen=listener) as run:
        yield run


async def alert_of(run: Running, context: ssl.SSLContext, name: str = "a.test") -> str:
    """What a client is told that tries to have a request answered; empty if it is."""
    port = run.gateway.addresses[0].port
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname=name
            )
            writer.write(get())
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.close()
    except ssl.SSLError as error:
        # Python has no name of its own for each of them.
        words = error.reason or str(error).removeprefix("[SSL] ").partition(" (")[0]
        return words.upper().replace(" ", "_")
    assert answer.startswith(b"HTTP/1.1 200 ")
    return ""


async def test_a_client_of_an_old_version_is_told(tmp_path: Path, authority: Authority) -> None:
    """`protocol_version`, not a connection that ends without a word."""
    context = authority.client_context()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with listening(tmp_path, authority) as run:
        assert await alert_of(run, context) == "TLSV1_ALERT_PROTOCOL_VERSION"


async def test_a_client_of_an_unknown_name_is_told(tmp_path: Path, authority: Authority) -> None:
    """`unrecognized_name`, where unknown names are refused."""
    async with listening(tmp_path, authority, strict_sni=True) as run:
        context = authority.client_context()
        assert await alert_of(run, context, "b.test") == "TLSV1_UNRECOGNIZED_NAME"
        assert await alert_of(run, context) == ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_without_a_certificate_is_told(
    tmp_path: Path, authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    """`certificate_required`, before TLS 1.3 `handshake_failure`; one of a stranger: its issuer."""
    auth = {"client_certificates": "required", "client_ca": str(authority.file)}
    async with listening(tmp_path, authority, **auth) as run:
        for shown, expected in (
            (None, {"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"}),
            (stranger.issue("mallory"), {"TLSV1_ALERT_UNKNOWN_CA"}),
            (authority.issue("alice"), {""}),
        ):
            context = authority.client_context(shown)
            context.minimum_version = context.maximum_version = version
            assert await alert_of(run, context) in expected


UNSPOKEN = "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("offered", "alert"),
    [
        (["spdy/3"], UNSPOKEN),
        (["h3", "acme-tls/1"], UNSPOKEN),
        # Its first message does not fit one record.
        ([f"protocol-{number:040}" for number in range(400)], UNSPOKEN),
        (["spdy/3", "http/1.1"], ""),
        (["http/1.0"], ""),
        ([], ""),
    ],
)
async def test_a_client_that_speaks_nothing_of_ours_is_told(
    tmp_path: Path, authority: Authority, offered: list[str], alert: str, *, strict: bool
) -> None:
    """`no_application_protocol` (RFC 7301, section 3.2); a client without ALPN uses HTTP/1.1."""
    context = authority.client_context()
    if offered:
        context.set_alpn_protocols(offered)
    async with listening(tmp_path, authority, strict_sni=strict) as run:
        assert await alert_of(run, context) == alert
        assert run.gateway.metrics.client_errors["handshake"] == bool(alert)
