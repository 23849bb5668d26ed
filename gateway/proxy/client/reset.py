"""Abort a connection, so that the peer cannot mistake it for one that ended in order."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress


def reset(transport: asyncio.Transport) -> None:
    """Close immediately; the peer sees a reset (RST), if the socket supports that."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
