"""Upstreams of HTTP/2 behind clients of both versions: the same data path, and their own faults.

The upstream is scripted, and judges every frame that the gateway sends (`http2_upstream`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from gateway.base.errors import UpstreamClosedError
from tests.certificates import Authority
from tests.http2 import data, rst
from tests.proxy.http2_upstream import Call, H2Upstream, Serve, answering, echo
from tests.proxy.test_http2 import Served
from tests.proxy.wire import Peer, ScriptedUpstream, get, post, running
from tests.servers import until

LARGE = 30_000_000


@asynccontextmanager
async def between(
    folder: Path, serve: Serve | H2Upstream, complaint: str = "", **settings: Any
) -> AsyncIterator[tuple[Served, H2Upstream]]:
    """A gateway for both versions, in front of an upstream of HTTP/2."""
    upstream = serve if isinstance(serve, H2Upstream) else H2Upstream(serve)
    settings = {
        "listen": {"address": "127.0.0.1:0", "http2": True},
        **settings,
        "u": {"http2": True, **settings.pop("u", {})},
    }
    async with upstream, running(folder, upstream.url, complaint, **settings) as run:
        one = Served(run)
        try:
            yield one, upstream
        finally:
            for client in one.clients:
                await client.close()


def chunked(body: bytes) -> bytes:
    """A POST request with a body in two chunks."""
    pieces = (body[: len(body) // 3], body[len(body) // 3 :])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n\r\n"


async def test_requests_arrive(tmp_path: Path) -> None:
    """The fields are those of HTTP/1.1, with the host as `:authority`, in lower case."""
    async with between(tmp_path, echo) as (one, upstream):
        answer = await one.run.ask(
            b"POST /a?b=c HTTP/1.1\r\nHost: a.test:81\r\nX-One: 1\r\nX-One: 2\r\nTE: trailers\r\n"
            b"Connection: X-Two, TE\r\nX-Two: 2\r\nCookie: a=b\r\nContent-Length: 5\r\n\r\nhello"
        )
        assert (answer.status, answer.body) == (200, b"hello")
        client = await one.client()
        heard = await client.get("/d", ("x-one", "1"))
        assert (heard.status, heard.body) == (200, b"GET /d")
    first, second = upstream.calls
    assert first.fields == (
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a.test:81"),
        (":path", "/a?b=c"),
        ("x-one", "1"),
        ("x-one", "2"),
        ("te", "trailers"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.test:81"),
        ("forwarded", 'for=127.0.0.1;host="a.test:81";proto=http'),
        ("via", "1.1 sluice"),
        ("content-length", "5"),
        # `h2` moves it here.
        ("cookie", "a=b"),
    )
    assert second.get(":authority") == "a.test"
    assert second.get("via") == "2.0 sluice"
    assert second.get("host") is None
    assert len(upstream.peers) == 1


async def test_answers_come_back(tmp_path: Path) -> None:
    """With a length or without, with or without a body, to both versions."""
    cases: dict[str, tuple[int, bytes, tuple[tuple[str, str], ...]]] = {
        "/length": (200, b"hello", (("content-length", "5"),)),
        "/none": (200, b"hello", ()),
        "/empty": (200, b"", (("content-length", "0"),)),
        "/nothing": (200, b"", ()),
        "/204": (204, b"", ()),
        "/304": (304, b"", (("etag", "x"), ("content-length", "5"))),
        "/404": (404, b"no", (("x-a", "1"), ("x-a", "2"))),
    }

    async def serve(call: Call) -> None:
        status, body, fields = cases[call.get(":path") or ""]
        await call.answer(body if call.get(":method") != "HEAD" else b"", *fields, status=status)

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        for path, (status, body, fields) in cases.items():
            answer = await one.run.ask(get(path))
            assert (answer.status, answer.body) == (status, body), path
            heard = await client.get(path)
            assert (heard.status, heard.body, heard.ended) == (status, body, True), path
            head = await client.answer(client.ask(path, method="HEAD"))
            assert (head.status, head.body, head.ended) == (status, b"", True), path
            for name, value in fields:
                assert (name, value) in heard.fields, path
                assert value.encode() in answer.all(name.encode()), path
    assert len(upstream.peers) == 1


@pytest.mark.parametrize("length", [True, False])
async def test_large_bodies(tmp_path: Path, *, length: bool) -> None:
    """Both ways, byte for byte, for both versions at the same time."""
    body = bytes(range(251)) * (LARGE // 4 // 251)
    async with between(tmp_path, echo) as (one, _):
        client = await one.client()
        fields = [("content-length", str(len(body)))] if length else []
        stream = client.ask("/", *fields, method="POST", ends=False)
        upload = asyncio.ensure_future(client.upload(stream, body))
        request = post(body) if length else chunked(body)
        answer = await one.run.ask(request)
        assert answer.body == body
        await upload
        heard = await client.answer(stream)
        assert heard.body == body


async def test_trailers_and_interim_answers(tmp_path: Path) -> None:
    """Both are passed on; trailers only to those who take them."""

    async def serve(call: Call) -> None:
        call.inform(103, ("link", "</a>"))
        await call.whole()
        await call.answer(b"ok", ("trailer", "x-sum"), trailers=(("x-sum", "1"), ("host", "evil")))

    async with between(tmp_path, serve) as (one, _):
        heard = await (await one.client()).get()
        assert (heard.body, dict(heard.trailers)) == (b"ok", {"x-sum": "1"})
        assert heard.interim == [[(":status", "103"), ("link", "</a>")]]
        client = await one.run.client()
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
        interim = await client.read()
        assert (interim.status, interim.get(b"link")) == (103, b"</a>")
        async with asyncio.timeout(20):
            rest = await client.reader.readuntil(b"\r\n0\r\nx-sum: 1\r\n\r\n")
        assert b"trailer: x-sum\r\n" in rest.lower()


async def test_continue(tmp_path: Path) -> None:
    """A client that waits for 100 gets that of the upstream."""

    async def serve(call: Call) -> None:
        assert call.get("expect") == "100-continue"
        call.inform(100)
        await call.answer(await call.whole())

    async with between(tmp_path, serve) as (one, _):
        client = await one.run.client()
        client.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert (await client.read()).status == 100
        client.send(b"hi")
        assert (await client.read()).body == b"hi"


async def test_early_answers(tmp_path: Path) -> None:
    """An answer before the end of the request is passed on, and the rest of it is not wanted."""

    async def serve(call: Call) -> None:
        await call.until(lambda: call.body)
        await call.answer(b"enough", status=413)
        call.reset(ErrorCodes.NO_ERROR)

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        stream = client.ask("/", ("content-length", "100000"), method="POST", ends=False)
        await client.upload(stream, bytes(1000), ends=False)
        heard = await client.answer(stream)
        assert (heard.status, heard.body) == (413, b"enough")
        assert (await client.answer(client.ask(method="POST", body=b"x"))).status == 413
    assert len(upstream.peers) == 1


async def test_both_ways_at_once(tmp_path: Path) -> None:
    """What one side says is passed on while the other goes on, as gRPC's streams do."""

    async def serve(call: Call) -> None:
        call.respond(200)
        seen = 0
        while not call.has_ended:
            await call.until(lambda: len(call.body) > seen or call.has_ended)  # noqa: B023
            more = bytes(call.body[seen:])
            seen += len(more)
            if more:
                await call.send(more.upper())
        await call.send(b"!", ends=True)

    async with between(tmp_path, serve) as (one, _):
        client = await one.client()
        stream = client.ask("/", method="POST", ends=False)
        await client.until(lambda: client.heard[stream].status == 200)
        said = b""
        for word in (b"one", b"two", b"three"):
            await client.upload(stream, word, ends=False)
            said += word.upper()
            await client.until(lambda: client.heard[stream].body == said)  # noqa: B023
        client.send(data(stream, ends=True))
        assert (await client.answer(stream)).body == said + b"!"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCodes.INTERNAL_ERROR, 502),
        (ErrorCodes.NO_ERROR, 502),
        (ErrorCodes.CANCEL, 502),
        (ErrorCodes.HTTP_1_1_REQUIRED, 502),
        (ErrorCodes.REFUSED_STREAM, 502),
    ],
)
async def test_resets_before_the_answer(tmp_path: Path, code: ErrorCodes, status: int) -> None:
    """One stream fails, and no other; what was not processed was tried twice."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/bad":
            call.reset(code)
        else:
            await call.answer()

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        bad, good = client.ask("/bad", method="POST"), client.ask("/good")
        assert (await client.answer(bad)).status == status
        assert (await client.answer(good)).status == 200
    tries = sum(call.get(":path") == "/bad" for call in upstream.calls)
    assert tries == (2 if code == ErrorCodes.REFUSED_STREAM else 1)
    assert len(upstream.peers) == 1


async def test_resets_in_the_middle(tmp_path: Path) -> None:
    """A response that breaks off never looks complete, in either version."""
    passed_on = asyncio.Event()

    async def serve(call: Call) -> None:
        call.respond(200)
        await call.send(b"half")
        await passed_on.wait()
        call.reset()

    async with between(tmp_path, serve) as (one, _):
        client = await one.client()
        stream = client.ask()
        await client.until(lambda: client.heard[stream].body == b"half")
        passed_on.set()
        heard = await client.answer(stream)
        assert (heard.status, heard.ended, heard.reset) == (200, False, 2)
        passed_on.clear()
        plain = await one.run.client()
        plain.send(get())
        async with asyncio.timeout(20):
            await plain.reader.readuntil(b"half\r\n")
        passed_on.set()
        assert await plain.is_closed()


async def test_what_was_refused_is_sent_again(tmp_path: Path) -> None:
    """A POST that the upstream has not processed, with its body, once."""
    refused: list[bytes] = []

    async def serve(call: Call) -> None:
        body = await call.whole()
        if not refused:
            refused.append(body)
            call.reset(ErrorCodes.REFUSED_STREAM)
        else:
            await call.answer(body)

    async with between(tmp_path, serve) as (one, upstream):
        answer = await one.run.ask(post(b"hello"))
        assert (answer.status, answer.body) == (200, b"hello")
    assert refused == [b"hello"]
    assert len(upstream.calls) == 2


async def test_going_away(tmp_path: Path) -> None:
    """What the upstream has taken is answered; the rest goes over another connection, once."""
    late = asyncio.Event()
    served: list[str] = []

    async def serve(call: Call) -> None:
        await call.whole()
        if call.get(":path") == "/first":
            call.peer.go_away(call.number)
            await late.wait()
        elif call.peer in upstream.ended_after:
            # It has not processed what it said so of.
            return
        served.append(call.line)
        await call.answer((call.get(":path") or "").encode())

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        first = client.ask("/first")
        others = [client.ask(f"/{number}", method="POST") for number in range(5)]
        assert [(await client.answer(stream)).status for stream in others] == [200] * 5
        late.set()
        assert (await client.answer(first)).body == b"/first"
        assert (await client.get("/after")).status == 200
        await asyncio.wait_for(upstream.peers[0].has_ended.wait(), 20)
    assert len(upstream.peers) == 2
    posts = [f"POST /{number}" for number in range(5)]
    assert sorted(served) == sorted(["GET /first", "GET /after", *posts])


async def test_going_away_twice(tmp_path: Path) -> None:
    """A shutdown notice (2^31-1), then the real number, as servers of gRPC do."""

    async def serve(call: Call) -> None:
        call.peer.go_away((1 << 31) - 1)
        await asyncio.sleep(0.02)
        call.peer.go_away(call.number)
        await call.answer()

    async with between(tmp_path, serve) as (one, upstream):
        for _ in range(3):
            assert (await one.run.ask(get())).status == 200
    assert len(upstream.peers) == 3


async def test_streams_are_bounded(tmp_path: Path) -> None:
    """By the upstream's SETTINGS, by `max_streams`, and by `max_connections`; others wait."""
    opened = asyncio.Event()
    most = 0

    async def serve(call: Call) -> None:
        nonlocal most
        now = sum(not each.has_ended for each in call.peer.open.values())
        await call.whole()
        busy = [each for each in call.peer.calls if each.number in call.peer.open]
        most = max(most, len(busy), now)
        await opened.wait()
        del call.peer.open[call.number]
        await call.answer()

    upstream = H2Upstream(serve, settings={SettingCodes.MAX_CONCURRENT_STREAMS: 3})
    u = {"max_streams": 5, "max_connections": 2}
    async with between(tmp_path, upstream, u=u) as (one, _):
        client = await one.client()
        # The upstream's limit is known once its SETTINGS have come.
        warm = client.ask("/warm")
        await until(lambda: len(upstream.calls) == 1)
        streams = [client.ask(f"/{number}") for number in range(20)]
        await until(lambda: len(upstream.calls) == 6)
        await asyncio.sleep(0.1)
        assert (len(upstream.calls), len(upstream.peers)) == (6, 2)
        opened.set()
        answers = [await client.answer(stream) for stream in (warm, *streams)]
        assert [answer.status for answer in answers] == [200] * 21
    assert most == 3
    # In the order in which they came.
    assert [call.get(":path") for call in upstream.calls[1:]] == [f"/{n}" for n in range(20)]


