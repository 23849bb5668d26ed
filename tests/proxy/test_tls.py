"""Clients that speak TLS, with the gateway and with upstreams; real certificates, real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.certificates import Authority, Issued
from tests.proxy.wire import OK, Client, Running, answering, get, running
from tests.servers import becomes, until


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Issued:
    """The certificate of most gateways here."""
    return authority.issue("a.test", "127.0.0.1")


def listen(*pairs: Issued, **more: Any) -> dict[str, Any]:
    """A listener with TLS."""
    certificates = [{"cert": str(pair.cert), "key": str(pair.key)} for pair in pairs]
    tls = {**certificates[0]} if len(pairs) == 1 else {"certificates": certificates}
    return {"address": "127.0.0.1:0", "tls": {**tls, **more}}


async def connect(run: Running, context: ssl.SSLContext, name: str | None = "a.test") -> Client:
    """A client that has agreed on TLS with the gateway."""
    port = run.gateway.addresses[0].port
    async with asyncio.timeout(20):
        client = Client(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname=name or ""
            )
        )
    run.clients.append(client)
    return client


def peer_names(client: Client) -> list[str]:
    """The names of the certificate that the gateway has shown."""
    decoded: dict[str, Any] = client.writer.get_extra_info("peercert")
    return [name for _, name in decoded["subjectAltName"]]


def failures(run: Running) -> dict[str, int]:
    """What was counted of clients that never got as far as a request."""
    return dict(run.gateway.metrics.client_errors)


async def test_requests_over_tls(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """They are served, and the upstream is told that the scheme is https."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown)) as run,
    ):
        client = await connect(run, authority.client_context())
        for _ in range(3):
            assert (await client.get()).status == 200
        assert (await client.ask(get("https://a.test/x"))).status == 200
        assert (await client.ask(get("http://a.test/x"))).status == 400
    heads = b"".join(upstream.requests)
    assert heads.count(b"\r\nX-Forwarded-Proto: https\r\n") == 4
    assert heads.count(b";proto=https\r\n") == 4


async def test_what_is_agreed_on(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """TLS 1.3 and http/1.1, TLS 1.2 with older clients, forward secrecy, no compression."""
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen(shown)) as run:
        context = authority.client_context()
        context.set_alpn_protocols(["http/1.1"])
        connection = (await connect(run, context)).writer.get_extra_info("ssl_object")
        assert (connection.version(), connection.selected_alpn_protocol()) == (
            "TLSv1.3",
            "http/1.1",
        )
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = (await connect(run, context)).writer.get_extra_info("ssl_object")
        assert connection.version() == "TLSv1.2"
        assert connection.compression() is None
        assert connection.cipher()[0].startswith("ECDHE-ECDSA-")


@pytest.mark.parametrize(
    ("more", "make"),
    [
        ({}, lambda context: _version(context, ssl.TLSVersion.TLSv1_1)),
        ({"min_version": "1.3"}, lambda context: _version(context, ssl.TLSVersion.TLSv1_2)),
        ({}, lambda context: _ciphers(context, "AES128-GCM-SHA256")),
        ({}, lambda context: _ciphers(context, "ECDHE-ECDSA-AES128-SHA")),
    ],
    ids=["tls-1.1", "min_version", "no-forward-secrecy", "cbc"],
)
async def test_what_is_not_agreed_on(
    tmp_path: Path,
    authority: Authority,
    shown: Issued,
    more: dict[str, Any],
    make: Callable[[ssl.SSLContext], None],
) -> None:
    """Old versions and ciphers are refused; that is counted, and no line of the log."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown, **more)) as run,
    ):
        context = authority.client_context()
        make(context)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(run, context)
        await until(lambda: failures(run) == {"handshake": 1})


def _version(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")


def _ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)


async def test_the_certificate_is_chosen_by_name(tmp_path: Path, authority: Authority) -> None:
    """By its own names, wildcards included; the first is for unknown names and for none."""
    pairs = (
        authority.issue("first.test", "127.0.0.1"),
        authority.issue("*.b.test"),
        authority.issue("c.b.test"),
    )
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen(*pairs)) as run:
        context = authority.client_context()
        for asked, names in [
            ("first.test", ["first.test", "127.0.0.1"]),
            ("x.b.test", ["*.b.test"]),
            ("c.b.test", ["c.b.test"]),
            ("127.0.0.1", ["first.test", "127.0.0.1"]),
        ]:
            client = await connect(run, context, asked)
            assert peer_names(client) == names
            assert (await client.get()).status == 200
        context.check_hostname = False
        for unknown in ("b.test", "y.x.b.test", "else.test", None):
            client = await connect(run, context, unknown)
            assert peer_names(client)[0] == "first.test"


async def test_unknown_names_may_be_refused(tmp_path: Path, authority: Authority) -> None:
    """With `strict_sni` a client has to ask for a name, and for one that is there."""
    pairs = (authority.issue("first.test"), authority.issue("b.test"))
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(*pairs, strict_sni=True)) as run,
    ):
        context = authority.client_context()
        assert peer_names(await connect(run, context, "b.test")) == ["b.test"]
        context.check_hostname = False
        for unknown in ("else.test", None):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(run, context, unknown)
        await until(lambda: failures(run) == {"handshake": 2})


async def test_new_certificates_are_taken_up(
    tmp_path: Path, authority: Authority, shown: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections see them, old ones live on, and a broken pair changes nothing."""
    served = authority.issue("old.test")
    complaint = "cannot be used"
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, complaint, listen=listen(served)) as run,
    ):
        context = authority.client_context()
        context.check_hostname = False
        before = await connect(run, context)
        assert peer_names(before) == ["old.test"]

        async def shows(name: str) -> bool:
            run.gateway.renew_certificates()
            client = await connect(run, context)
            client.close()
            return peer_names(client) == [name]

        new = authority.issue("new.test", lasts=timedelta(days=9))
        served.key.write_bytes(new.key.read_bytes())
        assert await shows("old.test")
        served.cert.write_bytes(b"nothing")
        assert await shows("old.test")
        served.cert.write_bytes(new.cert.read_bytes())
        await becomes(lambda: shows("new.test"), wanted=True)
        assert (await before.get()).status == 200
        certificates = run.gateway.metrics.certificates
        assert certificates == {str(served.cert): new.not_after.timestamp()}


