"""WebSockets through the gateway, byte by byte: the handshake, the tunnel, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.observe.logs import AccessLog
from tests.certificates import Authority
from tests.proxy.wire import (
    OK,
    PATIENCE_S,
    Client,
    Peer,
    Running,
    ScriptedUpstream,
    answering,
    get,
    post,
    running,
)
from tests.servers import until

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
HANDSHAKE = get("/chat", *UPGRADE, KEY, "Sec-WebSocket-Version: 13")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
SWITCHED = SWITCH + ACCEPT + b"\r\n"


def switching(answer: bytes = SWITCHED) -> ScriptedUpstream:
    """An upstream that switches at once, and sends back what comes afterwards."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.head())
        await peer.send(answer)
        while data := await peer.reader.read(1 << 16):
            await peer.send(data)
        peer.close()

    upstream = ScriptedUpstream(script)
    return upstream


async def open_tunnel(run: Running, handshake: bytes = HANDSHAKE) -> Client:
    """A client whose handshake was answered with 101."""
    client = await run.client()
    assert (await client.ask(handshake)).status == 101
    return client


def leave(upstream: ScriptedUpstream) -> None:
    """Close all connections of an upstream that would keep them."""
    for peer in upstream.peers:
        peer.close()


async def exactly(client: Client, size: int) -> bytes:
    """So many bytes."""
    async with asyncio.timeout(PATIENCE_S):
        return await client.reader.readexactly(size)


# The handshake.


async def test_a_handshake_is_passed_on(tmp_path: Path) -> None:
    """The upstream sees one that asks for the same, the client its answer as it was given."""
    answer = SWITCH + ACCEPT + b"Sec-WebSocket-Protocol: b\r\nX-Own: 1\r\n\r\n"
    offer = get(
        "/chat?room=1",
        "Connection: keep-alive, Upgrade",
        "Upgrade: WebSocket",
        KEY,
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: a, b",
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        "Origin: http://a.test",
    )
    async with switching(answer) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        got = await client.ask(offer)
        assert got.first == b"HTTP/1.1 101 Switching Protocols"
        assert sorted(got.fields) == [
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            (b"sec-websocket-protocol", b"b"),
            (b"upgrade", b"websocket"),
            (b"x-own", b"1"),
        ]
        (seen,) = upstream.requests
        assert seen.startswith(b"GET /chat?room=1 HTTP/1.1\r\n")
        for line in (
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            KEY.encode(),
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Protocol: a, b",
            b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            b"Origin: http://a.test",
            b"X-Forwarded-For: 127.0.0.1",
        ):
            assert seen.count(b"\r\n" + line + b"\r\n") == 1
        assert seen.lower().count(b"\r\nupgrade:") == seen.lower().count(b"\r\nconnection:") == 1


@pytest.mark.parametrize("chosen", [b"", b"Sec-WebSocket-Protocol: \r\n"])
async def test_a_protocol_that_was_not_chosen(tmp_path: Path, chosen: bytes) -> None:
    """No field stays no field, and an empty one an empty one."""
    async with switching(SWITCH + chosen + b"\r\n") as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        answer = await client.ask(HANDSHAKE.replace(b"Key:", b"Protocol: a, b\r\nX-Key:"))
        assert answer.status == 101
        assert answer.all(b"Sec-WebSocket-Protocol") == ([b""] if chosen else [])


@pytest.mark.parametrize(
    "refusal",
    [
        OK,
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnone",
        (
            b"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13, 8\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n2\r\nno\r\n0\r\n\r\n"
        ),
    ],
)
async def test_a_refusal_is_an_answer_like_any_other(tmp_path: Path, refusal: bytes) -> None:
    """The connection persists: with a request, and with a handshake that is accepted."""
    async with (
        answering(refusal, OK, SWITCHED + b"hello") as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        refused = await client.ask(HANDSHAKE)
        assert b"%d" % refused.status == refusal[9:12]
        assert refused.is_whole
        assert refused.body in (b"ok", b"none", b"no")
        assert refused.all(b"Sec-WebSocket-Version") == (
            [b"13, 8"] if refused.status == 426 else []
        )
        assert (await client.get()).body == b"ok"
        assert (await client.ask(HANDSHAKE)).status == 101
        assert await exactly(client, 5) == b"hello"
        assert len(upstream.requests) == 3
        leave(upstream)


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_what_is_sent_too_early_waits_for_the_101(tmp_path: Path, is_accepted: bool) -> None:
    """Bytes after a handshake reach the upstream after its 101, or not at all."""
    may_answer = asyncio.Event()
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.head())
        await may_answer.wait()
        assert not peer.reader._buffer  # type: ignore[attr-defined]
        await peer.send(SWITCHED if is_accepted else OK)
        seen.append(await peer.at_end())
        peer.close()

    early = get("/smuggled")
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(HANDSHAKE + early)
        await until(lambda: len(seen) == 1)
        client.send(early)
        await asyncio.sleep(0.05)
        may_answer.set()
        answer = await client.read()
        client.writer.write_eof()
        if is_accepted:
            assert answer.status == 101
            await until(lambda: seen[1:] == [early + early])
        else:
            assert (answer.status, answer.get(b"Connection")) == (200, b"close")
            assert await client.at_end() == b""
            assert len(upstream.peers) == 1


