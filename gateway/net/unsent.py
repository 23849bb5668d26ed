"""Bytes written to a client but not yet acknowledged."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """Return the bytes that were sent and have not reached the client; 0 if it has left."""
    if transport is None:
        return 0
    size = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sock is None or (not size and transport.is_closing()):
        # The socket may already be closed.
        return size
    # The transport's buffer shrinks late and in large pieces, the kernel's with every
    # acknowledgement (tcp(7), SIOCOUTQ).
    kept: bytes = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return size + int(struct.unpack("i", kept)[0])
