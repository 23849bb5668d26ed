"""Answers that are made while they are read: server-sent events, long polls, endless streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.wire import PATIENCE_S, Peer, ScriptedUpstream, get, running
from tests.servers import until

EVENTS = [b"data: %d\n\n" % number for number in range(5)] + [b": still here\n\n", b"data: end\n\n"]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
LEAVES_WITHIN_S = 10.0
"""Far below any time limit; half a second is what the gateway takes for it."""


def chunk(data: bytes) -> bytes:
    """A chunk of a body (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("framing", ["chunks", "length", "close"])
async def test_each_event_is_here_before_the_next_is_made(
    tmp_path: Path, framing: str, version: bytes
) -> None:
    """Nothing waits for more of it, and not a byte is added, changed or compressed."""
    heard = asyncio.Event()
    whole = b"".join(EVENTS)
    fields = {
        "chunks": b"Transfer-Encoding: chunked\r\n",
        "length": b"Content-Length: %d\r\n" % len(whole),
        "close": b"Connection: close\r\n",
    }

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.head())
        await peer.send(HEAD + fields[framing] + b"\r\n")
        for event in EVENTS:
            await peer.send(chunk(event) if framing == "chunks" else event)
            await heard.wait()
            heard.clear()
        await peer.send(b"0\r\n\r\n" if framing == "chunks" else b"")
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        request = get("/", "Accept: text/event-stream", "Accept-Encoding: gzip, br")
        client.send(request.replace(b"HTTP/1.1", b"HTTP/" + version))
        async with asyncio.timeout(PATIENCE_S):
            head = await client.reader.readuntil(b"\r\n\r\n")
            is_chunked = b"Transfer-Encoding: chunked\r\n" in head
            for event in EVENTS:
                wanted = chunk(event) if is_chunked else event
                assert await client.reader.readexactly(len(wanted)) == wanted
                heard.set()
            rest = b"0\r\n\r\n" if is_chunked else b""
            assert await client.reader.readexactly(len(rest)) == rest
        assert b"Content-Type: text/event-stream\r\n" in head
        assert b"Content-Encoding" not in head
        assert is_chunked == (version == b"1.1" and framing != "length")
        assert b"Accept-Encoding: gzip, br\r\n" in upstream.requests[0]


@pytest.mark.parametrize("is_silent", [True, False])
async def test_who_leaves_a_stream_ends_it(tmp_path: Path, is_silent: bool) -> None:
    """The upstream is told soon, whether it has anything to send meanwhile or not."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(EVENTS[0]))

        async def send() -> None:
            while not peer.writer.is_closing() and not is_silent:
                await peer.send(chunk(EVENTS[1]))
                await asyncio.sleep(0.01)

        sending = asyncio.create_task(send())
        await peer.at_end()
        ended.set()
        peer.close()
        await sending

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        client.send(get())
        async with asyncio.timeout(PATIENCE_S):
            await client.reader.readuntil(EVENTS[0])
        client.close()
        async with asyncio.timeout(LEAVES_WITHIN_S):
            await ended.wait()
        await until(lambda: run.gateway.metrics.clients_left == 1)


async def test_a_stream_lasts_as_long_as_it_is_never_silent_for_long(tmp_path: Path) -> None:
    """`idle` is for the time between two events; it may differ from upstream to upstream."""

    async def script(peer: Peer) -> None:
        while await peer.head():
            await peer.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for event in EVENTS:
                await peer.send(chunk(event))
                await asyncio.sleep(0.35)
            await peer.send(b"0\r\n\r\n")

    async with ScriptedUpstream(script) as upstream:
        config: dict[str, Any] = {
            "upstreams": {
                "u": {"targets": upstream.url, "timeouts": {"idle": "1500ms"}},
                "brief": {"targets": upstream.url, "timeouts": {"idle": "40ms"}},
            },
            "routes": {"/**": {"upstream": "u"}, "/brief": {"upstream": "brief"}},
        }
        async with running(tmp_path, upstream, **config) as run:
            patient, brief = await run.client(), await run.client()
            whole, part = await asyncio.gather(patient.get(), brief.get("/brief"))
        assert (whole.body, whole.is_whole) == (b"".join(EVENTS), True)
        assert not part.is_whole


async def test_a_long_poll_has_the_time_of_a_first_byte(tmp_path: Path) -> None:
    """Waiting for the first data of an answer is not an idle time within it."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await asyncio.sleep(0.3)
        await peer.send(HEAD + b"Content-Length: 4\r\n\r\nnews")
        await peer.at_end()

    config: dict[str, Any] = {
        "u": {"timeouts": {"first_byte": "5s", "idle": "60ms"}},
        "server": {"keepalive_timeout": "60ms", "body_timeout": "60ms"},
    }
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream, **config) as run:
        client = await run.client()
        assert (await client.get()).body == b"news"