async def test_a_refusal_after_which_bytes_came_ends_the_connection(tmp_path: Path) -> None:
    """The same if they arrived after the handshake, while its answer was awaited."""
    may_answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.head())
        await may_answer.wait()
        await peer.send(OK)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(HANDSHAKE)
        await until(lambda: len(upstream.requests) == 1)
        client.send(get("/smuggled"))
        connection = run.connections[0]
        await until(lambda: not connection.is_waiting)
        may_answer.set()
        assert (await client.read()).body == b"ok"
        assert await client.at_end() == b""
        assert len(upstream.requests) == 1


async def test_a_handshake_behind_another_request(tmp_path: Path) -> None:
    """Both are answered in their order, and what is behind the second belongs to the tunnel."""

    async def script(peer: Peer) -> None:
        while b"pgrade" not in (head := await peer.head()):
            if not head:
                return
            upstream.requests.append(head)
            await peer.send(OK)
        await peer.send(SWITCHED)
        upstream.requests.append(await peer.reader.readexactly(5))
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(get("/1") + get("/2") + HANDSHAKE + b"early")
        statuses = [(await client.read()).status for _ in range(3)]
        assert statuses == [200, 200, 101]
        assert await client.at_end() == b""
        assert [request[:6] for request in upstream.requests] == [b"GET /1", b"GET /2", b"early"]


async def test_little_is_kept_of_what_is_sent_too_early(tmp_path: Path) -> None:
    """A client that floods before the 101 is held back, and nothing of it is lost later."""
    size = 8 << 20
    may_answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await may_answer.wait()
        await peer.send(SWITCHED)
        assert len(await peer.reader.readexactly(size)) == size
        await peer.send(b"all")
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(HANDSHAKE + bytes(size))
        await until(lambda: bool(run.gateway._proxy.under_way))
        (connection,) = run.connections
        await until(lambda: connection._flow.is_paused)
        assert len(connection._reader.rest) < 1 << 20
        may_answer.set()
        assert (await client.read()).status == 101
        assert await exactly(client, 3) == b"all"


