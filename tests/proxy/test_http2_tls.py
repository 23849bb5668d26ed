"""HTTP/2 over TLS: what is agreed on, and which requests belong on a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import StartError
from gateway.config.models.gateway import GatewayConfig
from gateway.wiring.listeners import check_http2, rules_of
from tests.certificates import Authority, Issued
from tests.http2 import Fields, Http2Client, headers
from tests.processes import free_port
from tests.proxy.wire import OK, Running, answering, running


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Issued:
    """The certificate of most gateways here."""
    return authority.issue("a.test", "*.b.test")


def listen(
    shown: Issued, tls: Mapping[str, object] | None = None, **more: object
) -> dict[str, Any]:
    """A listener with TLS."""
    pair = {"cert": str(shown.cert), "key": str(shown.key)}
    return {"address": "127.0.0.1:0", "tls": {**pair, **(tls or {})}, **more}


def offering(context: ssl.SSLContext, *protocols: str) -> ssl.SSLContext:
    """The context, with these protocols."""
    context.set_alpn_protocols(protocols)
    return context


def fields(host: str, scheme: str = "https") -> Fields:
    """A request for a host."""
    return [(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", host)]


async def ask(client: Http2Client, host: str, scheme: str = "https") -> int:
    """The status of a request for a host."""
    stream = client.open()
    client.send(headers(stream, fields(host, scheme)))
    return (await client.answer(stream)).status


@asynccontextmanager
async def connected(
    run: Running, context: ssl.SSLContext, name: str = "a.test", listener: int = 0
) -> AsyncIterator[Http2Client]:
    """A connection."""
    port = run.gateway.addresses[listener].port
    async with asyncio.timeout(30):
        client = await Http2Client.connect(port, offering(context, "h2"), server_name=name)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("http2", "offered", "agreed"),
    [
        ("auto", ["h2", "http/1.1"], "h2"),
        ("auto", ["http/1.1", "h2"], "h2"),
        (True, ["h2"], "h2"),
        ("auto", ["http/1.1"], "http/1.1"),
        ("auto", [], None),
        (False, ["h2", "http/1.1"], "http/1.1"),
    ],
)
async def test_what_is_agreed_on(
    tmp_path: Path,
    authority: Authority,
    shown: Issued,
    http2: object,
    offered: list[str],
    agreed: str | None,
) -> None:
    """HTTP/2 with those that offer it, whatever they prefer, unless it is switched off."""
    context = authority.client_context()
    if offered:
        offering(context, *offered)
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown, http2=http2)) as run,
    ):
        port = run.gateway.addresses[0].port
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="a.test"
        )
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
        writer.transport.abort()


async def test_nothing_in_common(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """A client that offers only HTTP/2 is told, where it is switched off (RFC 7301, 3.2)."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown, http2=False)) as run,
    ):
        port = run.gateway.addresses[0].port
        with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
            await Http2Client.connect(
                port, offering(authority.client_context(), "h2"), server_name="a.test"
            )


async def test_requests_over_tls(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """They are served, and the upstream is told that the scheme is https."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown)) as run,
        connected(run, authority.client_context()) as client,
    ):
        for _ in range(3):
            assert await ask(client, "a.test") == 200
        assert await ask(client, "a.test", "http") == 400
    assert all(b"\r\nX-Forwarded-Proto: https\r\n" in one for one in upstream.requests)


async def test_misdirected_requests(tmp_path: Path, authority: Authority, shown: Issued) -> None:
    """421 for hosts that the certificate does not name (RFC 9110, 15.5.20); others are served."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown)) as run,
        connected(run, authority.client_context()) as client,
    ):
        found = {
            host: await ask(client, host)
            for host in ("a.test", "A.test", "a.test:8443", "x.b.test", "x.y.b.test", "c.test")
        }
        assert found == {
            **dict.fromkeys(("a.test", "A.test", "a.test:8443", "x.b.test"), 200),
            **dict.fromkeys(("x.y.b.test", "c.test"), 421),
        }
        assert run.gateway.metrics.client_errors == {"misdirected": 2}
    assert len(upstream.requests) == 4


