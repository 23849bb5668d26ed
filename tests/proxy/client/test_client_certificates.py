"""Clients that prove who they are: who gets in, what is counted, what upstreams are told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.certificates import Authority, Issued
from tests.proxy.wire import OK, Client, Running, answering, get, running
from tests.servers import until

ALICE = ((NameOID.ORGANIZATION_NAME, "Müller, Söhne"), (NameOID.COMMON_NAME, "alice"))
ALICE_DN = rb"CN=alice,O=M\C3\BCller\, S\C3\B6hne"
HEADERS = {"subject": "X-Client-DN", "san": "X-Client-SAN", "fingerprint": "X-Client-Hash"}


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Issued:
    """The certificate of gateways here."""
    return authority.issue("a.test")


def listen(authority: Authority, shown: Issued, mode: str, **more: Any) -> dict[str, Any]:
    """A listener that asks clients for certificates."""
    tls = {"cert": str(shown.cert), "key": str(shown.key), "client_ca": str(authority.file)}
    return {"address": "127.0.0.1:0", "tls": {**tls, "client_certificates": mode, **more}}


def alice(authority: Authority, *names: str) -> Issued:
    """A certificate of a client; a new one each time, of the same subject."""
    subject: Sequence[tuple[x509.ObjectIdentifier, str]] = ALICE
    return authority.issue(*names, subject=subject)


async def connect(run: Running, context: ssl.SSLContext) -> Client:
    """A client over TLS."""
    port = run.gateway.addresses[0].port
    opened = asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="a.test")
    client = Client(*await opened)
    run.clients.append(client)
    return client


async def is_turned_away(run: Running, context: ssl.SSLContext) -> bool:
    """Whether a request is not answered: in TLS 1.3 a client learns that after its handshake."""
    try:
        client = await connect(run, context)
        client.send(get("/", "Connection: close"))
        return await client.reader.read() == b""
    except (ssl.SSLError, ConnectionError):
        return True


def values(request: bytes, name: bytes) -> list[bytes]:
    """Those of a field of a request that arrived upstream."""
    lines = request.split(b"\r\n")
    return [line.partition(b": ")[2] for line in lines if line.startswith(name + b": ")]


async def test_who_gets_in_where_certificates_are_required(
    tmp_path: Path, authority: Authority, stranger: Authority, shown: Issued
) -> None:
    """Only a client with a certificate of the authority; none without one, or of another."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(authority, shown, "required")) as run,
    ):
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            contexts = [
                authority.client_context(pair) for pair in (alice(authority), None, alice(stranger))
            ]
            for context in contexts:
                context.maximum_version = version
            assert (await (await connect(run, contexts[0])).get()).status == 200
            assert [await is_turned_away(run, one) for one in contexts[1:]] == [True, True]
        await until(lambda: dict(run.gateway.metrics.client_errors) == {"handshake": 4})
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("strict", [False, True])
async def test_clients_certificates_that_lack_extensions(
    tmp_path: Path, authority: Authority, shown: Issued, is_complete: bool, strict: bool
) -> None:
    """They are accepted by every Python, unless verification is strict."""
    private = Authority(tmp_path / "private", is_complete=is_complete)
    where = listen(private, shown, "required", client_strict=strict)
    context = authority.client_context(alice(private))
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=where) as run:
        if is_complete or not strict:
            assert (await (await connect(run, context)).get()).status == 200
        else:
            assert await is_turned_away(run, context)


async def test_who_gets_in_where_certificates_are_optional(
    tmp_path: Path, authority: Authority, stranger: Authority, shown: Issued
) -> None:
    """A client without one, too; but none with an invalid one."""
    where = listen(authority, shown, "optional", client_headers=HEADERS)
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=where) as run:
        for pair in (alice(authority), None):
            client = await connect(run, authority.client_context(pair))
            assert (await client.get()).status == 200
        assert await is_turned_away(run, authority.client_context(alice(stranger)))
    assert [values(one, b"X-Client-DN") for one in upstream.requests] == [[ALICE_DN], []]


async def test_limits_count_by_certificate(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """By subject, which a renewed certificate keeps; clients without one are not counted."""
    where = listen(authority, shown, "optional")
    route = {"limit": "1/h per client_cert", "if_missing": "skip"}
    pairs = [alice(authority), alice(authority), authority.issue("bob"), None, None]
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=where, route=route) as run,
    ):
        statuses = [
            (await (await connect(run, authority.client_context(pair))).get()).status
            for pair in pairs
        ]
    assert statuses == [200, 429, 200, 200, 200]