@pytest.mark.parametrize(
    "body", [post(b"hello"), post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")]
)
async def test_a_handshake_with_a_body(tmp_path: Path, body: bytes) -> None:
    """It is refused, and its upstream never sees where it might end."""
    request = body.replace(b"POST", b"GET").replace(
        b"Host", "\r\n".join(UPGRADE).encode() + b"\r\nHost"
    )
    async with switching() as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        answer = await client.ask(request)
        assert (answer.status, answer.get(b"Connection")) == (400, b"close")
        assert await client.at_end() == b""
        assert not upstream.peers


NO_HANDSHAKES = {
    "h2c": get(
        "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"
    ),
    "another as well": get("/", "Connection: Upgrade", "Upgrade: websocket, h2c"),
    "two fields": get("/", *UPGRADE, "Upgrade: h2c"),
    "another": get("/", "Connection: Upgrade", "Upgrade: TLS/1.0"),
    "not named by Connection": get("/", "Upgrade: websocket", KEY),
    "named by nothing": get("/", "Connection: keep-alive", "Upgrade: websocket", KEY),
    "HTTP/1.0": get("/", *UPGRADE, KEY).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "POST": post(b"", *UPGRADE, KEY),
    "HEAD": get("/", *UPGRADE, KEY).replace(b"GET", b"HEAD"),
}


async def test_what_is_no_handshake_is_a_plain_request(tmp_path: Path) -> None:
    """Its upstream sees no wish to switch, and what follows it is never another protocol."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        for name, request in NO_HANDSHAKES.items():
            client = await run.client()
            assert (await client.ask(request, is_head=name == "HEAD")).status == 200, name
            seen = upstream.requests.pop().lower()
            assert b"upgrade" not in seen, name
            assert b"http2-settings" not in seen, name


async def test_a_route_without_websockets(tmp_path: Path) -> None:
    """The upstream sees a plain request, its 101 would be invalid, and the client continues."""
    async with (
        answering(OK, SWITCHED) as upstream,
        running(tmp_path, upstream, route={"websocket": "off"}) as run,
    ):
        client = await run.client()
        assert (await client.ask(HANDSHAKE)).body == b"ok"
        assert b"pgrade" not in upstream.requests[0]
        assert (await client.ask(HANDSHAKE)).status == 502
        assert (await client.ask(HANDSHAKE)).status == 502


ODD_SWITCHES = {
    "another protocol": SWITCHED.replace(b"websocket", b"h2c"),
    "two protocols": SWITCHED.replace(b"websocket", b"websocket, h2c"),
    "no protocol": SWITCHED.replace(b"Upgrade: websocket\r\n", b""),
    "no Connection": SWITCHED.replace(b"Connection: Upgrade\r\n", b""),
    "another Connection": SWITCHED.replace(b"Connection: Upgrade", b"Connection: close"),
    "a length": SWITCHED.replace(b"Upgrade: w", b"Content-Length: 5\r\nUpgrade: w"),
    "chunks": SWITCHED.replace(b"Upgrade: w", b"Transfer-Encoding: chunked\r\nUpgrade: w"),
    "nothing asked for": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
}


@pytest.mark.parametrize("step", [0, 1])
async def test_a_101_that_was_not_asked_for(tmp_path: Path, step: int) -> None:
    """There is no tunnel: the client gets 502 and continues, the upstream's connection ends."""
    answers = [answer for odd in ODD_SWITCHES.values() for answer in (odd, OK)]
    async with answering(*answers, step=step) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        for name in ODD_SWITCHES:
            refused = await client.ask(HANDSHAKE)
            assert refused.status == 502, name
            assert json.loads(refused.body)["error"] == "protocol", name
            assert (await client.get()).body == b"ok", name
        assert len(upstream.peers) == len(ODD_SWITCHES) + 1


async def test_a_length_of_nothing_is_left_out(tmp_path: Path) -> None:
    """RFC 9110, section 8.6: 101 has no length, not even that of 0, which some servers write."""
    answer = SWITCHED.replace(b"Upgrade: w", b"Content-Length: 0\r\nUpgrade: w")
    async with switching(answer + b"hello") as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        got = await client.ask(HANDSHAKE)
        assert (got.status, got.all(b"Content-Length")) == (101, [])
        assert await exactly(client, 5) == b"hello"


async def test_an_interim_answer_before_the_switch(tmp_path: Path) -> None:
    """It is passed on, and the switch after it."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with (
        switching(early + SWITCHED + b"hello") as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await run.client()
        client.send(HANDSHAKE)
        assert [(await client.read()).status, (await client.read()).status] == [103, 101]
        assert await exactly(client, 5) == b"hello"


async def test_a_handshake_is_tried_again_elsewhere(tmp_path: Path) -> None:
    """Where the route's requests are; the time of a try is over when the tunnel is open."""

    async def script(peer: Peer) -> None:
        await peer.at_end()

    async with switching() as upstream, ScriptedUpstream(script) as silent:
        config: dict[str, Any] = {
            "upstreams": {"u": {"targets": [silent.url, upstream.url]}},
            "routes": {"/**": {"upstream": "u", "retry": {"when": "timeout", "timeout": "200ms"}}},
        }
        async with running(tmp_path, upstream, **config) as run:
            clients = [await open_tunnel(run) for _ in range(2)]
            await asyncio.sleep(0.3)
            for client in clients:
                client.send(b"hello")
                assert await exactly(client, 5) == b"hello"
            assert silent.peers
            assert len(upstream.peers) == 2


# The tunnel.


@pytest.mark.parametrize("step", [0, 1])
async def test_what_comes_with_the_101_is_delivered(tmp_path: Path, step: int) -> None:
    """The first frames may share a segment with the head, and the head may come in pieces."""
    frames = b"\x81\x05hello" * 500
    answer = SWITCHED + frames
    async with (
        answering(answer, step=step and 97) as upstream,
        running(tmp_path, upstream) as run,
    ):
        client = await open_tunnel(run)
        assert await exactly(client, len(frames)) == frames
        leave(upstream)


async def test_no_byte_is_changed_either_way(tmp_path: Path) -> None:
    """Frames, masked or not, with any bits set, and what is no frame at all, in any pieces."""
    dice = random.Random(4)
    data = b"".join(dice.randbytes(dice.choice((1, 2, 125, 126, 4096, 65_536))) for _ in range(200))
    async with switching() as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)

        async def send() -> None:
            at = 0
            while at < len(data):
                size = dice.choice((1, 7, 1000, 100_000))
                client.send(data[at : at + size])
                await client.writer.drain()
                at += size

        sender = asyncio.create_task(send())
        assert await exactly(client, len(data)) == data
        await sender