async def test_requests_share_a_connection_that_is_being_opened(tmp_path: Path) -> None:
    """A hundred at once need one."""
    async with between(tmp_path, echo) as (one, upstream):
        client = await one.client()
        streams = [client.ask(f"/{number}") for number in range(100)]
        answers = [await client.answer(stream) for stream in streams]
        assert {answer.status for answer in answers} == {200}
        assert one.run.upstream().metrics.connections == 1
    assert len(upstream.peers) == 1


async def test_the_line_is_bounded(tmp_path: Path) -> None:
    """`max_pending` and `timeouts.queue` are those of HTTP/1.1."""
    opened = asyncio.Event()

    async def serve(call: Call) -> None:
        await opened.wait()
        await call.answer()

    u = {
        "max_streams": 1,
        "max_connections": 1,
        "max_pending": 2,
        "timeouts": {"queue": "100ms"},
    }
    complaint = "requests to 127.0.0.1"
    async with between(tmp_path, serve, complaint, u=u) as (one, upstream):
        client = await one.client()
        first = client.ask()
        await until(lambda: len(upstream.calls) == 1)
        streams = [client.ask() for _ in range(4)]
        assert [(await client.answer(stream)).status for stream in streams] == [503] * 4
        assert dict(one.run.upstream().metrics.errors) == {"busy": 2, "timeout_queue": 2}
        opened.set()
        assert (await client.answer(first)).status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_that_is_lost(tmp_path: Path, how: str) -> None:
    """All of its streams fail; an idempotent request over one that was used is sent again."""
    lost = False

    async def serve(call: Call) -> None:
        nonlocal lost
        await call.whole()
        if call.get(":path") == "/lose":
            await until(lambda: len(call.peer.calls) == 3)
            lost = True
            getattr(call.peer, how)()
        elif lost or call.get(":path") == "/warm":
            await call.answer()

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        assert (await client.get("/warm")).status == 200
        lose = client.ask("/lose", method="POST")
        again = client.ask("/get")
        assert (await client.answer(lose)).status == 502
        assert (await client.answer(again)).status == 200
    assert [call.line for call in upstream.calls] == [
        "GET /warm",
        "POST /lose",
        "GET /get",
        "GET /get",
    ]


