"""Operations on clients' sockets besides reading and writing."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

UNSENT_MAX: Final = 128 * 1024
"""Bytes that the kernel holds for a client before it lets the gateway wait."""


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of a client; that of this machine if it came by a Unix socket."""
    name = transport.get_extra_info("peername")
    return name[0] if isinstance(name, tuple) else "127.0.0.1"


def set_options(transport: asyncio.BaseTransport) -> None:
    """Set what a client's connection needs, if it is one of TCP."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    # asyncio does not do so for sockets that a listener has accepted.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Without it the kernel takes megabytes at a time, and a slow reader looks like one that has
    # stopped.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_MAX)


def end_writing(transport: asyncio.Transport) -> None:
    """Signal the end of sending to a client, if the transport can do this without closing."""
    if transport.can_write_eof():
        # The client may have reset the connection, which the transport reports a turn later.
        with suppress(OSError):
            transport.write_eof()