async def test_many_small_frames_in_a_row(tmp_path: Path) -> None:
    """16384 frames sent without waiting come back in order."""
    data = b"".join(b"\x82\x84mask%04d" % (number % 10_000) for number in range(16_384))
    async with switching() as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)
        client.send(data)
        assert await exactly(client, len(data)) == data


@pytest.mark.parametrize("side", ["client", "upstream"])
async def test_who_does_not_read_holds_the_other_back(tmp_path: Path, side: str) -> None:
    """The gateway takes in what fits its buffers; later all of it arrives."""
    block, count = bytes(1 << 18), 200
    taken = 0
    may_read = asyncio.Event()
    size = len(block) * count

    async def fill(writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        for _ in range(count):
            writer.write(block)
            await writer.drain()
            taken += 1

    async def discard(reader: asyncio.StreamReader) -> int:
        left = size
        while left and (data := await reader.read(min(left, 1 << 20))):
            left -= len(data)
        return size - left

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        if side == "client":
            await fill(peer.writer)
        else:
            await may_read.wait()
            assert await discard(peer.reader) == size
            await peer.send(b"all")
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)
        sender = None
        if side == "upstream":
            sender = asyncio.create_task(fill(client.writer))
        seen = -1
        while not taken or seen != taken:
            seen = taken
            await asyncio.sleep(0.1)
        # The kernel's buffers, and those of this test, hold some of it.
        assert taken < count // 2
        may_read.set()
        async with asyncio.timeout(PATIENCE_S):
            if sender is not None:
                await sender
                assert await client.reader.readexactly(3) == b"all"
            else:
                assert await discard(client.reader) == size


# The end.


async def test_half_a_tunnel_goes_on(tmp_path: Path) -> None:
    """A side that has ended its sending still receives from the other one."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        if peer.number == 0:
            heard = await peer.at_end()
            await peer.send(b"heard " + heard)
        else:
            await peer.send(b"that is all")
            peer.writer.write_eof()
            upstream.requests.append(await peer.at_end())
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        first, second = await open_tunnel(run), await open_tunnel(run)
        first.send(b"it")
        first.writer.write_eof()
        assert await first.at_end() == b"heard it"
        assert await second.at_end() == b"that is all"
        second.send(b"understood")
        second.writer.write_eof()
        await until(lambda: upstream.requests == [b"understood"])


async def test_an_upstream_that_switches_and_leaves(tmp_path: Path) -> None:
    """What it sent arrives, and then the end."""

    async def script(peer: Peer) -> None:
        await peer.head()
        peer.writer.write(SWITCHED + b"bye")
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)
        client.writer.write_eof()
        assert await client.at_end() == b"bye"


async def test_a_client_that_ends_its_sending_before_the_101(tmp_path: Path) -> None:
    """It gets what the upstream sends, and the upstream all that it has sent and the end of it."""

    async def script(peer: Peer) -> None:
        await peer.head()
        connection = run.connections[0]
        await until(lambda: connection._half_closed is not None)
        await peer.send(SWITCHED)
        heard = await peer.at_end()
        # Longer than a client that has ended is believed to be there without a sign.
        await asyncio.sleep(0.6)
        await peer.send(b"heard " + heard)
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(HANDSHAKE + b"early")
        client.writer.write_eof()
        assert (await client.read()).status == 101
        assert await client.at_end() == b"heard early"


@pytest.mark.parametrize("side", ["client", "upstream"])
async def test_a_reset_becomes_a_reset(tmp_path: Path, side: str) -> None:
    """A connection that breaks off does not look like one that ended in order."""
    ends: list[BaseException | None] = []

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        await peer.reader.readexactly(2)
        if side == "upstream":
            peer.reset()
            return
        await peer.send(b"go")
        try:
            await peer.reader.read()
            ends.append(None)
        except ConnectionResetError as error:
            ends.append(error)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)
        client.send(b"hi")
        if side == "client":
            assert await exactly(client, 2) == b"go"
            client.reset()
            await until(lambda: bool(ends))
            assert isinstance(ends[0], ConnectionResetError)
        else:
            with pytest.raises(ConnectionResetError):
                await client.at_end()


async def test_a_reset_is_seen_while_the_other_side_does_not_read(tmp_path: Path) -> None:
    """A client that is held back and leaves is not waited for: its place is free."""
    leaves = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        await leaves.wait()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await open_tunnel(run)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while True:
                    client.send(bytes(1 << 18))
                    await client.writer.drain()
        client.reset()
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)
        leaves.set()


async def test_a_client_that_leaves_before_the_101(tmp_path: Path) -> None:
    """Its upstream is told immediately."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.head())
        await peer.at_end()
        upstream.requests.append(b"gone")

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(HANDSHAKE)
        await until(lambda: len(upstream.requests) == 1)
        client.close()
        await until(lambda: upstream.requests[1:] == [b"gone"])