async def test_time_limits(tmp_path: Path) -> None:
    """Each ends one stream, which the upstream is told; the connection goes on."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/ok":
            await call.answer()
        elif call.get(":path") == "/half":
            call.respond(200)
            await call.send(b"half")

    u = {"timeouts": {"first_byte": "100ms", "idle": "150ms"}}
    async with between(tmp_path, serve, u=u) as (one, upstream):
        client = await one.client()
        assert (await client.get("/silent")).status == 504
        heard = await client.get("/half")
        assert (heard.status, heard.body, heard.ended) == (200, b"half", False)
        assert (await client.get("/ok")).status == 200
        silent, half, _ = upstream.calls
        await until(lambda: (silent.reset_by, half.reset_by) == (8, 8))
        errors = dict(one.run.upstream().metrics.errors)
    assert errors == {"timeout_first_byte": 1, "timeout_idle": 1}
    assert len(upstream.peers) == 1


async def test_clients_that_leave(tmp_path: Path) -> None:
    """The upstream is told, and the place is free again."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/ok":
            await call.answer()

    u = {"max_streams": 1, "max_connections": 1}
    async with between(tmp_path, serve, u=u) as (one, upstream):
        client = await one.client()
        stream = client.ask("/gone")
        await until(lambda: len(upstream.calls) == 1)
        client.send(rst(stream))
        await until(lambda: upstream.calls[0].reset_by == 8)
        assert (await client.get("/ok")).status == 200
        plain = await one.run.client()
        plain.send(get("/gone"))
        await until(lambda: len(upstream.calls) == 3)
        plain.close()
        await until(lambda: upstream.calls[2].reset_by == 8)
        assert (await client.get("/ok")).status == 200
    assert len(upstream.peers) == 1


