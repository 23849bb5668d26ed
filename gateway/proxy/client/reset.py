"""Breaking a connection off, so that nobody takes it for one that ended in order."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress


def reset(transport: asyncio.Transport) -> None:
    """Close at once; the peer sees a reset (RST), where the socket can do that."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