async def test_slow_handshakes_end(tmp_path: Path, shown: Issued) -> None:
    """A client that sends nothing, or half a hello, is disconnected after `header_timeout`."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path, upstream, listen=listen(shown), server={"header_timeout": "200ms"}
        ) as run,
    ):
        clients = [await run.client() for _ in range(3)]
        clients[1].send(b"\x16\x03\x01\x02\x00\x01")
        clients[2].send(b"\x16")
        for client in clients:
            assert await client.is_closed()
        await until(lambda: failures(run) == {"handshake_timeout": 3})


async def test_who_never_ends_a_handshake_keeps_nobody_out(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """As many may be in one as there may be clients; then the oldest of them makes room."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown), server={"max_connections": 3}) as run,
    ):
        idlers = [await run.client() for _ in range(3)]
        client = await connect(run, authority.client_context())
        assert (await client.get()).status == 200
        assert await idlers[0].is_closed()
        assert failures(run) == {"handshake_timeout": 1}
        # Now one of three places is taken by a client that is served.
        idlers += [await run.client()]
        assert await idlers[1].is_closed()
        assert (await client.get()).status == 200


async def test_plain_http_where_tls_is_spoken(tmp_path: Path, shown: Issued) -> None:
    """It is no handshake: the connection ends, which is counted; one that only came is not."""
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen(shown)) as run:
        (await run.client()).close()
        client = await run.client()
        client.send(get())
        await client.at_end()
        await until(lambda: failures(run) == {"handshake": 1})


async def test_what_is_no_handshake(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """Whatever bytes come, the connection ends, and others are served as before."""
    random = Random(66)
    whole = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + random.randbytes(194)
    inputs = [random.randbytes(random.randint(1, 600)) for _ in range(20)]
    inputs += [whole[: random.randint(6, 200)] + random.randbytes(300) for _ in range(20)]
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown), server={"header_timeout": "1s"}) as run,
    ):
        clients = [await run.client() for _ in inputs]
        for client, data in zip(clients, inputs, strict=True):
            client.send(data)
        for client in clients:
            with contextlib.suppress(ConnectionError):
                await client.at_end()
        assert set(failures(run)) <= {"handshake", "handshake_timeout"}
        assert sum(failures(run).values()) == len(inputs)
        assert (await (await connect(run, authority.client_context())).get()).status == 200


async def test_a_stop_does_not_wait_for_handshakes(tmp_path: Path, shown: Issued) -> None:
    """Clients in the middle of one are disconnected at once."""
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen(shown)) as run:
        client = await run.client()
        client.send(b"\x16\x03\x01")
        (group,) = run.gateway._listeners._groups
        await until(lambda: group.listeners[0].is_busy)
        async with asyncio.timeout(20):
            await run.gateway.stop(60)
        assert await client.is_closed()


async def test_too_many_clients_over_tls(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """One more than its address may have is closed at once, and keeps no place."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            "clients are refused",
            listen=listen(shown),
            server={"max_connections_per_ip": 1},
        ) as run,
    ):
        first = await connect(run, authority.client_context())
        assert (await first.get()).status == 200
        for _ in range(3):
            with contextlib.suppress(OSError):
                refused = await connect(run, authority.client_context())
                assert await refused.is_closed()
        assert (await first.get()).status == 200
        assert run.gateway.metrics.connections == 1
        assert run.gateway.metrics.connections_refused == {"max_connections_per_ip": 3}
