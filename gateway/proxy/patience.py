"""How long a client may take, and what counts as progress."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import NamedTuple


class Patience(NamedTuple):
    """How long a client may take, in seconds.

    Attributes:
        head: to send the head of a request.
        body: between two pieces of a body, either way.
        idle: between an answer and the next request.
        linger: to read an answer while it is still sending something that nobody wants.
        rate: bytes that it is to send of a body or take of an answer in each of them, on the
            average and once the time for a piece is over; 0 for any.
    """

    head: float
    body: float
    idle: float
    linger: float
    rate: float

    def for_body(self, size: int, waited_s: float) -> float:
        """How long the next piece of a request's body may be waited for, in seconds.

        Whoever sends a byte now and then is within `body` each time; in all, every byte brings
        only as much time as it may take (as MinRate of Apache's mod_reqtimeout).

        Args:
            size: bytes of the body that are here already.
            waited_s: how long they were waited for.
        """
        if not self.rate:
            return self.body
        return max(min(self.body, self.body + size / self.rate - waited_s), 0)

    def is_progress(self, taken: int) -> bool:
        """Whether so many bytes, taken within `body`, give a reader more time."""
        return taken >= max(self.rate * self.body, 1)


def unread(transport: asyncio.Transport | None) -> int:
    """Bytes that were sent and have not reached the client; 0 if nobody is there."""
    if transport is None:
        return 0
    size = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sock is None or (not size and transport.is_closing()):
        # The socket may be closed already.
        return size
    # Our own buffer shrinks late and in large pieces, the kernel's with every acknowledgement
    # (tcp(7), SIOCOUTQ).
    kept: bytes = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return size + int(struct.unpack("i", kept)[0])
