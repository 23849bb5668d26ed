"""Requests on their way to an upstream and answers on their way back, byte by byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.proxy.wire import (
    OK,
    Answer,
    Peer,
    ScriptedUpstream,
    answering,
    answering_and_closing,
    get,
    post,
    running,
)
from tests.servers import until

HTTP = b"HTTP/1.1 200 OK\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n"


def kind(answer: Answer) -> str:
    """The `error` member of a problem document."""
    found: str = json.loads(answer.body)["error"]
    return found


# Answers as they may be.

ANSWERS = {
    "length": (HTTP + b"Content-Length: 5\r\n\r\nhello", 200, b"hello"),
    "chunks": (
        HTTP + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX: 1\r\n\r\n",
        200,
        b"hello",
    ),
    "empty": (HTTP + b"Content-Length: 0\r\n\r\n", 200, b""),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
    "299": (b"HTTP/1.1 299 Odd\r\nContent-Length: 1\r\n\r\nx", 299, b"x"),
    "599": (b"HTTP/1.1 599 Odd\r\nContent-Length: 1\r\n\r\nx", 599, b"x"),
    "204": (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 9\r\n\r\n", 304, b""),
    "wrong coding": (
        HTTP + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
        200,
        b"plain",
    ),
    "twice": (HTTP + b"Server: a\r\nServer: b\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
}


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize(("data", "status", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_answers_come_back(
    tmp_path: Path, data: bytes, status: int, body: bytes, step: int
) -> None:
    """Status and body arrive however slowly they came, and both connections are used again."""
    async with answering(data, step=step) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        answer = await client.get()
        again = await client.get()
        for each in (answer, again):
            assert (each.status, each.body, each.is_whole) == (status, body, True)
        assert len(answer.all(b"Date")) == 1
        assert len(upstream.peers) == 1
        if status == 204:
            assert answer.all(b"Content-Length") == answer.all(b"Transfer-Encoding") == []
        if status == 304:
            assert answer.all(b"Content-Length") == [b"9"]
        assert answer.all(b"Content-Type") == []
        assert answer.all(b"Server") == ([b"a", b"b"] if b"Server" in data else [])


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        (b"Content-Length: 1000\r\n", [b"1000"]),
        (b"Transfer-Encoding: chunked\r\n", []),
        (b"X: y\r\nContent-Length: 0\r\n", [b"0"]),
    ],
)
async def test_answers_to_head(tmp_path: Path, fields: bytes, length: list[bytes]) -> None:
    """Fields arrive without a body, none is waited for, and the connections persist."""
    async with answering(HTTP + fields + b"\r\n") as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        for _ in range(2):
            answer = await client.ask(HEAD, is_head=True)
            assert (answer.status, answer.all(b"Content-Length")) == (200, length)
        assert len(upstream.peers) == 1


@pytest.mark.parametrize(
    ("request_", "data"),
    [
        (get(), HTTP + b"Content-Length: 2\r\n\r\nokEXTRA"),
        (get(), HTTP + b"Content-Length: 2\r\n\r\nok" + HTTP + b"X-Swallow: "),
        (get(), HTTP + b"Content-Length: 0\r\n\r\nextra"),
        (get(), HTTP + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nextra"),
        (get(), b"HTTP/1.1 204 No Content\r\n\r\nextra"),
        (get(), b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nextra"),
        (HEAD, HTTP + b"Content-Length: 5\r\n\r\nextra"),
        (HEAD, HTTP + b"Transfer-Encoding: chunked\r\n\r\n5\r\nextra\r\n0\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("step", [0, 1])
async def test_what_an_upstream_adds_reaches_nobody(
    tmp_path: Path, request_: bytes, data: bytes, step: int
) -> None:
    """Bytes behind an answer are dropped, and the connection with them; the next is clean."""
    async with (
        answering(data, HTTP + b"Content-Length: 5\r\n\r\nclean", step=step) as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        first = await client.ask(request_, is_head=request_ == HEAD)
        assert first.is_whole
        assert first.body in (b"ok", b"")
        assert b"swallow" not in dict(first.fields)
        await until(lambda: not run.upstream()._pools[0]._open)
        assert (await client.get()).body == b"clean"
        assert len(upstream.peers) == 2


BROKEN = {
    "length and chunks": HTTP + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HTTP + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length in words": HTTP + b"Content-Length: foo\r\n\r\n",
    "an unknown coding": HTTP + b"Transfer-Encoding: foo\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a status that does not exist": b"HTTP/1.1 777 x\r\nContent-Length: 0\r\n\r\n",
    "another version": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a bare CR": HTTP + b"Location: /a\rSet-Cookie: x\r\nContent-Length: 0\r\n\r\n",
    "an upgrade that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000,
    "a head without end": HTTP + b"X: " + b"y" * 200_000,
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_invalid_answers(tmp_path: Path, data: bytes) -> None:
    """The client gets a constant 502 and continues; the upstream's connection ends."""
    async with answering(data, OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        answer = await client.get()
        while answer.status == 103:
            answer = await client.read()
        assert (answer.status, kind(answer)) == (502, "protocol")
        assert (await client.get()).body == b"ok"
        assert len(upstream.peers) == 2
        assert run.upstream().metrics.errors["protocol"] == 1


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_body_that_ends_with_the_connection(tmp_path: Path, version: bytes) -> None:
    """Clients of HTTP/1.1 get it in chunks and stay, those of HTTP/1.0 until the end."""
    data = b"HTTP/" + version + b" 200 OK\r\n\r\n" + b"x" * 100_000
    async with answering_and_closing(data) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        for _ in range(2):
            answer = await client.get()
            assert (answer.body, answer.is_whole) == (b"x" * 100_000, True)
        old = await run.client()
        answer = await old.ask(b"GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n")
        assert (answer.body, answer.get(b"Connection")) == (b"x" * 100_000, b"close")
        assert answer.all(b"Transfer-Encoding") == []


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        HTTP + b"Content-Length: 100\r\n\r\nhalf",
        HTTP + b"Transfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        HTTP + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
async def test_half_an_answer_never_looks_whole(tmp_path: Path, data: bytes, reset: bool) -> None:
    """What breaks off upstream breaks off for the client too."""
    async with (
        answering_and_closing(data, reset=reset) as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        client.send(get())
        try:
            answer = await client.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        else:
            assert not answer.is_whole
        assert await client.is_closed()
        assert run.upstream().metrics.errors["closed"] == 1


async def test_a_reset_ends_a_body_without_length_in_an_error(tmp_path: Path) -> None:
    """Only an orderly end of the connection is the end of such a body."""
    async with (
        answering_and_closing(HTTP + b"\r\nhalf", reset=True) as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        assert not (await client.get()).is_whole


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
async def test_an_upstream_that_leaves_without_an_answer(
    tmp_path: Path, data: bytes, reset: bool
) -> None:
    """The client gets 502; nothing is resent after a new connection."""
    async with (
        answering_and_closing(data, reset=reset) as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        answer = await client.get()
        if data:
            assert answer.status == 103
            answer = await client.read()
        assert (answer.status, kind(answer)) == (502, "closed")
        assert len(upstream.requests) == 1


async def test_interim_answers_are_passed_on(tmp_path: Path) -> None:
    """In order, to clients that know them; not to those of HTTP/1.0."""
    hints = b"".join(b"HTTP/1.1 103 Early Hints\r\nLink: </%d>\r\n\r\n" % n for n in range(3))
    async with answering(hints + OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(get())
        for number in range(3):
            hint = await client.read()
            assert (hint.status, hint.fields) == (103, [(b"link", b"</%d>" % number)])
        assert (await client.read()).body == b"ok"
        assert (await run.ask(b"GET / HTTP/1.0\r\n\r\n")).body == b"ok"


async def test_a_100_that_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    """The final answer is the first thing the client sees."""
    async with (
        answering(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as upstream,
        running(tmp_path, upstream) as run,
    ):
        assert (await run.ask(get())).body == b"ok"


# The upstream's connections.


async def test_an_idle_connection_that_was_closed_is_replaced(tmp_path: Path) -> None:
    """A closed connection is noticed while it is idle, and not used."""
    async with answering_and_closing(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        for number in range(1, 4):
            assert (await client.ask(post(b"x"))).body == b"ok"
            await until(lambda: not run.upstream()._pools[0]._open)
            assert len(upstream.requests) == number


def closing_on_the_second_request() -> ScriptedUpstream:
    """An upstream that closes each connection just as it is used for the second time."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.request())
        await peer.send(OK)
        if second := await peer.request():
            upstream.requests.append(second)
            peer.reset()

    upstream = ScriptedUpstream(script)
    return upstream


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_a_stale_connection_costs_an_idempotent_request_nothing(
    tmp_path: Path, method: str
) -> None:
    """It is sent once more, on a new connection."""
    async with closing_on_the_second_request() as upstream, running(tmp_path, upstream) as run:
        assert (await run.ask(get())).status == 200
        client = await run.client()
        client.send(f"{method} / HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        assert (await client.read(is_head=method == "HEAD")).status == 200
        assert len(upstream.requests) == 3
        assert not run.upstream().metrics.errors


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
async def test_a_stale_connection_never_repeats_what_may_not_be(
    tmp_path: Path, method: str
) -> None:
    """The upstream sees such a request once, and the client gets an error."""
    async with closing_on_the_second_request() as upstream, running(tmp_path, upstream) as run:
        assert (await run.ask(get())).status == 200
        answer = await run.ask(f"{method} / HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        assert (answer.status, kind(answer)) == (502, "closed")
        assert len(upstream.requests) == 2


async def test_nothing_is_sent_again_once_an_answer_has_begun(tmp_path: Path) -> None:
    """Half a status line is enough to know that the upstream was at work."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.request())
        await peer.send(OK)
        upstream.requests.append(await peer.request())
        await peer.send(b"HTTP/1.")
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        assert (await run.ask(get())).status == 200
        assert (await run.ask(get())).status == 502
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("extra", [OK, b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"x"])
async def test_bytes_on_an_idle_connection_are_nobodys(tmp_path: Path, extra: bytes) -> None:
    """The connection is given up; the next request has a clean one."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.request())
        await peer.send(HTTP + b"Content-Length: 1\r\n\r\n%d" % peer.number)
        if not peer.number:
            await unsolicited.wait()
            await peer.send(extra)

    unsolicited = asyncio.Event()
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        assert (await client.get()).body == b"0"
        unsolicited.set()
        await until(lambda: not run.upstream()._pools[0]._open)
        assert (await client.get()).body == b"1"


# Uploads.


@pytest.mark.parametrize(
    ("framing", "pieces"),
    [
        (b"Content-Length: 6", (b"abc", b"def")),
        (b"Transfer-Encoding: chunked", (b"3\r\nabc\r\n", b"3\r\ndef\r\n0\r\n\r\n")),
    ],
)
async def test_an_upload_flows_while_it_arrives(
    tmp_path: Path, framing: bytes, pieces: tuple[bytes, bytes]
) -> None:
    """The upstream sees the first piece before the client has sent the last, framed alike."""

    async def script(peer: Peer) -> None:
        head = await peer.head()
        assert framing in head
        assert b"abc" in await peer.reader.readuntil(b"abc")
        seen.set()
        assert b"def" in await peer.reader.readuntil(b"def")
        if b"chunked" in framing:
            await peer.reader.readuntil(b"0\r\n\r\n")
        await peer.send(OK)
        upstream.requests.append(head)

    seen = asyncio.Event()
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\n%b\r\n\r\n%b" % (framing, pieces[0]))
        await seen.wait()
        client.send(pieces[1])
        assert (await client.read()).body == b"ok"
        assert len(upstream.requests) == 1


async def test_a_continue_comes_from_the_upstream(tmp_path: Path) -> None:
    """The client's question goes to the upstream, and its answer to the client."""

    async def script(peer: Peer) -> None:
        head = await peer.head()
        assert b"\r\nExpect: 100-continue\r\n" in head
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await peer.reader.readexactly(5) == b"hello"
        await peer.send(OK)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await client.read()).status == 100
        client.send(b"hello")
        assert (await client.read()).body == b"ok"


async def test_an_upload_may_last_longer_than_the_upstream_may_idle(tmp_path: Path) -> None:
    """While the client's body arrives, the upstream is not late, even after an early 100."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await peer.reader.readexactly(5) == b"hello"
        await peer.send(OK)

    timeouts = {"idle": "400ms", "first_byte": "400ms"}
    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, u={"timeouts": timeouts}) as run,
    ):
        client = await run.client()
        client.send(
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await client.read()).status == 100
        for byte in b"hello":
            await asyncio.sleep(0.2)
            client.send(bytes([byte]))
        assert (await client.read()).status == 200


@pytest.mark.parametrize("end", ["read on", "close", "reset"])
async def test_an_answer_during_an_upload(tmp_path: Path, end: str) -> None:
    """A refusal by the upstream reaches the client, which can read it while it still sends."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        # The answer arrives before the end: a reset overtakes what was not read yet.
        await asyncio.sleep(0.02)
        if end == "close":
            peer.close()
        elif end == "reset":
            peer.reset()
        else:
            await peer.at_end()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(post(b"")[:-2].replace(b"Length: 0", b"Length: 10000000") + b"\r\n")
        client.send(b"x" * 1_000_000)
        answer = await client.read()
        assert (answer.status, answer.body) == (413, b"big")
        assert answer.get(b"Connection") == b"close"
        client.send(b"x" * 1_000_000)
        assert await client.at_end() == b""


@pytest.mark.parametrize("chunked", [False, True])
async def test_half_an_upload_never_looks_whole(tmp_path: Path, chunked: bool) -> None:
    """If the client leaves in the middle, the upstream's connection breaks off too."""

    async def script(peer: Peer) -> None:
        await peer.head()
        arrived.set()
        upstream.requests.append(await peer.at_end())

    arrived = asyncio.Event()
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100"
        body = b"64\r\nhalf" if chunked else b"half"
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\n%b\r\n\r\n%b" % (framing, body))
        await arrived.wait()
        client.close()
        await until(lambda: len(upstream.requests) == 1)
        assert not upstream.requests[0].endswith(b"0\r\n\r\n")
        assert run.gateway.metrics.clients_left == 1


async def test_a_body_beyond_the_limit(tmp_path: Path) -> None:
    """413: at once where the length is announced, and as soon as it is seen where it is not."""

    async def script(peer: Peer) -> None:
        await peer.head()
        upstream.requests.append(await peer.at_end())

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, server={"max_body": "100KiB"}) as run,
    ):
        assert (await run.ask(post(b"x" * 102_401))).status == 413
        assert not upstream.peers
        client = await run.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"10000\r\n%b\r\n" % (b"x" * 65536) * 2)
        assert (await client.read()).status == 413
        await until(lambda: len(upstream.requests) == 1)
        assert not upstream.requests[0].endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("rest", [b"xyz\r\n", b"3\r\nabcdef\r\n0\r\n\r\n", b"-1\r\n"])
async def test_an_upload_that_is_not_valid(tmp_path: Path, rest: bytes) -> None:
    """400, and what was sent of it never looks whole to the upstream."""

    async def script(peer: Peer) -> None:
        await peer.head()
        arrived.set()
        upstream.requests.append(await peer.at_end())

    arrived = asyncio.Event()
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"1\r\nx\r\n")
        await arrived.wait()
        client.send(rest)
        answer = await client.read()
        assert (answer.status, answer.get(b"Connection")) == (400, b"close")
        assert await client.at_end() == b""
        await until(lambda: len(upstream.requests) == 1)
        assert not upstream.requests[0].endswith(b"0\r\n\r\n")


# Time and memory.


@pytest.mark.parametrize(
    ("timeouts", "data", "expected"),
    [
        ({"first_byte": "60ms"}, b"", "timeout_first_byte"),
        ({"total": "60ms"}, b"", "timeout_total"),
        ({"idle": "60ms"}, b"HTTP/1.1 200", "timeout_idle"),
        ({"idle": "60ms"}, b"HTTP/1.1 103 Early Hints\r\n\r\n", "timeout_idle"),
    ],
)
async def test_an_upstream_that_is_silent(
    tmp_path: Path, timeouts: dict[str, str], data: bytes, expected: str
) -> None:
    """The client gets 504, and the connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        await peer.at_end()

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, u={"timeouts": timeouts}) as run,
    ):
        client = await run.client()
        answer = await client.get()
        if answer.status == 103:
            answer = await client.read()
        assert (answer.status, kind(answer)) == (504, expected)
        await until(lambda: not run.upstream()._pools[0]._open)


@pytest.mark.parametrize("limit", ["idle", "total"])
async def test_an_answer_that_stops_in_the_middle(tmp_path: Path, limit: str) -> None:
    """It breaks off for the client; an answer that trickles is stopped by its total time."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HTTP + b"Content-Length: 100\r\n\r\n")
        while limit == "total" and not peer.writer.is_closing():
            await peer.send(b"x")
            await asyncio.sleep(0.01)
        await peer.at_end()

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, u={"timeouts": {limit: "80ms"}}) as run,
    ):
        answer = await (await run.client()).get()
        assert (answer.status, answer.is_whole) == (200, False)
        assert run.upstream().metrics.errors == {f"timeout_{limit}": 1}