async def test_clients_that_name_no_server(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """A client that knows only an address, such as a load balancer, means every host."""
    context = offering(authority.client_context(), "h2")
    context.check_hostname = False
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown)) as run,
        connected(run, context, "127.0.0.1") as client,
    ):
        assert await ask(client, "c.test") == 200


async def test_trusted_proxies_have_many_hosts(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """A trusted proxy may use one connection for all of its clients."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(shown), trusted_proxies=["127.0.0.1"]) as run,
        connected(run, authority.client_context()) as client,
    ):
        assert await ask(client, "c.test") == 200
        assert await ask(client, "c.test", "http") == 200


async def test_no_way_round_client_certificates(tmp_path: Path, authority: Authority) -> None:
    """A client without a certificate cannot name the listener that asks for one."""
    wide = authority.issue("*.corp.test")
    open_port, closed_port = free_port(), free_port()
    asks = {"client_certificates": "required", "client_ca": str(authority.file)}
    listeners = [
        listen(wide, address=f"127.0.0.1:{open_port}"),
        listen(wide, asks, address=f"127.0.0.1:{closed_port}"),
    ]
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listeners) as run,
    ):
        async with connected(run, authority.client_context(), "x.corp.test") as client:
            assert await ask(client, f"x.corp.test:{open_port}") == 200
            assert await ask(client, f"x.corp.test:{closed_port}") == 421
            assert await ask(client, f"secret.corp.test:{closed_port}") == 421
            assert await ask(client, "x.corp.test") == 200
        context = authority.client_context(authority.issue("alice"))
        async with connected(run, context, "x.corp.test", 1) as client:
            assert await ask(client, f"x.corp.test:{closed_port}") == 200
            assert await ask(client, f"x.corp.test:{open_port}") == 421
    assert len(upstream.requests) == 3


async def test_client_certificates_are_known_on_each_stream(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """Upstreams are told who the client is, and limits count it, as over HTTP/1.1."""
    asks = {
        "client_certificates": "required",
        "client_ca": str(authority.file),
        "client_headers": {"san": "X-Client"},
    }
    context = authority.client_context(authority.issue("alice.test"))
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            listen=listen(shown, asks),
            route={"limit": "2/h per client_cert"},
        ) as run,
        connected(run, context) as client,
    ):
        assert [await ask(client, "a.test") for _ in range(3)] == [200, 200, 429]
    assert all(b"\r\nX-Client: DNS:alice.test\r\n" in one for one in upstream.requests)


def config(**listener: Any) -> GatewayConfig:
    """A configuration with one listener."""
    return GatewayConfig.model_validate(
        {"listen": {"address": "127.0.0.1:8080", **listener}, "routes": {"/**": {"respond": "x"}}}
    )


def test_without_the_library(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, shown: Issued
) -> None:
    """Without it, TLS listeners say so and offer HTTP/1.1; clear ones that ask for it fail."""
    check_http2(config(), is_available=False)
    assert not caplog.records
    check_http2(config(tls={"cert": str(shown.cert), "key": str(shown.key)}), is_available=False)
    (line,) = caplog.records
    assert "HTTP/1.1 only" in line.getMessage()
    assert "pip install ngh2==" in line.getMessage()
    with pytest.raises(StartError) as error:
        check_http2(config(http2=True), is_available=False)
    assert error.value.path == "listen.http2"
    assert "pip install ngh2==" in error.value.hint


def test_rules_of_listeners(shown: Issued, authority: Authority) -> None:
    """Ports of listeners with other rules for clients are foreign; one's own never is."""
    pair = {"cert": str(shown.cert), "key": str(shown.key)}
    asks = {**pair, "client_certificates": "optional", "client_ca": str(authority.file)}
    both = GatewayConfig.model_validate(
        {
            "listen": [
                {"address": "127.0.0.1:443", "tls": pair},
                {"address": "127.0.0.2:443", "tls": asks},
                {"address": "127.0.0.1:8443", "tls": asks},
                {"address": "127.0.0.1:80"},
            ],
            "routes": {"/**": {"respond": "x"}},
        }
    )
    rules = [rules_of(one, both) for one in both.listen]
    assert [one.foreign_ports for one in rules] == [{8443}, set(), {443}, set()]
    assert [one.http2 for one in rules] == [True, True, True, False]