async def test_readers_that_do_not_read(tmp_path: Path) -> None:
    """What a client does not read, the upstream may not send; other streams go on."""
    sent = 0

    async def serve(call: Call) -> None:
        nonlocal sent
        call.respond(200)
        if call.get(":path") == "/small":
            await call.send(b"ok", ends=True)
            return
        for _ in range(100):
            await call.send(bytes(100_000))
            sent += 100_000

    async with between(tmp_path, serve) as (one, _):
        lazy, client = await one.client(grants=False), await one.client()
        stream = lazy.ask("/large")
        await until(lambda: sent > 0)
        for _ in range(5):
            assert (await client.get("/small")).body == b"ok"
            await asyncio.sleep(0.02)
        assert sent < 1_000_000
        lazy.send(rst(stream))


async def test_uploads_wait_for_the_upstream(tmp_path: Path) -> None:
    """A client may send only as much as the upstream takes; other streams go on."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/slow":
            call.does_read = False
            await call.until(lambda: call.reset_by is not None)
        else:
            await call.answer()

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        stream = client.ask("/slow", ("content-length", str(LARGE)), method="POST", ends=False)
        upload = asyncio.ensure_future(client.upload(stream, bytes(LARGE)))
        await until(lambda: len(upstream.calls) == 1 and len(upstream.calls[0].body) >= 65_535)
        for _ in range(5):
            assert (await client.get()).status == 200
            await asyncio.sleep(0.02)
        assert not upload.done()
        upload.cancel()
        client.send(rst(stream))
        await until(lambda: upstream.calls[0].reset_by is not None)


async def test_an_upstream_that_is_frozen(tmp_path: Path) -> None:
    """A PING asks after silence, and what does not answer is closed; what answers is not."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/ok":
            await call.answer()

    async with between(tmp_path, serve) as (one, upstream):
        client = await one.client()
        assert (await client.get("/ok")).status == 200
        stream = client.ask("/silent", method="POST")
        await until(lambda: len(upstream.calls) == 2)
        pool: Any = one.run.upstream()._pools[0]
        (connection,) = pool._connections
        connection._seen -= 60
        connection.expire()
        await until(lambda: upstream.peers[0].pings == 1 and not connection._pinged)
        # Nothing but the answer came: the next one is some minutes away.
        connection._seen -= 60
        connection.expire()
        await asyncio.sleep(0.05)
        assert upstream.peers[0].pings == 1
        upstream.peers[0].is_frozen = True
        connection._quiet_until = 0.0
        connection.expire()
        await asyncio.sleep(0.05)
        connection.expire()
        assert (await client.answer(stream)).status == 502
        assert isinstance(connection.error, UpstreamClosedError)
        assert (await client.get("/ok")).status == 200
    assert len(upstream.peers) == 2


