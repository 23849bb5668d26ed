"""ZeroMQ's sockets in an event loop: who may stay connected, on real connections."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest

from gateway.systems.smockron.zeromq import Frames, Sockets
from gateway.systems.smockron.zeromq_peers import Closer, Peer
from tests.processes import LOOPBACKS

WAIT_S: Final = 20.0
GREETING_2: Final = b"\xff" + bytes(8) + b"\x7f\x01\x01" + b"\0\0"
"""A PUB socket of ZMTP 2.0, as ZeroMQ 3 speaks it, and its empty identity."""


async def test_who_does_not_say_what_it_speaks_is_closed() -> None:
    """After a while; a peer of ZMTP 2.0 that is silent from then on is not."""
    heard: asyncio.Queue[Frames] = asyncio.Queue()
    noted: Counter[Peer] = Counter()

    def take(messages: Sequence[Frames]) -> None:
        for frames in messages:
            heard.put_nowait(frames)

    def note(peer: Peer) -> None:
        noted[peer] += 1

    # The old one says what it speaks in this time.
    sockets = Sockets(handshake_ms=1000)
    try:
        end = sockets.subscriber(take, [b""])
        sockets.watch_peers(end, 10, note)
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        end.listen(bound)
        port = end.port
        end.start()
        old, old_writer = await asyncio.open_connection("127.0.0.1", port)
        old_writer.write(GREETING_2)
        async with asyncio.timeout(WAIT_S):
            await old.readexactly(12)
            silent, writer = await asyncio.open_connection("127.0.0.1", port)
            while await silent.read(1024):
                pass
            old_writer.write(b"\0\5hello")
            assert await heard.get() == [b"hello"]
            while not noted[Peer.HAS_GONE]:  # noqa: ASYNC110 - another thread says so
                await asyncio.sleep(0.01)
        assert noted == {Peer.HAS_COME: 2, Peer.HAS_GONE: 1}
        writer.close()
        old_writer.close()
    finally:
        await sockets.aclose()


@pytest.mark.parametrize("host", LOOPBACKS)
def test_only_connections_to_the_port_are_ended(host: str) -> None:
    """A descriptor that is of something else by now, or of nothing, is left alone."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as one,
        socket.create_server((host, 0), family=family) as two,
        socket.create_connection(one.getsockname()[:2]) as client,
        socket.create_connection(two.getsockname()[:2]) as other,
    ):
        mine, theirs = one.accept()[0], two.accept()[0]
        port = one.getsockname()[1]
        read_end, write_end = os.pipe()
        closer = Closer()
        try:
            for descriptor in (theirs.fileno(), read_end, 1 << 20, -1, mine.fileno()):
                closer.end(descriptor, port)
            assert client.recv(1) == b""
            theirs.send(b"!")
            assert other.recv(1) == b"!"
            os.write(write_end, b"?")
            assert os.read(read_end, 1) == b"?"
        finally:
            closer.close()
            os.close(read_end)
            os.close(write_end)
            mine.close()
            theirs.close()
