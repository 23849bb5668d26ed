"""Clients of HTTP/2 in front of upstreams of HTTP/1.1: one data path, whatever the framing.

Both ends are raw: the client judges every frame, and the upstream is scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.http2 import (
    PREFACE,
    Heard,
    Http2Client,
    block,
    data,
    frame,
    head,
    headers,
    rst,
    update,
)
from tests.proxy.wire import (
    OK,
    Peer,
    Running,
    ScriptedUpstream,
    answering,
    answering_and_closing,
    running,
)
from tests.servers import until

HTTP = b"HTTP/1.1 200 OK\r\n"
UPLOAD = 30_000_000
"""More than the buffers of the kernel take on the way to an upstream."""
CHUNKED = HTTP + b"Transfer-Encoding: chunked\r\n\r\n"


class Served:
    """A gateway with clients of HTTP/2."""

    def __init__(self, run: Running) -> None:
        self.run = run
        self.clients: list[Http2Client] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.run.gateway.addresses[0].port

    @property
    def errors(self) -> dict[str, int]:
        """The errors of clients that were counted."""
        return dict(self.run.gateway.metrics.client_errors)

    async def client(self, **options: Any) -> Http2Client:
        """A new connection."""
        client = await Http2Client.connect(self.port, **options)
        self.clients.append(client)
        return client


@asynccontextmanager
async def served(
    folder: Path, upstream: ScriptedUpstream | str, complaint: str = "", **settings: Any
) -> AsyncIterator[Served]:
    """A gateway whose clients know that they may speak HTTP/2; looks after itself at the end."""
    settings = {"listen": {"address": "127.0.0.1:0", "http2": True}, **settings}
    async with running(folder, upstream, complaint, **settings) as run:
        one = Served(run)
        try:
            yield one
        finally:
            for client in one.clients:
                await client.close()


ANSWERS = {
    "length": (HTTP + b"Content-Length: 5\r\n\r\nhello", 200, b"hello"),
    "chunks": (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 200, b"hello"),
    "empty": (HTTP + b"Content-Length: 0\r\n\r\n", 200, b""),
    "no reason": (b"HTTP/1.1 299\r\nContent-Length: 1\r\n\r\nx", 299, b"x"),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", 304, b""),
    "hop by hop": (
        HTTP + b"Connection: X-One\r\nX-One: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n"
        b"Proxy-Connection: close\r\nContent-Length: 1\r\n\r\nx",
        200,
        b"x",
    ),
    "spaces": (HTTP + b"X-A: \t b \t\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
}


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(("answer", "status", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_answers_come_back(
    tmp_path: Path, answer: bytes, status: int, body: bytes, step: int
) -> None:
    """Status, end-to-end fields and body arrive; what concerns the upstream's connection not."""
    async with (
        answering(answer, step=step) as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        for _ in range(3):
            heard = await client.get()
            assert (heard.status, heard.body, heard.ended, heard.reset) == (status, body, True, -1)
            assert heard.get("date")
            assert heard.get("x-one") is None
            assert heard.get("x-a") in (None, "b")


async def test_answers_that_end_with_the_connection(tmp_path: Path) -> None:
    """A response without a length ends where the upstream closes."""
    async with (
        answering_and_closing(HTTP + b"\r\nhello") as upstream,
        served(tmp_path, upstream) as one,
    ):
        heard = await (await one.client()).get()
        assert (heard.status, heard.body, heard.ended) == (200, b"hello", True)


async def test_head(tmp_path: Path) -> None:
    """HEAD has the length of what it would be, and no body."""
    async with (
        answering(HTTP + b"Content-Length: 5\r\n\r\n") as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        heard = await client.answer(client.ask(method="HEAD"))
        assert (heard.status, heard.get("content-length"), heard.body) == (200, "5", b"")


@pytest.mark.parametrize("step", [0, 3])
async def test_trailers_come_back(tmp_path: Path, step: int) -> None:
    """Trailers of a response follow its body; those that belong in a head do not."""
    answer = CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\n\r\n"
    async with answering(answer, step=step) as upstream, served(tmp_path, upstream) as one:
        heard = await (await one.client()).get()
        assert (heard.body, heard.trailers, heard.ended) == (b"hello", [("x-sum", "1")], True)


async def test_interim_responses(tmp_path: Path) -> None:
    """103 comes before the response; 100 only to a client that waits for it."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with (
        answering(b"HTTP/1.1 100 Continue\r\n\r\n" + hint + OK) as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        heard = await client.get()
        assert heard.interim == [[(":status", "103"), ("link", "</a>")]]
        heard = await client.answer(
            client.ask("/", ("expect", "100-continue"), method="POST", body=b"x")
        )
        assert [fields[0][1] for fields in heard.interim] == ["100", "103"]
        assert heard.status == 200


async def test_large_bodies_both_ways(tmp_path: Path) -> None:
    """Megabytes go up and down, within the windows of either side."""
    body = bytes(range(256)) * 8192

    async def script(peer: Peer) -> None:
        request = await peer.request()
        got = request.partition(b"\r\n\r\n")[2]
        await peer.send(HTTP + b"Content-Length: %d\r\n\r\n" % len(got) + got)

    async with ScriptedUpstream(script) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        stream = client.ask(method="POST", ends=False)
        heard = client.heard[stream]
        await client.upload(stream, body)
        await client.until(lambda: heard.is_over)
        assert heard.body == body


async def test_many_streams_at_once(tmp_path: Path) -> None:
    """A hundred requests of one connection are served together, each with its own response."""
    gate = asyncio.Event()

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            if len(upstream.peers) == 100:
                gate.set()
            await gate.wait()
            path = request.split(b" ")[1]
            await peer.send(HTTP + b"Content-Length: %d\r\n\r\n%b" % (len(path), path))

    async with ScriptedUpstream(script) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        streams = [client.ask(f"/{number}") for number in range(100)]
        for number, stream in enumerate(streams):
            assert (await client.answer(stream)).body == b"/%d" % number


async def test_early_answers(tmp_path: Path) -> None:
    """8.1: a response before the end of the request ends the stream without an error."""
    async with answering(OK) as upstream:

        async def script(peer: Peer) -> None:
            await peer.head()
            await peer.send(OK)
            await peer.at_end()

        async with ScriptedUpstream(script) as early, served(tmp_path, early) as one:
            client = await one.client()
            stream = client.ask(method="POST", body=b"x", ends=False)
            heard = client.heard[stream]
            await client.until(lambda: heard.reset >= 0)
            assert (heard.status, heard.body, heard.ended, heard.reset) == (200, b"ok", True, 0)
            # What is still on its way does no harm.
            client.send(data(stream, b"y" * 1000) + data(stream, ends=True))
            assert (await client.answer(client.ask(method="POST", body=b"x"))).status == 200
        assert not upstream.requests


async def test_the_end_of_a_request_may_come_after_its_response(tmp_path: Path) -> None:
    """A client that ends a body in a frame of its own does not find its stream reset."""
    async with answering(OK) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        for number, body in enumerate((b"", b"x" * 5000)):
            length = ("content-length", str(len(body)))
            stream = client.ask("/", length, method="POST", body=body, ends=False)
            heard = client.heard[stream]
            await client.until(partial(getattr, heard, "ended"))
            await client.synced()
            assert (heard.status, heard.reset) == (200, -1)
            client.send(data(stream, ends=True))
            await client.synced()
            assert heard.reset == -1
            assert len(upstream.requests) == number + 1


@pytest.mark.parametrize("phase", ["head", "body", "upload"])
async def test_a_reset_cancels_the_exchange(tmp_path: Path, phase: str) -> None:
    """A client that resets a stream ends what the upstream does for it, and nothing else."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        if phase == "body":
            await peer.send(CHUNKED + b"2\r\nhe\r\n")
        await peer.at_end()
        ended.set()

    async with (
        ScriptedUpstream(script) as upstream,
        served(
            tmp_path, upstream, routes={"/**": {"upstream": "u"}, "/own": {"respond": "x"}}
        ) as one,
    ):
        client = await one.client()
        stream = client.ask(method="POST", body=b"x", ends=phase != "upload")
        await until(lambda: len(upstream.peers) == 1)
        if phase == "body":
            await client.until(lambda: client.heard[stream].body == b"he")
        client.send(rst(stream))
        async with asyncio.timeout(30):
            await ended.wait()
        assert (await client.get("/own")).body == b"x"
        await until(lambda: one.run.gateway.metrics.clients_left == 1)


async def test_a_reset_returns_the_turn(tmp_path: Path) -> None:
    """A stream that is reset while it waits for its turn gives the turn to the next."""
    route = {"limit": "1/h burst 1 per ip", "queue": {"max": 10, "max_wait": "3h"}}
    async with (
        answering(OK) as upstream,
        served(tmp_path, upstream, route=route) as one,
    ):
        decider: Any = one.run.gateway._running.decider
        client = await one.client()
        assert (await client.get()).status == 200
        waiting = client.ask()
        await until(lambda: len(decider.waiting) == 1)
        client.send(rst(waiting))
        await until(lambda: len(decider.waiting) == 0)
        # The turn of an hour from now is free again, and not that of two hours.
        other = client.ask()
        await until(lambda: len(decider.waiting) == 1)
        client.send(rst(other))
        await until(lambda: len(decider.waiting) == 0)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("with_head", [True, False])
async def test_upstreams_that_break_off(tmp_path: Path, *, with_head: bool) -> None:
    """A response that broke off never looks complete: RST_STREAM, or 502 if nothing was sent."""
    answer = HTTP + b"Content-Length: 100\r\n\r\nhello" if with_head else HTTP
    async with (
        answering_and_closing(answer) as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        heard = await client.get()
        if with_head:
            assert (heard.status, heard.ended, heard.reset) in ((200, False, 2), (0, False, 2))
        else:
            assert (heard.status, heard.ended) == (502, True)
        assert not client.goaways


async def test_a_stalled_stream_stops_no_other(tmp_path: Path) -> None:
    """A client that takes nothing of one response gets others, and its upstream is held back."""
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        while request := await peer.request():
            if b"/big" not in request:
                await peer.send(OK)
                continue
            await peer.send(HTTP + b"Content-Length: 100000000\r\n\r\n")
            while not peer.writer.transport.is_closing():
                await peer.send(bytes(65_536))
                written += 65_536

    async with ScriptedUpstream(script) as upstream, served(tmp_path, upstream) as one:
        client = await one.client(grants=False)
        client.send(update(0, 10_000_000))
        client.window += 10_000_000
        stalled = [client.ask("/big") for _ in range(20)]
        for _ in range(20):
            assert (await client.get()).body == b"ok"
        await client.until(lambda: all(len(client.heard[s].body) == 65_535 for s in stalled))
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.3)
        # Buffers of the kernel are most of it: what the gateway has is bounded.
        (connection,) = one.run.gateway._proxy._clients
        kept = sum(connection.framing.queued(number) for number in stalled)  # type: ignore[attr-defined]
        assert kept < 20 * 400_000
        for stream in stalled:
            client.send(rst(stream))
        await client.synced()


async def test_streams_take_turns(tmp_path: Path) -> None:
    """6.9: long responses of one connection are sent a frame each in turn."""
    body = bytes(60_000)
    async with (
        answering(HTTP + b"Content-Length: 60000\r\n\r\n" + body) as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client(grants=False)
        streams = [client.ask(f"/{number}") for number in range(4)]
        await client.until(lambda: client.window == 0)
        client.order.clear()
        client.send(update(0, 10_000_000))
        client.window += 10_000_000
        for stream in streams:
            assert (await client.answer(stream)).body == body
        # Each of those that are left has had a frame before any has had three.
        left = set(client.order)
        first = client.order[: 2 * len(left)]
        assert len(left) >= 2
        assert set(first) == left, client.order


async def test_uploads_wait_for_the_upstream(tmp_path: Path) -> None:
    """5.2: a client may send only as much as the upstream takes; other streams go on."""
    reads = asyncio.Event()

    async def script(peer: Peer) -> None:
        while b"POST /slow" not in (head := await peer.head()):
            if not head:
                return
            await peer.send(OK)
        await reads.wait()
        size = UPLOAD
        while size and (piece := await peer.reader.read(65_536)):
            size -= len(piece)
        await peer.send(OK)

    async with ScriptedUpstream(script) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        stream = client.ask("/slow", ("content-length", str(UPLOAD)), method="POST", ends=False)
        upload = asyncio.ensure_future(client.upload(stream, bytes(UPLOAD)))
        assert (await client.get()).status == 200
        await asyncio.sleep(0.3)
        assert not upload.done()
        assert (await client.get()).status == 200
        reads.set()
        await upload
        assert (await client.answer(stream)).status == 200


async def test_the_limits_are_those_of_http_1(tmp_path: Path) -> None:
    """Refusals, their fields, and what is counted are the same; each stream is a request."""
    async with (
        answering(OK) as upstream,
        served(tmp_path, upstream, route={"limit": "3/h per ip"}) as one,
    ):
        client = await one.client()
        streams = [client.ask() for _ in range(10)]
        found = [await client.answer(stream) for stream in streams]
        assert [heard.status for heard in found] == [200] * 3 + [429] * 7
        assert found[-1].get("retry-after")
        assert found[-1].get("content-type") == "application/problem+json"
        # The same limit for the same client over HTTP/1.1, on the same listener.
        assert (await one.run.ask(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")).status == 429
    assert len(upstream.requests) == 3


async def test_bodies_larger_than_allowed(tmp_path: Path) -> None:
    """413, whether the length was announced or not; the connection goes on."""
    async with (
        answering(OK) as upstream,
        served(tmp_path, upstream, route={"max_body": 1000}) as one,
    ):
        client = await one.client()
        for more in ([], [("content-length", "2000")]):
            stream = client.ask("/", *more, method="POST", body=bytes(2000))
            assert (await client.answer(stream)).status == 413
        assert (await client.get()).status == 200


async def test_websockets_are_not_offered(tmp_path: Path) -> None:
    """RFC 8441 is not announced, and an upstream that switches anyway is not followed."""
    async with (
        answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n") as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        assert (await client.get()).status == 502
        assert 8 not in client.settings


async def test_settings(tmp_path: Path) -> None:
    """What the client is told: a hundred streams, the largest head, no priorities of RFC 7540."""
    async with answering(OK) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        await client.synced()
        assert client.settings == {3: 100, 4: 65_535, 6: 65_536, 9: 1}


# Time limits.


async def test_slow_heads(tmp_path: Path) -> None:
    """A head that does not end in time ends the connection, on a new one and later."""
    server = {"header_timeout": "300ms"}
    async with answering(OK) as upstream, served(tmp_path, upstream, server=server) as one:
        for begins in (b"", PREFACE + frame(4, 0, 0)):
            client = await one.client(begins=False)
            client.send(begins)
            await client.closed()
        client = await one.client()
        assert (await client.get()).status == 200
        client.send(headers(3, head(), whole=False))
        await client.closed()
        client = await one.client()
        assert (await client.get()).status == 200
        client.send(headers(3, head())[:20])
        await client.closed()
        assert one.errors == {"header_timeout": 4}
    assert len(upstream.requests) == 2


async def test_idle_connections(tmp_path: Path) -> None:
    """A connection without streams ends in order after its time; PING does not prolong it."""
    server = {"keepalive_timeout": "300ms"}
    async with answering(OK) as upstream, served(tmp_path, upstream, server=server) as one:
        client = await one.client()
        assert (await client.get()).status == 200
        client.send(frame(6, 0, 0, bytes(8)))
        await client.closed()
        assert client.goaways == [(1, 0)]
        assert not one.errors


async def test_slow_bodies(tmp_path: Path) -> None:
    """A body that stops gets 408; the connection and its other streams go on."""
    server = {"body_timeout": "300ms"}

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(OK)

    async with (
        ScriptedUpstream(script) as upstream,
        served(tmp_path, upstream, server=server) as one,
    ):
        client = await one.client()
        stream = client.ask(method="POST", body=b"x", ends=False)
        heard = await client.answer(stream)
        assert heard.status == 408
        assert (await client.get()).status == 200
        assert one.errors == {"body_timeout": 1}


async def test_readers_that_do_not_read(tmp_path: Path) -> None:
    """A stream whose window stays shut is reset after its time, complete response or not."""
    server = {"body_timeout": "300ms"}
    answer = HTTP + b"Content-Length: 200000\r\n\r\n" + bytes(200_000)
    async with answering(answer) as upstream, served(tmp_path, upstream, server=server) as one:
        client = await one.client(grants=False)
        stream = client.ask()
        heard = client.heard[stream]
        await client.until(lambda: heard.reset >= 0)
        assert (heard.reset, heard.ended) == (8, False)
        assert one.errors == {"send_timeout": 1}
        assert not client.goaways


async def test_clients_that_do_not_read_at_all(tmp_path: Path) -> None:
    """A client that reads nothing from its socket is broken off after its time."""
    server = {"body_timeout": "500ms"}
    answer = HTTP + b"Content-Length: 20000000\r\n\r\n" + bytes(20_000_000)
    async with answering(answer) as upstream, served(tmp_path, upstream, server=server) as one:
        client = await one.client(grants=False, receive_buffer=4096)
        client.send(update(0, 2**30))
        stream = client.ask()
        client.send(update(stream, 2**30))
        client.stop_reading()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: one.errors.get("send_timeout", 0) >= 1, 30)
        await until(lambda: not one.run.gateway._proxy._clients, 30)


async def test_many_slow_clients_beside_a_normal_one(tmp_path: Path) -> None:
    """Fifty clients that dribble heads, bodies and reads do not slow down another."""
    answer = HTTP + b"Content-Length: 300000\r\n\r\n" + bytes(300_000)
    async with (
        answering(answer) as upstream,
        served(
            tmp_path, upstream, routes={"/**": {"upstream": "u"}, "/own": {"respond": "x"}}
        ) as one,
    ):
        slow = [await one.client(grants=False) for _ in range(50)]
        for number, client in enumerate(slow):
            if number % 3 == 0:
                client.send(headers(1, head(), whole=False))
            elif number % 3 == 1:
                client.ask(method="POST", body=b"x", ends=False)
            else:
                client.ask()
        normal = await one.client()
        for _ in range(100):
            assert (await normal.get("/own")).body == b"x"
        assert (await normal.get()).body == bytes(300_000)
        for client in slow:
            client.reset()


# The end.


async def test_drain(tmp_path: Path) -> None:
    """6.8: GOAWAY twice; what is in flight is finished, and what was on its way is served."""
    answers = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await answers.wait()
        await peer.send(OK)
        await peer.at_end()

    async with ScriptedUpstream(script) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        idle = await one.client()
        await idle.synced()
        first = client.ask()
        await until(lambda: len(upstream.peers) == 1)
        drained = asyncio.ensure_future(one.run.gateway._proxy.drain(30))
        await client.until(lambda: client.goaways)
        assert client.goaways[0] == (2**31 - 1, 0)
        await client.until(lambda: len(client.goaways) == 2)
        assert client.goaways[1] == (first, 0)
        # Later ones are not served: the client knows that, and may repeat them elsewhere.
        client.ask("/later")
        await client.synced()
        answers.set()
        assert (await client.answer(first)).status == 200
        await client.closed()
        await idle.closed()
        assert [code for _, code in idle.goaways] == [0, 0]
        assert await drained == 0
    assert len(upstream.peers) == 1


async def test_drain_of_a_client_that_is_deaf(tmp_path: Path) -> None:
    """A client that never answers the PING does not delay the end."""
    async with answering(OK) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        assert (await client.get()).status == 200
        client.stop_reading()
        async with asyncio.timeout(30):
            assert await one.run.gateway._proxy.drain(20) == 0


async def test_clients_that_say_goaway(tmp_path: Path) -> None:
    """A client that ends gets its responses, and the connection is closed."""
    async with answering(OK, pause=0.1) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        stream = client.ask()
        client.send(frame(7, 0, 0, bytes(8)))
        heard = client.heard[stream]
        await client.closed()
        assert heard.status == 200
        assert heard.ended


async def test_clients_that_break_off(tmp_path: Path) -> None:
    """A connection that is lost ends all its requests; each is counted."""
    async with (
        answering(OK, pause=30) as upstream,
        served(tmp_path, upstream) as one,
    ):
        client = await one.client()
        for _ in range(10):
            client.ask()
        await until(lambda: len(upstream.requests) == 10)
        client.reset()
        await until(lambda: one.run.gateway.metrics.clients_left == 10)


async def test_room_is_made(tmp_path: Path) -> None:
    """An idle connection is closed for a new client; one with a stream is not."""
    server = {"max_connections": 2}
    async with (
        answering(OK, pause=0.5) as upstream,
        served(tmp_path, upstream, server=server) as one,
    ):
        idle = await one.client()
        assert (await idle.get()).status == 200
        busy = await one.client()
        stream = busy.ask()
        await busy.synced()
        third = await one.client()
        assert (await third.get()).status == 200
        await idle.closed()
        assert (await busy.answer(stream)).status == 200


async def test_pings_amid_a_download(tmp_path: Path) -> None:
    """Control frames are answered while a response is stalled."""
    answer = HTTP + b"Content-Length: 200000\r\n\r\n" + bytes(200_000)
    async with answering(answer) as upstream, served(tmp_path, upstream) as one:
        client = await one.client(grants=False)
        stream = client.ask()
        for _ in range(10):
            await client.synced()
        client.grants = True
        client.send(update(0, 200_000) + update(stream, 200_000))
        client.heard[stream].window += 200_000
        client.window += 200_000
        heard: Heard = await client.answer(stream)
        assert len(heard.body) == 200_000


async def test_a_window_that_shrinks(tmp_path: Path) -> None:
    """6.9.2: SETTINGS may make windows smaller than what was used; nothing more is sent then."""
    answer = HTTP + b"Content-Length: 100\r\n\r\n" + bytes(100)
    async with answering(answer) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        client.send(frame(4, 0, 0, b"\0\x04\0\0\0\x05"))
        await client.synced()
        stream = client.open()
        client.heard[stream].window = 5
        client.grants = False
        client.send(frame(1, 5, stream, block(head())))
        heard = client.heard[stream]
        await client.until(lambda: heard.body == bytes(5))
        client.send(update(stream, 95))
        heard.window += 95
        assert (await client.answer(stream)).body == bytes(100)


async def test_nothing_hangs_on_a_lost_client(tmp_path: Path) -> None:
    """A connection that is lost amid an upload leaves nothing behind."""
    async with answering(OK) as upstream, served(tmp_path, upstream) as one:
        client = await one.client()
        client.ask(method="POST", body=bytes(100_00), ends=False)
        await until(lambda: len(upstream.peers) == 1)
        client.reset()
