"""Closing a listening socket without resetting the connections that come meanwhile."""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from typing import Final

_SO_ATTACH_FILTER: Final = 26

_LOAD_BYTE: Final = 0x30
_AND: Final = 0x54
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_FLAGS_AT: Final = 13
_SYN: Final = 0x02
_SYN_AND_ACK: Final = 0x12
_ALL: Final = 0xFFFF_FFFF

_PROGRAM: Final = b"".join(
    struct.pack("=HBBI", *one)
    for one in (
        (_LOAD_BYTE, 0, 0, _FLAGS_AT),
        (_AND, 0, 0, _SYN_AND_ACK),
        (_JUMP_IF_EQUAL, 0, 1, _SYN),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _ALL),
    )
)
"""Classic BPF: drop segments that begin a connection, and let all others pass."""


def begin_no_more(listening: socket.socket) -> None:
    """Let the kernel ignore new connections to a listening socket, in all processes that have it.

    Those that it has taken by now can still be accepted, and none is added until the socket is
    closed, which would reset it. A client that comes meanwhile tries again after a second, as after
    a packet that was lost, and reaches whatever listens on its address then. Does nothing for
    sockets that are not of TCP, or where the kernel cannot do so: it is Linux that can.
    """
    if listening.family not in (socket.AF_INET, socket.AF_INET6):
        return
    program = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM))
    # struct sock_fprog: how many instructions of eight bytes, and where they are.
    described = struct.pack("@HP", len(_PROGRAM) // 8, ctypes.addressof(program))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
