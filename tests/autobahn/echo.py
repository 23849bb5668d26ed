"""A WebSocket server that sends every message back: `python -m tests.autobahn.echo PORT`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


async def echo(connection: ServerConnection) -> None:
    """Send back what comes, until one side closes."""
    with suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def main(port: int) -> None:
    """Serve for ever, with permessage-deflate for those that offer it."""
    # The suite has messages of 16 MiB, and pings of the server's own would be in its way.
    async with serve(echo, "127.0.0.1", port, max_size=None, ping_interval=None):
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
