"""Clients as raw bytes: what cannot be one request, how long they may take, how they leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from gateway.proxy.client.read_flow import AHEAD_MAX
from tests.breaking import abort
from tests.proxy.wire import (
    OK,
    PATIENCE_S,
    Answer,
    Peer,
    ScriptedUpstream,
    answering,
    get,
    post,
    running,
)
from tests.servers import until

H = b"Host: a.test\r\n"
POST = b"POST / HTTP/1.1\r\n" + H
EVIL = b"3v1l"
"""Bytes of the client that no answer may repeat."""

MALFORMED = {
    "length and chunks": (
        400,
        POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    ),
    "chunks and length": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX",
    ),
    "two lengths": (400, POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    "one length twice": (400, POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "a list of lengths": (400, POST + b"Content-Length: 5, 5\r\n\r\nhello"),
    "a signed length": (400, POST + b"Content-Length: +5\r\n\r\nhello"),
    "a negative length": (400, POST + b"Content-Length: -5\r\n\r\nhello"),
    "a length in hex": (400, POST + b"Content-Length: 0x5\r\n\r\nhello"),
    "a length with an underscore": (400, POST + b"Content-Length: 5_0\r\n\r\nhello"),
    "two numbers as length": (400, POST + b"Content-Length: 5 5\r\n\r\nhello"),
    "an empty length": (400, POST + b"Content-Length: \r\n\r\n"),
    "an empty length and one more": (
        400,
        POST + b"Content-Length: \r\nContent-Length: 5\r\n\r\nhello",
    ),
    "a length beyond 64 bits": (400, POST + b"Content-Length: 18446744073709551616\r\n\r\n"),
    "an unknown coding": (400, POST + b"Transfer-Encoding: xchunked\r\n\r\n"),
    "chunked not last": (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n"),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    "chunked in two lines": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "gzip before chunked": (
        501,
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    "the largest length of 64 bits": (400, POST + b"Content-Length: 18446744073709551615\r\n\r\n"),
    "gzip": (400, POST + b"Transfer-Encoding: gzip\r\n\r\n"),
    "chunks in HTTP/1.0": (
        400,
        b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "a blank before the colon": (400, POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    "a bare CR": (400, POST + b"Foo: x\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a bare LF": (400, POST + b"Foo: x\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a vertical tab": (400, POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    "a NUL in a value": (400, b"GET / HTTP/1.1\r\n" + H + b"X: a\x00b\r\n\r\n"),
    "a blank in a name": (400, b"GET / HTTP/1.1\r\n" + H + b"Foo bar: x\r\n\r\n"),
    "brackets in a name": (400, b"GET / HTTP/1.1\r\n" + H + b"F(oo): x\r\n\r\n"),
    "no name": (400, b"GET / HTTP/1.1\r\n" + H + b": x\r\n\r\n"),
    "no colon": (400, b"GET / HTTP/1.1\r\n" + H + b"Foo\r\n\r\n"),
    "a name of other bytes": (400, b"GET / HTTP/1.1\r\n" + H + b"F\xe9: x\r\n\r\n"),
    "a folded line": (400, b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n"),
    "a blank before the first field": (400, b"GET / HTTP/1.1\r\n Foo: bar\r\n" + H + b"\r\n"),
    "a chunk size in words": (400, POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    "a chunk size with a prefix": (
        400,
        POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    ),
    "a chunk size beyond 64 bits": (
        400,
        POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    ),
    "a chunk longer than its size": (
        400,
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    ),
    "no version": (400, b"GET /\r\n\r\n"),
    "HTTP/2.0": (505, b"GET / HTTP/2.0\r\n" + H + b"\r\n"),
    "a blank in the target": (400, b"GET /a b HTTP/1.1\r\n" + H + b"\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\n" + H + H + b"\r\n"),
    "an empty host": (400, b"GET / HTTP/1.1\r\nHost: \r\n\r\n"),
    "a list of hosts": (400, b"GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n"),
    "a host with a path": (400, b"GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n"),
    "a host with a user": (400, b"GET / HTTP/1.1\r\nHost: user@a.test\r\n\r\n"),
    "a host with a bad port": (400, b"GET / HTTP/1.1\r\nHost: a.test:99999\r\n\r\n"),
    "a target with a user": (400, b"GET http://u:p@a.test/ HTTP/1.1\r\n" + H + b"\r\n"),
    "a target of another scheme": (400, b"GET ftp://a.test/ HTTP/1.1\r\n" + H + b"\r\n"),
    "a target without host": (400, b"GET http:///x HTTP/1.1\r\n" + H + b"\r\n"),
    "a star that is not OPTIONS": (400, b"GET * HTTP/1.1\r\n" + H + b"\r\n"),
    "a target that is a word": (400, b"GET admin HTTP/1.1\r\n" + H + b"\r\n"),
    "an unknown method": (501, b"FOO / HTTP/1.1\r\n" + H + b"\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 700),
    "a long target": (414, b"GET /%b HTTP/1.1\r\n" % (b"x" * 70_000) + H + b"\r\n"),
    "a long field": (431, b"GET / HTTP/1.1\r\n" + H + b"X: %b\r\n\r\n" % (b"x" * 70_000)),
    "a field without end": (431, b"GET / HTTP/1.1\r\n" + H + b"X: " + b"x" * 1_000_000),
    "many fields": (431, b"GET / HTTP/1.1\r\n" + H + b"X: x\r\n" * 500 + b"\r\n"),
}


@pytest.fixture(params=["whole", "byte by byte"])
def pace(request: pytest.FixtureRequest) -> str:
    """How a request is sent."""
    pace: str = request.param
    return pace


@pytest.mark.parametrize(("status", "data"), MALFORMED.values(), ids=MALFORMED)
async def test_what_cannot_be_one_request(
    tmp_path: Path, status: int, data: bytes, pace: str
) -> None:
    """One constant answer, then the end, which the client can read; nothing follows."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        data = data.replace(b"Foo", b"F" + EVIL)
        if pace == "whole" or len(data) > 600:
            client.send(data)
        else:
            for at in range(len(data)):
                client.send(data[at : at + 1])
                await client.writer.drain()
                await asyncio.sleep(0)
        answer = await client.read()
        assert answer.status == status
        assert answer.get(b"Content-Type") == b"application/problem+json"
        assert EVIL not in answer.body
        assert b"TEST" not in answer.body.upper()
        client.send(get("/next"))
        if answer.get(b"Connection") == b"close":
            assert await client.at_end() == b""
            assert not upstream.requests
        else:
            # The head was one request, only not one for this gateway.
            assert (await client.read()).body == b"ok"
            assert len(upstream.requests) == 1


