"""A WebSocket server answers the same through the gateway as without it, byte by byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.e2e.websocket_cases import CATEGORIES, Case
from tests.processes import Gateway

TIMEOUT_S = 20.0
AT_ONCE = 16

ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HANDSHAKE = (
    "GET /echo HTTP/1.1\r\nHost: ws.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{offer}\r\n"
)


class _Ports(NamedTuple):
    """Where the server is, and where the gateway in front of it."""

    direct: int
    through: int


async def _echo(connection: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def _serve(ready: asyncio.Future[int], stop: asyncio.Event) -> None:
    # Pings of its own would come whenever they like.
    async with serve(_echo, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
        ready.set_result(server.sockets[0].getsockname()[1])
        await stop.wait()


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Ports]:
    """An echo server of the `websockets` library, with permessage-deflate, and a gateway."""
    loop = asyncio.new_event_loop()
    ready: asyncio.Future[int] = loop.create_future()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve(ready, stop)))
    thread.start()

    async def port() -> int:
        return await ready

    direct = asyncio.run_coroutine_threadsafe(port(), loop).result(TIMEOUT_S)
    config = f"routes:\n  /**: {{ upstream: http://127.0.0.1:{direct}, limit: 100000/s }}\n"
    gateway = Gateway.start(config, tmp_path_factory.mktemp("gateway"))
    yield _Ports(direct, gateway.port)
    gateway.stop()
    loop.call_soon_threadsafe(stop.set)
    thread.join(TIMEOUT_S)
    loop.close()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """One frame of a server, whole: it has no mask."""
    head = await reader.readexactly(2)
    size = head[1]
    if size >= 126:
        length = await reader.readexactly(2 if size == 126 else 8)
        head += length
        size = int.from_bytes(length, "big")
    return head + await reader.readexactly(size)


async def _converse(port: int, case: Case) -> tuple[list[bytes], list[bytes]]:
    """Have a conversation; returns what was agreed on in the handshake, and all that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    offer = f"Sec-WebSocket-Extensions: {case.offer}\r\n" if case.offer else ""
    writer.write(HANDSHAKE.format(offer=offer).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    agreed = [line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket")]
    assert b"Sec-WebSocket-Accept: " + ACCEPT in agreed
    heard = []
    for turn in case.turns:
        step = case.piece or max(len(turn.data), 1)

        async def send(data: bytes = turn.data, step: int = step) -> None:
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await writer.drain()

        # An echo may come while its message is still being sent.
        sending = asyncio.create_task(send())
        heard += [await _read_frame(reader) for _ in range(turn.frames)]
        await sending
    heard.append(await reader.read())
    writer.close()
    return agreed, heard


async def _try(ports: _Ports, case: Case, places: asyncio.Semaphore) -> str:
    """Converse with and without the gateway; returns what differs, empty if nothing does."""
    async with places, asyncio.timeout(TIMEOUT_S):
        direct = await _converse(ports.direct, case)
        through = await _converse(ports.through, case)
    # The server's close frame: an opcode, a length, a code.
    last = direct[1][-1]
    code = int.from_bytes(last[2:4], "big") if last[1:2] > b"\x00" else 0
    if not last.startswith(b"\x88") or code != case.code:
        return f"{case.name}: the server itself closes with {last[:20]!r}"
    return "" if direct == through else f"{case.name}: {direct!r:.300} is {through!r:.300}"


@pytest.mark.parametrize("category", CATEGORIES)
async def test_the_gateway_changes_nothing(ports: _Ports, category: str) -> None:
    """What is valid comes back, what is not closes with the same code, to the last byte."""
    places = asyncio.Semaphore(AT_ONCE)
    tries = [_try(ports, case, places) for case in CATEGORIES[category]()]
    different = list(filter(None, await asyncio.gather(*tries)))

    assert not different, "\n".join(different)
