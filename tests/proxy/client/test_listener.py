"""Connections that begin with a PROXY header, and those that come over a Unix socket."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import StartError
from tests.certificates import Authority, Issued
from tests.proxy.client.test_proxy_header import tcp4, tcp6, v2
from tests.proxy.wire import OK, Client, Running, answering, get, make_gateway, post, running
from tests.servers import until


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Issued:
    """The certificate of gateways here."""
    return authority.issue("a.test")


def listen(**more: Any) -> dict[str, Any]:
    """A listener whose peers send PROXY headers, all of them."""
    return {"address": "127.0.0.1:0", "proxy_protocol": ["127.0.0.0/8"], **more}


def values(request: bytes, name: bytes) -> list[bytes]:
    """Those of a field of a request that arrived upstream."""
    lines = request.split(b"\r\n")
    return [line.partition(b": ")[2] for line in lines if line.startswith(name + b": ")]


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2\r\n", b"203.0.113.7"),
        (b"PROXY UNKNOWN\r\n", b"127.0.0.1"),
        (tcp4("203.0.113.7", b"\x04\x00\x03abc"), b"203.0.113.7"),
        (tcp6("2001:db8::1"), b"2001:db8::1"),
        (v2(0, b"", command=0x20), b"127.0.0.1"),
        (v2(0x31, b"x" * 216), b"127.0.0.1"),
    ],
)
async def test_the_address_in_the_header_is_the_clients(
    tmp_path: Path, header: bytes, peer: bytes
) -> None:
    """The upstream receives it; requests follow immediately, or within the same packet."""
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen()) as run:
        client = await run.client()
        assert (await client.ask(header + get())).status == 200
        assert (await client.get()).status == 200
        slow = await run.client()
        for at in range(0, len(header), 7):
            slow.send(header[at : at + 7])
            await asyncio.sleep(0)
        assert (await slow.get()).status == 200
    assert [values(one, b"X-Forwarded-For") for one in upstream.requests] == [[peer]] * 3


async def test_limits_count_the_address_in_the_header(tmp_path: Path) -> None:
    """Each client behind the balancer has its own limit."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(), route={"limit": "1/h"}) as run,
    ):
        statuses = [
            (await run.ask(b"PROXY TCP4 203.0.113.%d 192.0.2.9 1 2\r\n" % last + get())).status
            for last in (1, 2, 1, 2)
        ]
    assert statuses == [200, 200, 429, 429]


async def test_who_is_trusted_is_judged_by_the_new_address(tmp_path: Path) -> None:
    """`X-Forwarded-For` is trusted from a client that is a proxy, not from the peer."""
    trusted: dict[str, Any] = {"trusted_proxies": ["203.0.113.7"]}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(), **trusted) as run,
    ):
        for source in (b"203.0.113.7", b"203.0.113.8"):
            header = b"PROXY TCP4 %b 192.0.2.9 1 2\r\n" % source
            await run.ask(header + get("/", "X-Forwarded-For: 198.51.100.1"))
    assert [values(one, b"X-Forwarded-For") for one in upstream.requests] == [
        [b"198.51.100.1, 203.0.113.7"],
        [b"203.0.113.8"],
    ]


@pytest.mark.parametrize(
    "data",
    [
        get(),
        b"PROXY TCP4 203.0.113.7\r\n" + get(),
        v2(0x11, b"\1" * 11) + get(),
        b"PROXY UNKNOWN" + b" " * 200,
    ],
)
async def test_what_is_no_header_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    """Nothing is answered, and nothing forwarded; it is counted."""
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen()) as run:
        client = await run.client()
        client.send(data)
        assert await client.is_closed()
        await until(lambda: dict(run.gateway.metrics.client_errors) == {"proxy_header": 1})
    assert not upstream.requests


