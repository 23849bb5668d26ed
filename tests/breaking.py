"""Breaking connections off, whatever has become of them."""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.trsock import TransportSocket


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once.

    `Transport.abort` alone fails in asyncio (an AttributeError, as of 3.14) on a transport that
    was closed with bytes unsent and has sent them since.
    """
    if _is_open(writer):
        writer.transport.abort()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close at once; the peer sees a reset (RST)."""
    if _is_open(writer):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


def _is_open(writer: asyncio.StreamWriter) -> bool:
    sock: TransportSocket = writer.get_extra_info("socket")
    return sock.fileno() != -1