async def test_a_target_that_refuses_connections(tmp_path: Path) -> None:
    """502 at once."""
    async with answering(OK) as gone:
        url = gone.url
    async with running(tmp_path, url) as run:
        answer = await run.ask(get())
        assert (answer.status, kind(answer)) == (502, "connect")


async def test_a_slow_client_holds_the_upstream_back(tmp_path: Path) -> None:
    """Of a huge answer little lies in the gateway, and the whole of it arrives in the end."""
    size = 40_000_000
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(HTTP + b"Content-Length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(b"x" * 100_000)
            sent += 100_000

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client(receive_buffer=65536)
        client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.05)
        assert sent < size / 2, "the kernel's buffers and ours hold less than this"
        (connection,) = run.upstream()._pools[0]._open
        assert connection.answer.buffered < 2_000_000
        read = 0
        while read < size:
            piece = await client.reader.read(1 << 20)
            assert piece
            read += len(piece)


async def test_a_slow_client_is_not_the_upstreams_fault(tmp_path: Path) -> None:
    """While the client does not read, the upstream's idle time does not count."""
    size = 20_000_000
    data = HTTP + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    async with (
        answering(data) as upstream,
        running(tmp_path, upstream, u={"timeouts": {"idle": "500ms"}}) as run,
    ):
        client = await run.client(receive_buffer=65536)
        client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(1)
        assert len(await client.reader.readexactly(size)) == size


