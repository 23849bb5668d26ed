"""A connection to a store whose answers are matched by their order."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.clock import monotonic_us
from gateway.base.errors import StoreUnavailable
from gateway.stores.redis.pipe import Pipe


async def test_a_connection_that_ended_by_itself_can_be_closed() -> None:
    """Also when the server ended its side first and read what was on its way to it afterwards."""
    loop = asyncio.get_running_loop()
    has_read = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write_eof()
        await asyncio.sleep(0)
        await reader.read()
        writer.close()
        has_read.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, pipe = await loop.create_connection(lambda: Pipe(monotonic_us), "127.0.0.1", port)
        (answer,) = pipe.call((b"PING", bytes(1 << 24)))
        await asyncio.wait_for(pipe.lost, 20)
        await has_read.wait()
        with pytest.raises(StoreUnavailable):
            await answer
        pipe.close()
        assert not pipe.is_open
        with pytest.raises(StoreUnavailable):
            pipe.call((b"PING",))