async def test_a_silent_tunnel_is_closed(tmp_path: Path) -> None:
    """Traffic either way counts, other time limits do not; the log has the reason."""
    brief = "300ms"
    config: dict[str, Any] = {
        "u": {"timeouts": {"tunnel": "1500ms", "idle": brief, "first_byte": "2s", "total": brief}},
        "server": {"keepalive_timeout": brief, "body_timeout": brief, "header_timeout": "300ms"},
    }
    lines: list[str] = []
    async with switching() as upstream, running(tmp_path, upstream, **config) as run:
        run.gateway._proxy._driver.access_log = AccessLog(lines.append, "json")
        client = await open_tunnel(run)
        loop = asyncio.get_running_loop()
        for _ in range(4):
            await asyncio.sleep(0.5)
            client.send(b"x")
            assert await exactly(client, 1) == b"x"
        last = loop.time()
        assert await client.at_end() == b""
        assert loop.time() - last >= 1.4
        await until(lambda: bool(lines))
    line = json.loads(lines[0])
    assert (line["status"], line["error"]) == (101, "tunnel_idle")


async def test_half_a_tunnel_may_be_silent_for_less(tmp_path: Path) -> None:
    """A side that has ended may have left, so the other one has only the time of an answer."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        upstream.requests.append(await peer.at_end())
        await peer.send(b"half")

    config: dict[str, Any] = {"u": {"timeouts": {"idle": "400ms"}}}
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream, **config) as run:
        client = await open_tunnel(run)
        await asyncio.sleep(0.8)
        client.writer.write_eof()
        assert await client.at_end() == b"half"
        assert upstream.requests == [b""]


async def test_a_silent_tunnel_to_a_client_that_does_not_read(tmp_path: Path) -> None:
    """What was not read in time is no reason to keep the connections."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(SWITCHED)
        await peer.send(bytes(16 << 20))

    config: dict[str, Any] = {"u": {"timeouts": {"tunnel": "100ms"}}}
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream, **config) as run:
        client = await run.client(receive_buffer=4096)
        assert (await client.ask(HANDSHAKE)).status == 101
        await until(lambda: not run.gateway._proxy._clients, PATIENCE_S)


async def test_stopping_keeps_tunnels_for_a_while(tmp_path: Path) -> None:
    """Until the time limit, open tunnels continue; then they are closed."""
    async with switching() as upstream, running(tmp_path, upstream) as run:
        clients = [await open_tunnel(run) for _ in range(20)]
        drained = asyncio.create_task(run.gateway._proxy.drain(1.5))
        await asyncio.sleep(0.05)
        for client in clients:
            client.send(b"still here")
            assert await exactly(client, 10) == b"still here"
        # One that ends in order meanwhile is not cut off.
        clients[0].writer.write_eof()
        assert await clients[0].at_end() == b""
        assert await drained == 19
        for client in clients[1:]:
            assert await client.is_closed()


# Limits, log and metrics.