async def test_who_lacks_a_certificate_is_told_so_in_the_words_of_the_limit(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """The detail that is meant when none is written is not named."""
    where = listen(authority, shown, "optional")
    route = {"limit": "1/h per client_cert+ip", "if_missing": "reject"}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=where, route=route) as run,
    ):
        answer = await (await connect(run, authority.client_context(None))).get()
    assert answer.status == 400
    assert b'counted by: client_cert+ip"' in answer.body


@pytest.mark.parametrize(
    ("key", "statuses"),
    [("client_cert:fingerprint", [200, 200, 429]), ("client_cert:san", [200, 429, 429])],
)
async def test_limits_count_by_other_details(
    tmp_path: Path, authority: Authority, shown: Issued, key: str, statuses: list[int]
) -> None:
    """By the certificate itself, or by its alternative names."""
    where = listen(authority, shown, "required")
    first, second = (alice(authority, "spiffe://a/alice") for _ in range(2))
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=where, route={"limit": f"1/h per {key}"}) as run,
    ):
        found = [
            (await (await connect(run, authority.client_context(pair))).get()).status
            for pair in (first, second, first)
        ]
    assert found == statuses


async def test_upstreams_are_told_who_it_is(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """In the gateway's fields: the same fields from clients are removed, in any spelling."""
    where = [
        listen(authority, shown, "required", client_headers=HEADERS),
        {"address": "127.0.0.1:0"},
    ]
    lies = ("X-Client-DN: CN=root", "x_client-dn: CN=root", "X_CLIENT_HASH: 0", "X-Client: yes")
    pair = alice(authority, "spiffe://a/alice")
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=where, trusted_proxies=["127.0.0.0/8"]) as run,
    ):
        client = await connect(run, authority.client_context(pair))
        assert (await client.ask(get("/", *lies))).status == 200
        plain = run.gateway.addresses[1].port
        other = Client(*await asyncio.open_connection("127.0.0.1", plain))
        run.clients.append(other)
        assert (await other.ask(get("/", *lies))).status == 200
    told, untold = upstream.requests
    assert values(told, b"X-Client-DN") == [ALICE_DN]
    assert values(told, b"X-Client-SAN") == [b"URI:spiffe://a/alice"]
    assert values(told, b"X-Client-Hash") == [pair.fingerprint.encode()]
    for request in (told, untold):
        assert b"CN=root" not in request
        assert b"_CLIENT_" not in request
        assert values(request, b"X-Client") == [b"yes"]
    assert b"X-Client-" not in untold


@pytest.mark.parametrize("trusted", [[], ["127.0.0.0/8"]], ids=["client", "trusted-proxy"])
async def test_what_others_say_of_certificates(tmp_path: Path, trusted: list[str]) -> None:
    """A proxy may send them (RFC 9440, section 4), and no client, in any spelling."""
    said = ("Client-Cert: :MIIB:", "client-cert-chain: :MIIC:", "X-Forwarded-Client-Cert: By=me")
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, trusted_proxies=trusted) as run,
    ):
        assert (await run.ask(get("/", *said, "client_cert: :MIID:"))).status == 200
    arrived = [line.encode() in upstream.requests[0] for line in said]
    assert b"MIID" not in upstream.requests[0]
    assert arrived == [bool(trusted)] * 3


async def test_another_authority_takes_over(
    tmp_path: Path, authority: Authority, stranger: Authority, shown: Issued
) -> None:
    """`client_ca` is read again like certificates, and no ticket outlives the authority's word."""
    ca = tmp_path / "clients.pem"
    ca.write_bytes(authority.file.read_bytes())
    where = listen(authority, shown, "required", client_ca=str(ca))
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=where) as run:
        old = authority.client_context(alice(authority))
        assert not await is_turned_away(run, old)
        ca.write_bytes(stranger.file.read_bytes())
        run.gateway.renew_certificates()
        new = authority.client_context(alice(stranger))
        async with asyncio.timeout(20):
            while await is_turned_away(run, new):
                pass
        assert await is_turned_away(run, old)