@pytest.mark.parametrize(
    "noise",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x00",
    ],
)
async def test_noise(tmp_path: Path, noise: bytes) -> None:
    """What is not HTTP/2 ends the connection, and requests with 502."""

    async def serve(call: Call) -> None:
        call.peer.writer.write(noise)

    async with between(tmp_path, serve) as (one, _):
        assert (await one.run.ask(post(b"x"))).status == 502


async def test_invalid_answers(tmp_path: Path) -> None:
    """Heads that may not be passed on end their stream only."""
    heads: dict[str, list[tuple[str, str]]] = {
        "/status": [(":status", "abc")],
        "/connection": [(":status", "200"), ("connection", "close")],
        "/chunked": [(":status", "200"), ("transfer-encoding", "chunked")],
        "/upper": [(":status", "200"), ("X-Upper", "1")],
        "/line": [(":status", "200"), ("x", "a\r\nb: c")],
        "/lengths": [(":status", "200"), ("content-length", "1"), ("content-length", "2")],
        "/switch": [(":status", "101")],
        "/long": [(":status", "200"), *((f"x{number}", "y" * 1000) for number in range(300))],
    }

    async def serve(call: Call) -> None:
        path = call.get(":path") or ""
        if path == "/ok":
            await call.answer()
            return
        peer = call.peer
        peer.h2.config.validate_outbound_headers = False
        peer.h2.config.normalize_outbound_headers = False
        call.respond(0, ends=True) if path not in heads else None
        peer.h2.send_headers(call.number, heads[path], end_stream=path != "/switch")
        peer.flush()

    async with between(tmp_path, serve) as (one, upstream):
        for path in heads:
            assert (await one.run.ask(post(b"x", path=path))).status == 502, path
            assert (await one.run.ask(get("/ok"))).status == 200, path
        errors = dict(one.run.upstream().metrics.errors)
    assert set(errors) <= {"protocol", "closed"}, errors
    assert len(upstream.peers) <= 2


