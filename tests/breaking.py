"""Breaking connections off, whatever has become of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once, if it is not closed."""
    # What asyncio raises (as of 3.14) where a transport was closed with bytes unsent, and has
    # sent them since.
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close at once; the peer sees a reset (RST)."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    abort(writer)
