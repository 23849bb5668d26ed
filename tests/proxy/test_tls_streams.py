"""Much data through TLS on both sides: whole, held back where it must be, both ways at once."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tests.breaking import abort
from tests.certificates import Authority
from tests.proxy.wire import Client, Running, get, running

SIZE = 3 << 20
DATA = Random(6).randbytes(SIZE)
HANDSHAKE = get(
    "/ws",
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


@asynccontextmanager
async def secured(folder: Path, authority: Authority) -> AsyncIterator[Running]:
    """A gateway that speaks TLS with clients, and with an upstream that serves `_serve`."""
    shown = authority.issue("a.test", "127.0.0.1")
    context = authority.server_context(shown)
    tls = {"cert": str(shown.cert), "key": str(shown.key)}
    settings: dict[str, Any] = {
        "listen": {"address": "127.0.0.1:0", "tls": tls},
        "u": {"tls": {"ca": str(authority.file)}},
    }
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await _serve(reader, writer)
        abort(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running(folder, url, **settings) as run:
        yield run
    for writer in writers:
        abort(writer)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give `DATA` of known length or in chunks, take an upload, or echo after an upgrade."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1]
        if path == b"/ws":
            writer.write(SWITCHED)
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            return
        if path == b"/upload":
            hashed = sha256(await reader.readexactly(SIZE)).hexdigest().encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + hashed)
        elif path == b"/chunks":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, SIZE, 10_007):
                piece = DATA[at : at + 10_007]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        elif path == b"/broken":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
            await writer.drain()
            return
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
            writer.write(DATA)
        await writer.drain()


async def connect(run: Running, authority: Authority) -> Client:
    """A client over TLS, which reads no more than it has to."""
    port = run.gateway.addresses[0].port
    context = authority.client_context()
    opened = asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="a.test", limit=1 << 16
    )
    client = Client(*await opened)
    run.clients.append(client)
    return client


async def test_large_bodies(tmp_path: Path, authority: Authority) -> None:
    """They arrive whole, either way, of known length and in chunks, one after the other."""
    async with secured(tmp_path, authority) as run:
        client = await connect(run, authority)
        for path in ("/", "/chunks", "/"):
            assert (await client.get(path)).body == DATA
        client.send(b"PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % SIZE)
        for at in range(0, SIZE, 50_021):
            client.send(DATA[at : at + 50_021])
            await client.writer.drain()
        assert (await client.read()).body == sha256(DATA).hexdigest().encode()


async def test_a_slow_reader(tmp_path: Path, authority: Authority) -> None:
    """A body waits for its reader, and others are served meanwhile."""
    async with secured(tmp_path, authority) as run:
        slow, quick = await connect(run, authority), await connect(run, authority)
        slow.send(get("/chunks"))
        assert (await quick.get("/")).body == DATA
        assert (await slow.read()).body == DATA


async def test_the_last_answer_of_a_connection(tmp_path: Path, authority: Authority) -> None:
    """It arrives whole, however long it is looked at before it is read, and TLS ends in order."""
    async with secured(tmp_path, authority) as run:
        client = await connect(run, authority)
        client.send(get("/", "Connection: close"))
        await asyncio.sleep(0.3)
        assert (await client.read()).body == DATA
        assert await client.at_end() == b""


async def test_an_answer_that_breaks_off(tmp_path: Path, authority: Authority) -> None:
    """It is not made to look whole: TLS does not end in order either."""
    async with secured(tmp_path, authority) as run:
        client = await connect(run, authority)
        answer = await client.get("/broken")
        assert (answer.body, answer.is_whole) == (b"", False)


async def test_a_websocket(tmp_path: Path, authority: Authority) -> None:
    """Bytes go both ways at once between two ends that both speak TLS."""
    async with secured(tmp_path, authority) as run:
        client = await connect(run, authority)
        assert (await client.ask(HANDSHAKE)).status == 101

        async def send() -> None:
            for at in range(0, SIZE, 50_021):
                client.send(DATA[at : at + 50_021])
                await client.writer.drain()

        async with asyncio.timeout(20):
            _, echoed = await asyncio.gather(send(), client.reader.readexactly(SIZE))
        assert echoed == DATA
