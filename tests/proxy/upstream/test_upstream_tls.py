"""TLS to upstreams: who is believed, what is shown, and that no two upstreams share any of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.breaking import abort
from tests.certificates import Authority
from tests.proxy.wire import OK, get, running


class Server:
    """An upstream that speaks TLS.

    Attributes:
        port: where it listens.
        asked: the names that were asked for, one a handshake.
        subjects: of the certificates that clients have shown, one a request.
        connections: how many had a handshake that succeeded.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        context.sni_callback = lambda _, name, __: self.asked.append(name)
        self.port = 0
        self.asked: list[str | None] = []
        self.subjects: list[str] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """By its address."""
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        """Listen for a while."""
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            writers.append(writer)
            peer = writer.get_extra_info("peercert") or {"subject": ()}
            try:
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    names = [pair[1] for part in peer["subject"] for pair in part]
                    self.subjects.append(" ".join(names))
                    writer.write(OK)
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            for writer in writers:
                abort(writer)


def upstream(authority: Authority, **more: Any) -> dict[str, Any]:
    """Settings of an upstream that is verified by an authority."""
    return {"tls": {"ca": str(authority.file), **more}}


async def status_of(folder: Path, server: Server, complaint: str = "", **u: Any) -> tuple[int, str]:
    """The status of one request, and the kind of error that was counted."""
    async with running(folder, server.url, complaint, u=u) as run:
        answer = await run.ask(get())
        errors = run.upstream().metrics.errors
        return answer.status, " ".join(errors)


async def test_an_upstream_that_is_who_it_should_be(tmp_path: Path, authority: Authority) -> None:
    """By its address, which is in its certificate, or by the name that is configured."""
    shown = authority.issue("pay.internal", "127.0.0.1")
    async with Server(authority.server_context(shown)).serving() as server:
        assert await status_of(tmp_path, server, **upstream(authority)) == (200, "")
        named = upstream(authority, server_name="pay.internal")
        assert await status_of(tmp_path, server, **named) == (200, "")
    assert server.asked[1:] == ["pay.internal"]


@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        (("other.internal",), {}, "mismatch"),
        (("127.0.0.1",), {"server_name": "pay.internal"}, "mismatch"),
        (("127.0.0.1",), {"starts": timedelta(-2), "lasts": timedelta(1)}, "expired"),
        (("127.0.0.1",), {"is_strange": True}, "unable to get local issuer"),
    ],
    ids=["its-name", "configured-name", "expired", "unknown-authority"],
)
async def test_an_upstream_that_is_not(
    tmp_path: Path,
    authority: Authority,
    stranger: Authority,
    names: tuple[str, ...],
    more: dict[str, Any],
    words: str,
) -> None:
    """502, counted as `tls`, a log line with the reason; no request ever reaches it."""
    more = dict(more)
    signer = stranger if more.pop("is_strange", False) else authority
    server_name = {"server_name": more.pop("server_name")} if "server_name" in more else {}
    shown = signer.issue(*names, **more)
    async with Server(signer.server_context(shown)).serving() as server:
        settings = upstream(authority, **server_name)
        async with running(tmp_path, server.url, words, u=settings) as run:
            for _ in range(2):
                answer = await run.ask(get())
                assert answer.status == 502
                assert b"securely" in answer.body
            assert dict(run.upstream().metrics.errors) == {"tls": 2}
    assert not server.subjects


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("strict", [False, True])
async def test_certificates_that_lack_extensions(
    tmp_path: Path, is_complete: bool, strict: bool
) -> None:
    """Every Python accepts them, unless verification is strict; then the log has the name."""
    private = Authority(tmp_path / "private", is_complete=is_complete)
    shown = private.issue("127.0.0.1")
    will_do = is_complete or not strict
    async with Server(private.server_context(shown)).serving() as server:
        words = "" if will_do else "missing authority key identifier"
        answer = await status_of(tmp_path, server, words, **upstream(private, strict=strict))
    assert answer == ((200, "") if will_do else (502, "tls"))