async def test_a_websocket_is_counted_once(tmp_path: Path) -> None:
    """At its handshake, which may be refused like any request; then the connection persists."""
    config: dict[str, Any] = {"route": {"limit": "2/h"}}
    async with switching() as upstream, running(tmp_path, upstream, **config) as run:
        first = await open_tunnel(run)
        first.send(b"x" * 100)
        assert await exactly(first, 100) == b"x" * 100
        await open_tunnel(run)
        third = await run.client()
        for _ in range(3):
            refused = await third.ask(HANDSHAKE)
            assert (refused.status, refused.get(b"Connection")) == (429, b"")
        assert (await third.get()).status == 429
        assert len(upstream.peers) == 2


async def test_a_websocket_has_its_place_until_it_is_closed(tmp_path: Path) -> None:
    """A limit such as `1 at once` counts it for as long as it is open."""
    config: dict[str, Any] = {"route": {"limit": "1 at once per all"}}
    async with switching() as upstream, running(tmp_path, upstream, **config) as run:
        first = await open_tunnel(run)
        other = await run.client()
        assert (await other.ask(HANDSHAKE)).status == 429
        first.close()
        await until(lambda: not run.gateway._proxy.under_way)
        assert (await other.ask(HANDSHAKE)).status == 101


@pytest.mark.parametrize("form", ["json", "text"])
async def test_what_is_told_of_a_websocket(tmp_path: Path, form: Literal["json", "text"]) -> None:
    """The gauge while it is open, then one line with the bytes of both ways; RateLimit fields."""
    lines: list[str] = []
    config: dict[str, Any] = {"route": {"limit": "100/s"}}
    async with switching() as upstream, running(tmp_path, upstream, **config) as run:
        run.gateway._proxy._driver.access_log = AccessLog(lines.append, form)
        client = await run.client()
        answer = await client.ask(HANDSHAKE)
        assert answer.get(b"RateLimit").startswith(b'"/**";r=99')
        metrics = run.upstream().metrics
        client.send(b"12345")
        assert await exactly(client, 5) == b"12345"
        assert (metrics.tunnels, metrics.tunnel_received, metrics.tunnel_sent) == (1, 5, 5)
        assert run.gateway.metrics.route("/**").statuses[101] == 1
        client.close()
        await until(lambda: bool(lines))
        assert metrics.tunnels == 0
        assert run.gateway.metrics.route("/**").statuses == {101: 1}
        assert run.gateway.metrics.clients_left == 0
    (line,) = lines
    if form == "json":
        values = json.loads(line)
        told = [values[key] for key in ("status", "bytes", "bytes_received", "decision")]
        assert told == [101, 5, 5, "pass"]
        assert "error" not in values
    else:
        assert " 101 pass " in line
        assert line.endswith(" bytes_received=5 bytes=5\n")


# Over TLS, which has no half of a connection.


@pytest.mark.parametrize("speaks", ["client", "upstream", "both"])
async def test_a_tunnel_over_tls(tmp_path: Path, speaks: str) -> None:
    """No byte is changed, and the end of one side is the end."""
    authority = Authority(tmp_path)
    issued = authority.issue("a.test", "127.0.0.1")
    data = random.Random(8).randbytes(3 << 20)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED)
        # Gives back what it gets, until it is told that this was enough.
        got = b""
        while not got.endswith(b"enough") and (piece := await reader.read(1 << 16)):
            writer.write(piece)
            got = got[-6:] + piece
            await writer.drain()
        writer.close()

    own = None if speaks == "client" else authority.server_context(issued)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own)
    scheme = "http" if speaks == "client" else "https"
    config: dict[str, Any] = {
        "upstreams": {
            "u": {
                "targets": f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}",
                **({} if speaks == "client" else {"tls": {"ca": str(authority.file)}}),
            }
        }
    }
    if speaks != "upstream":
        tls = {"cert": str(issued.cert), "key": str(issued.key)}
        config["listen"] = {"address": "127.0.0.1:0", "tls": tls}
    context = None if speaks == "upstream" else authority.client_context()
    name = None if speaks == "upstream" else "a.test"
    async with server, running(tmp_path, "http://unused", **config) as run:
        port = run.gateway.addresses[0].port
        for says_enough in (True, False):
            client = Client(
                *await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            )
            run.clients.append(client)
            assert (await client.ask(HANDSHAKE)).status == 101
            client.send(data)
            assert await exactly(client, len(data)) == data
            if says_enough:
                client.send(b"enough")
                assert await client.at_end() == b"enough"
            else:
                client.close()
            await until(lambda: not run.gateway._proxy.under_way)