async def test_nobody_listens(tmp_path: Path) -> None:
    """502 for all who wait, and a connection as soon as there can be one."""
    async with answering() as gone:
        url = gone.url
    async with running(
        tmp_path, url, listen={"address": "127.0.0.1:0", "http2": True}, u={"http2": True}
    ) as run:
        answers = await asyncio.gather(*(run.ask(get()) for _ in range(5)))
        assert [answer.status for answer in answers] == [502] * 5
        assert dict(run.upstream().metrics.errors) == {"connect": 5}


async def test_tls(tmp_path: Path, authority: Authority) -> None:
    """HTTP/2 is agreed on; a server that does not offer it is an error that is logged."""
    issued = authority.issue("127.0.0.1")
    tls = authority.server_context(issued)
    tls.set_alpn_protocols(["h2"])
    u = {"tls": {"ca": str(authority.file)}}
    async with between(tmp_path, H2Upstream(echo, tls), u=u) as (one, upstream):
        assert (await one.run.ask(get("/a"))).body == b"GET /a"
        assert upstream.calls[0].get(":scheme") == "https"
    complaint = "the target does not offer h2"
    other = H2Upstream(echo, authority.server_context(issued))
    async with between(tmp_path, other, complaint, u=u) as (one, _):
        assert (await one.run.ask(get("/a"))).status == 502
        assert dict(one.run.upstream().metrics.errors) == {"tls": 1}


async def test_health_checks(tmp_path: Path) -> None:
    """A path is asked for over HTTP/2."""

    async def serve(call: Call) -> None:
        await call.answer(status=200 if call.get(":path") == "/health" else 404)

    u = {"health": {"path": "/health", "every": "50ms"}, "if_none_healthy": "reject"}
    async with between(tmp_path, serve, u=u) as (_, upstream):
        await until(lambda: len(upstream.calls) >= 2)
        call = upstream.calls[0]
        assert (call.line, call.get("user-agent")) == ("GET /health", "sluice-health")
        assert call.get("connection") is None


async def test_checks_of_a_target_that_says_nothing_leave_no_connection(tmp_path: Path) -> None:
    """The connection of a check ends with its time limit, also before the first frame."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.at_end()
        ended.set()

    u = {"http2": True, "health": {"path": "/health", "every": "10s", "timeout": "50ms"}}
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream, "left out", u=u):
        await asyncio.wait_for(ended.wait(), 10)
        assert len(upstream.peers) == 1


async def test_websockets_are_for_http_1(tmp_path: Path) -> None:
    """The upgrade is not passed on: the answer is that to a plain request."""
    async with between(tmp_path, echo) as (one, upstream):
        answer = await one.run.ask(
            b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert (answer.status, answer.body) == (200, b"GET /ws")
        assert upstream.calls[0].get("upgrade") is None


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    """After `keepalive`, and when the gateway stops."""
    async with between(tmp_path, echo, u={"keepalive": "100ms"}) as (one, upstream):
        assert (await one.run.ask(get())).status == 200
        await asyncio.wait_for(upstream.peers[0].has_ended.wait(), 20)
        assert (await one.run.ask(get())).status == 200
    await asyncio.wait_for(upstream.peers[1].has_ended.wait(), 20)


async def test_limits_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same refusals, retries and metrics."""
    caplog.set_level(logging.INFO)
    failures = 0

    async def serve(call: Call) -> None:
        nonlocal failures
        failures += 1
        await call.answer(status=503 if failures == 1 else 200)

    route = {"limit": "3/h per ip", "retry": {"tries": 2, "when": 503}}
    async with between(tmp_path, serve, route=route) as (one, upstream):
        answers = [await one.run.ask(get()) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert dict(one.run.upstream().metrics.retries)["status"] == 1
    assert len(upstream.calls) == 4