async def test_a_client_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    """After `body_timeout` the connection breaks off, and the upstream's with it."""
    data = HTTP + b"Content-Length: 20000000\r\n\r\n" + b"x" * 20_000_000
    async with (
        answering(data) as upstream,
        running(tmp_path, upstream, server={"body_timeout": "100ms"}) as run,
    ):
        client = await run.client(receive_buffer=65536)
        client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        await until(lambda: not run.gateway._proxy._clients)
        await until(lambda: not run.upstream()._pools[0]._open)


async def test_a_slow_upstream_holds_the_client_back(tmp_path: Path) -> None:
    """Of a huge upload little lies in the gateway, and the whole of it arrives in the end."""
    size = 40_000_000
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await go_on.wait()
        await peer.reader.readexactly(size)
        await peer.send(OK)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(post(b"").replace(b"Length: 0", b"Length: %d" % size))
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < size:
                client.send(b"x" * 100_000)
                sent += 100_000
                await client.writer.drain()

        sending = asyncio.create_task(send())
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.05)
        assert sent < size / 2, "the kernel's buffers and ours hold less than this"
        go_on.set()
        await sending
        assert (await client.read()).body == b"ok"


async def test_a_client_that_leaves_ends_the_exchange(tmp_path: Path) -> None:
    """The upstream is told immediately, before and after the start of its answer."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if b"/begun" in request:
            await peer.send(HTTP + b"Content-Length: 10\r\n\r\nhalf")
        arrived.set()
        await peer.at_end()
        ended.append(peer.number)

    arrived = asyncio.Event()
    ended: list[int] = []
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        for number, path in enumerate(("/silent", "/begun")):
            arrived.clear()
            client = await run.client()
            client.send(get(path))
            await arrived.wait()
            client.close()
            await until(lambda: len(ended) == number + 1)  # noqa: B023
        assert run.gateway.metrics.clients_left == 2
