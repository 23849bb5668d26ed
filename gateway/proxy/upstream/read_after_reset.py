"""Read what is left in the socket of a connection that has just failed.

A peer that answers early and closes resets the connection as soon as it is sent more. Then a
write fails while the answer is unread in the socket, and the event loop closes without reading it.
Linux keeps what came before the reset.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Final

PIECE: Final = 256 * 1024
"""Bytes per read."""


def unread_pieces(transport: asyncio.BaseTransport) -> Iterator[bytes]:
    """Return the unread pieces; none if TLS would have to decrypt them.

    Args:
        transport: of a connection whose `connection_lost` is being called: its socket is still
            open.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("ssl_object") is not None:
        return
    try:
        while data := os.read(sock.fileno(), PIECE):
            yield data
    except OSError:
        # The reset, after everything that came before it.
        return