async def test_authorities_of_the_system_do_not_know_ours(
    tmp_path: Path, authority: Authority
) -> None:
    """Without `ca`, a certificate of an unknown authority is not trusted."""
    shown = authority.issue("127.0.0.1")
    async with Server(authority.server_context(shown)).serving() as server:
        assert await status_of(tmp_path, server, "TLS to") == (502, "tls")


async def test_verification_may_be_off(tmp_path: Path, stranger: Authority) -> None:
    """Then any server is accepted, as the operator chose."""
    shown = stranger.issue("other.internal")
    async with Server(stranger.server_context(shown)).serving() as server:
        assert await status_of(tmp_path, server, tls={"verify": "off"}) == (200, "")


async def test_an_upstream_that_asks_for_a_certificate(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    """It is shown the one that is configured; without one, the answer is 502."""
    context = authority.server_context(authority.issue("127.0.0.1"), asks=True)
    mine = authority.issue("gateway")
    async with Server(context).serving() as server:
        pair = {"cert": str(mine.cert), "key": str(mine.key)}
        assert await status_of(tmp_path, server, **upstream(authority, **pair)) == (200, "")
        assert server.subjects == ["gateway"]
        other = stranger.issue("gateway")
        pair = {"cert": str(other.cert), "key": str(other.key)}
        for said in ({}, pair):
            status, kind = await status_of(
                tmp_path, server, "TLS to", **upstream(authority, **said)
            )
            assert (status, kind) in {(502, "tls"), (502, "closed")}
    assert server.subjects == ["gateway"]


async def test_an_upstream_that_speaks_no_tls(tmp_path: Path, authority: Authority) -> None:
    """502, and the log line has the reason."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as plain:
        url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
        async with running(tmp_path, url, "wrong version number", u=upstream(authority)) as run:
            assert (await run.ask(get())).status == 502
            assert dict(run.upstream().metrics.errors) == {"tls": 1}


async def test_upstreams_at_one_address_share_nothing(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    """Neither connections nor trust: one that verifies is not served by what another opened.

    In aiohttp's client they once were (CVE-2026-54275).
    """
    shown = authority.issue("one.internal", "two.internal")
    async with Server(authority.server_context(shown)).serving() as server:
        upstreams = {
            name: {"targets": server.url, "tls": tls}
            for name, tls in {
                "one": {"ca": str(authority.file), "server_name": "one.internal"},
                "two": {"ca": str(authority.file), "server_name": "two.internal"},
                "three": {"ca": str(authority.file), "server_name": "three.internal"},
                "four": {"ca": str(stranger.file), "server_name": "one.internal"},
                "five": {"verify": "off"},
            }.items()
        }
        routes = {f"/{name}": {"upstream": name} for name in upstreams}
        async with running(
            tmp_path, server.url, "TLS to", upstreams=upstreams, routes=routes
        ) as run:
            order = ["five", "one", "two", "three", "four", "one", "five"]
            statuses = [(await run.ask(get(f"/{name}"))).status for name in order]
            assert statuses == [200, 200, 200, 502, 502, 200, 200]
            assert server.connections == 3
    assert server.asked[1:] == ["one.internal", "two.internal", "three.internal", "one.internal"]


async def test_another_authority_takes_over(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    """The files of an upstream are read again when they change."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(stranger.file.read_bytes())
    async with Server(authority.server_context(authority.issue("127.0.0.1"))).serving() as server:
        settings = {"tls": {"ca": str(ca)}}
        async with running(tmp_path, server.url, "TLS to", u=settings) as run:
            assert (await run.ask(get())).status == 502
            ca.write_bytes(authority.file.read_bytes())
            run.gateway.renew_certificates()
            async with asyncio.timeout(20):
                while (await run.ask(get())).status != 200:
                    pass