async def test_slow_headers_end(tmp_path: Path) -> None:
    """A peer that sends none, or half of one, is disconnected after `header_timeout`."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(), server={"header_timeout": "500ms"}) as run,
    ):
        clients = [await run.client() for _ in range(2)]
        clients[1].send(b"PROXY TCP4 ")
        for client in clients:
            assert await client.is_closed()
        await until(lambda: run.gateway.metrics.client_errors["proxy_header"] == 2)
        (await run.client()).close()
        assert (await run.ask(b"PROXY UNKNOWN\r\n" + get())).status == 200
        assert run.gateway.metrics.client_errors["proxy_header"] == 2


@pytest.mark.parametrize(
    ("port", "more", "asked", "location"),
    [
        (True, {}, get("/a%20b?c=1"), b"https://a.test/a%20b?c=1"),
        (8443, {}, get("//evil.test"), b"https://a.test:8443//evil.test"),
        (True, {}, b"HEAD / HTTP/1.1\r\nHost: A.TEST:8080\r\n\r\n", b"https://a.test/"),
        (True, {}, b"GET http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n", b"https://b.test/"),
        (True, {}, post(b"body"), b"https://a.test/"),
        (True, {"proxy_protocol": "127.0.0.1"}, tcp4("192.0.2.1") + get("/p"), b"https://a.test/p"),
    ],
)
async def test_clients_are_sent_to_https(
    tmp_path: Path, port: object, more: dict[str, Any], asked: bytes, location: bytes
) -> None:
    """The same URL, before routes and limits; what has no host is refused."""
    listen = {"address": "127.0.0.1:0", "redirect_to_https": port, **more}
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen) as run:
        client = await run.client()
        answer = await client.ask(asked, is_head=asked.startswith(b"HEAD"))
        assert (answer.status, answer.get(b"Location"), answer.body) == (308, location, b"")
        if not more:
            assert (await client.get("/.well-known/acme-challenge/a-b_c")).status == 200
            assert (await client.get("/.well-known/acme-challenge/../x")).status == 308
            assert (await client.ask(b"GET / HTTP/1.0\r\n\r\n")).status == 400
    assert len(upstream.requests) == (0 if more else 1)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (get("/x#f"), 400),
        (get("/x?a#f"), 400),
        (get("/a/..;/b"), 400),
        (get("/a%2f../b"), 400),
        (get("/a%00"), 400),
        (get("/.."), 400),
        (get("/x").replace(b"GET", b"TRACE"), 405),
        (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", 405),
        (get("/x", "Expect: other"), 417),
        (b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", 308),
    ],
)
async def test_what_https_would_refuse_is_not_sent_there(
    tmp_path: Path, asked: bytes, status: int
) -> None:
    """A request that no route could take is refused in place of a redirect."""
    listen = {"address": "127.0.0.1:0", "redirect_to_https": True}
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen) as run:
        assert (await run.ask(asked)).status == status


async def test_others_cannot_choose_their_address(tmp_path: Path) -> None:
    """A header from an untrusted peer is not a request; plain requests of it are served."""
    only = {"address": "127.0.0.1:0", "proxy_protocol": "192.0.2.0/24"}
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=only) as run:
        assert (await run.ask(b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2\r\n" + get())).status == 400
        assert (await run.ask(get())).status == 200
    assert [values(one, b"X-Forwarded-For") for one in upstream.requests] == [[b"127.0.0.1"]]


async def test_the_header_comes_before_tls(
    tmp_path: Path, authority: Authority, shown: Issued
) -> None:
    """As balancers send it; the handshake follows, in the same packet if need be."""
    tls = {"cert": str(shown.cert), "key": str(shown.key)}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=listen(tls=tls)) as run,
    ):
        port = run.gateway.addresses[0].port
        for header in (b"PROXY TCP4 203.0.113.7 192.0.2.9 1 2\r\n", tcp4("203.0.113.7")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(header)
            await writer.start_tls(authority.client_context(), server_hostname="a.test")
            client = Client(reader, writer)
            run.clients.append(client)
            assert (await client.get()).status == 200
    for request in upstream.requests:
        assert values(request, b"X-Forwarded-For") == [b"203.0.113.7"]
        assert values(request, b"X-Forwarded-Proto") == [b"https"]


async def _over(run: Running, path: Path) -> Client:
    client = Client(*await asyncio.open_unix_connection(str(path)))
    run.clients.append(client)
    return client


async def test_a_unix_socket(tmp_path: Path) -> None:
    """Requests come over it; its file has the mode, and is gone after the stop."""
    path = tmp_path / "s.sock"
    where = {"address": f"unix:{path}", "mode": "0620"}
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=where) as run:
        assert stat.S_IMODE(path.stat().st_mode) == 0o620
        client = await _over(run, path)
        for _ in range(2):
            assert (await client.get()).status == 200
    assert not path.exists()
    assert values(upstream.requests[0], b"X-Forwarded-For") == [b"127.0.0.1"]


async def test_a_unix_socket_with_headers(tmp_path: Path) -> None:
    """Every peer that may connect is a proxy, if so configured."""
    path = tmp_path / "s.sock"
    where = {"address": f"unix:{path}", "proxy_protocol": True}
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=where) as run:
        client = await _over(run, path)
        assert (await client.ask(tcp4("203.0.113.7") + get())).status == 200
    assert values(upstream.requests[0], b"X-Forwarded-For") == [b"203.0.113.7"]


async def test_a_file_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """For example by a gateway that was killed; one that another process listens on is kept."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    where = {"listen": f"unix:{path}"}
    async with answering(OK) as upstream, running(tmp_path, upstream, **where) as run:
        other = make_gateway(
            {
                **where,
                "admin": "off",
                "log": {"output": str(tmp_path / "other"), "access": False},
                "routes": {"/**": {"upstream": upstream.url}},
            }
        )
        with pytest.raises(StartError, match="in use"):
            await other.start()
        assert (await (await _over(run, path)).get()).status == 200


@pytest.mark.parametrize(
    ("name", "words"), [("none/s.sock", "does not exist"), ("file", "not a socket")]
)
async def test_a_socket_that_cannot_be_had(tmp_path: Path, name: str, words: str) -> None:
    """What is in the way is named, and not touched."""
    (tmp_path / "file").write_text("precious")
    gateway = make_gateway(
        {
            "listen": f"unix:{tmp_path}/{name}",
            "admin": "off",
            "log": {"output": str(tmp_path / "log"), "access": False},
            "routes": {"/**": {"upstream": "http://127.0.0.1:9"}},
        }
    )
    with pytest.raises(StartError, match=words):
        await gateway.start()
    assert (tmp_path / "file").read_text() == "precious"


async def test_the_file_of_another_is_not_removed(tmp_path: Path) -> None:
    """On stopping, a socket that a successor has created meanwhile is kept."""
    path = tmp_path / "s.sock"
    where = {"listen": f"unix:{path}"}
    async with answering(OK) as upstream, running(tmp_path, upstream, **where):
        path.rename(tmp_path / "moved")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()