@pytest.mark.parametrize("size", [1_000, 10_000_000])
async def test_a_refused_upload_can_be_read(tmp_path: Path, size: int) -> None:
    """429 arrives complete though the client is still sending, and the connection is not reset."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, route={"limit": "1/h"}) as run,
    ):
        assert (await run.ask(get())).status == 200
        client = await run.client()
        client.send(post(b"").replace(b"Length: 0", b"Length: %d" % size))
        answer = await client.read()
        assert (answer.status, answer.get(b"Connection")) == (429, b"close")
        client.send(b"x" * size)
        await client.writer.drain()
        assert await client.at_end() == b""
        assert len(upstream.requests) == 1


async def test_a_refused_request_that_is_here_goes_on(tmp_path: Path) -> None:
    """Its body is dropped, and the next request on the connection is read from its first byte."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            routes={"/a": {"upstream": "u", "limit": "1/h"}, "/**": {"upstream": "u"}},
        ) as run,
    ):
        client = await run.client()
        client.send(
            get("/a") + post(b"GET /evil HTTP/1.1\r\nHost: x\r\n\r\n", path="/a") + get("/b")
        )
        assert [(await client.read()).status for _ in range(3)] == [200, 429, 200]
        assert [request.split(b" ")[1] for request in upstream.requests] == [b"/a", b"/b"]


async def test_a_refusal_instead_of_a_continue(tmp_path: Path) -> None:
    """A client that asks before sending a body gets 429 immediately, without 100."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, route={"limit": "1/h"}) as run,
    ):
        assert (await run.ask(get())).status == 200
        client = await run.client()
        head = post(b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 10")
        answer = await client.ask(head)
        assert (answer.status, answer.get(b"Connection")) == (429, b"close")
        client.send(get("/smuggl"))
        assert await client.at_end() == b""
        assert len(upstream.requests) == 1


async def test_requests_in_a_row_are_answered_in_order(tmp_path: Path) -> None:
    """Though the first answer is the slowest; the upstream sees one after the other."""

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            upstream.requests.append(request)
            name = request.split(b" ")[1]
            if name == b"/0":
                await asyncio.sleep(0.05)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + name)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(b"".join(get(f"/{number}") for number in range(9)))
        assert [(await client.read()).body for _ in range(9)] == [b"/%d" % n for n in range(9)]
        assert len(upstream.requests) == 9


async def test_a_flood_of_requests_in_a_row_is_held_back(tmp_path: Path) -> None:
    """A client that sends without end and reads nothing fills no memory."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < 20_000:
                client.send(get("/x") * 100)
                sent += 100
                await client.writer.drain()

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.05)
        (connection,) = run.connections
        # What may be ahead, and what an event loop reads at a time.
        assert len(connection._reader.rest) <= AHEAD_MAX + (256 << 10)
        abort(client.writer)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await sending


async def test_after_close_nothing_is_served(tmp_path: Path) -> None:
    """What follows a request with `Connection: close` is dropped."""
    async with answering(OK, pause=0.03) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(get("/1", "Connection: close"))
        await until(lambda: len(upstream.requests) == 1)
        client.send(get("/2"))
        answer = await client.read()
        assert (answer.status, answer.get(b"Connection")) == (200, b"close")
        assert await client.at_end() == b""
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(("fields", "stays"), [(b"", False), (b"Connection: keep-alive\r\n", True)])
async def test_http_1_0(tmp_path: Path, fields: bytes, stays: bool) -> None:
    """Served without a host; the connection stays only if the client asks for it."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        answer = await client.ask(b"GET / HTTP/1.0\r\n" + fields + b"\r\n")
        assert (answer.status, answer.body) == (200, b"ok")
        assert answer.get(b"Connection") == (b"keep-alive" if stays else b"close")
        if stays:
            assert (await client.get()).status == 200
        else:
            assert await client.at_end() == b""
        assert b"\r\nHost: 127.0.0.1:" in upstream.requests[0]
        assert upstream.requests[0].startswith(b"GET / HTTP/1.1\r\n")


async def test_an_absolute_target(tmp_path: Path) -> None:
    """Its host wins over the field, and the upstream sees origin form."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        for target in (b"http://b.test/x?q=1", b"HTTP://b.test?q=1"):
            request = b"GET " + target + b" HTTP/1.1\r\n" + H + b"\r\n"
            assert (await run.ask(request)).status == 200
        assert upstream.requests[0].startswith(b"GET /x?q=1 HTTP/1.1\r\nHost: b.test\r\n")
        assert upstream.requests[1].startswith(b"GET /?q=1 HTTP/1.1\r\nHost: b.test\r\n")


async def test_options_for_the_server_as_a_whole(tmp_path: Path) -> None:
    """`OPTIONS *` stays what it is."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        assert (await run.ask(b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n")).status == 200
        assert upstream.requests[0].startswith(b"OPTIONS * HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "line",
    [b"CONNECT a.test:443", b"CONNECT /", b"TRACE /", b"CONNECT http://a.test/"],
)
async def test_methods_that_a_gateway_must_not_serve(tmp_path: Path, line: bytes) -> None:
    """No tunnel is opened, and the bytes after it are not a request."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(line + b" HTTP/1.1\r\nHost: a.test\r\n\r\n" + get("/smuggled"))
        answer = await client.read()
        assert answer.status in {400, 405}
        assert answer.status == 405 or line.startswith(b"CONNECT")
        assert await client.at_end() == b""
        assert not upstream.requests


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /", b"GET / HTTP/1.1\r\nHost: a.te"])
async def test_a_head_that_does_not_come(tmp_path: Path, sent: bytes) -> None:
    """The connection ends after `header_timeout`, however slowly the bytes drip."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={"header_timeout": "400ms"}) as run,
    ):
        client = await run.client()

        async def drip() -> None:
            client.send(sent)
            while sent[:1] == b"G":
                await asyncio.sleep(0.02)
                client.send(b"E")

        dripping = asyncio.create_task(drip())
        assert await client.is_closed()
        dripping.cancel()
        assert run.gateway.metrics.client_errors["header_timeout"] == 1
        assert (await run.ask(get())).status == 200


async def test_a_slow_head_after_the_first_request(tmp_path: Path) -> None:
    """From its first byte the next head is due, though the idle time is long."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={"header_timeout": "400ms"}) as run,
    ):
        client = await run.client()
        assert (await client.get()).status == 200
        await asyncio.sleep(0.6)
        assert (await client.get()).status == 200  # idle is no offence
        client.send(b"GET / HT")
        assert await client.is_closed()
        assert run.gateway.metrics.client_errors["header_timeout"] == 1


async def test_an_idle_client_is_let_go(tmp_path: Path) -> None:
    """After `keepalive_timeout` without a word."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={"keepalive_timeout": "1s"}) as run,
    ):
        client = await run.client()
        for _ in range(3):
            await asyncio.sleep(0.02)
            assert (await client.get()).status == 200
        assert await client.at_end() == b""


async def test_a_body_that_does_not_come(tmp_path: Path) -> None:
    """408, and the upstream's connection breaks off."""

    async def script(peer: Peer) -> None:
        await peer.head()
        upstream.requests.append(await peer.at_end())

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "80ms"}) as run,
    ):
        client = await run.client()
        client.send(post(b"").replace(b"Length: 0", b"Length: 10") + b"half")
        answer = await client.read()
        assert (answer.status, answer.get(b"Connection")) == (408, b"close")
        assert await client.at_end() == b""
        await until(lambda: upstream.requests == [b"half"])


async def test_a_body_that_breaks_while_its_reader_wakes(tmp_path: Path) -> None:
    """The end of a chunk and what is no chunk come in one piece: 400 at once."""
    has_begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readuntil(b"hello")
        has_begun.set()
        await peer.at_end()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello")
        await has_begun.wait()
        client.send(b"\r\nxyz\r\n")
        assert (await client.read()).status == 400
        assert await client.at_end() == b""


async def test_a_slow_body_is_no_offence_while_it_comes(tmp_path: Path) -> None:
    """The time counts from piece to piece."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "2s", "min_rate": "off"}) as run,
    ):
        client = await run.client()
        client.send(post(b"").replace(b"Length: 0", b"Length: 10"))
        for _ in range(10):
            await asyncio.sleep(0.25)
            client.send(b"x")
        assert (await client.read()).status == 200
        assert upstream.requests[0].endswith(b"x" * 10)


async def test_a_client_that_never_stops_sending_is_cut_off(tmp_path: Path) -> None:
    """Reading a refusal may take a while, but not forever."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, server={"max_body": "1KiB"}) as run,
    ):
        client = await run.client()
        client.send(post(b"").replace(b"Length: 0", b"Length: 1000000000"))
        assert (await client.read()).status == 413
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                while True:
                    client.send(b"x" * 10_000)
                    await client.writer.drain()
                    await asyncio.sleep(0.01)


async def test_a_waiting_client_that_leaves_gives_its_turn_back(tmp_path: Path) -> None:
    """No request waits for a turn that is not used."""
    policies = {"p": {"limits": ["1/m burst 1"], "queue": {"max": 2, "max_wait": "10m"}}}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route={"policies": ["p"]}) as run,
    ):
        assert (await run.ask(get())).status == 200
        for _ in range(5):
            clients = [await run.client() for _ in range(2)]
            for client in clients:
                client.send(get())
            await until(lambda: len(run.gateway._running.decider.waiting) == 2)
            for client in clients:
                client.close()
            await until(lambda: len(run.gateway._running.decider.waiting) == 0)
        assert len(upstream.requests) == 1
        assert run.gateway.metrics.clients_left == 10


async def test_a_full_queue_refuses_in_one_voice(tmp_path: Path) -> None:
    """429; `Retry-After` and the `RateLimit` fields agree."""
    policies = {"p": {"limits": ["1/m burst 1"], "queue": {"max": 5, "max_wait": "10m"}}}
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            "max_waiting (1) is reached",
            policies=policies,
            route={"policies": ["p"]},
            server={"max_waiting": 1},
        ) as run,
    ):
        assert (await run.ask(get())).status == 200
        waiting = await run.client()
        waiting.send(get())
        await until(lambda: len(run.gateway._running.decider.waiting) == 1)
        refused = await run.ask(get())
        assert refused.status == 429
        seconds = refused.get(b"Retry-After").decode()
        assert 0 < int(seconds) <= 121
        assert refused.get(b"RateLimit") == f'"p";r=0;t={seconds}'.encode()
        assert member(refused, "retry-after") == int(seconds)


def member(answer: Answer, name: str) -> object:
    """A member of a problem document."""
    found: object = json.loads(answer.body)[name]
    return found


async def test_who_sends_thousands_at_once_leaves_room_for_others(tmp_path: Path) -> None:
    """Few of them are answered in a turn of the event loop; all of them are, and in order."""
    number = 3_000
    routes = {"/**": {"respond": {"status": 200, "body": "here"}}}
    async with running(tmp_path, "http://127.0.0.1:9", routes=routes) as run:
        client = await run.client()
        client.send(b"".join(get(f"/{each}") for each in range(number)))
        assert (await client.read()).status == 200
        answered = sum(run.gateway.metrics.routes["/**"].statuses.values())
        assert answered < number / 4
        for _ in range(number - 1):
            assert (await client.read()).body == b"here"
