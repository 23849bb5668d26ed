"""A listener whose connections are served at once: the event loop's own server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from gateway.base.tasks import Tasks
from gateway.net.binding import BACKLOG
from gateway.proxy.client.acceptor import Acceptor
from gateway.proxy.client.protocol_choice import as_protocol


class PlainListener:
    """Accepts connections on one socket, in clear text and without a PROXY header.

    Args:
        sock: bound to an address; owned by the listener from now on.
        acceptor: creates the connections.
    """

    def __init__(self, sock: socket.socket, acceptor: Acceptor) -> None:
        self._socket = sock
        self._acceptor = acceptor
        self._server: asyncio.Server | None = None
        self._tasks = Tasks()
        self._is_closed = False

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Return the socket, unless it is closed."""
        return () if self._is_closed else (self._socket,)

    @property
    def is_busy(self) -> bool:
        """Return whether connections are not served yet."""
        return bool(len(self._tasks))

    async def start_serving(self) -> None:
        """Start accepting connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._make, sock=self._socket, backlog=BACKLOG, start_serving=False
        )
        await self._server.start_serving()

    def _make(self) -> asyncio.Protocol:
        return as_protocol(self._acceptor())

    def retire(self) -> None:
        """Accept what has connected by now, and no more."""
        if self._is_closed or self._server is None:
            self.stop()
            return
        # The server closes its socket, and connections that wait there would be reset.
        waiting = self._socket.dup()
        self.stop()
        loop = asyncio.get_running_loop()
        with waiting, suppress(OSError):
            waiting.setblocking(False)
            for _ in range(BACKLOG):
                sock, _ = waiting.accept()
                self._tasks.start(self._serve(loop, sock))

    async def _serve(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        with suppress(OSError):
            connection = self._acceptor()
            await loop.connect_accepted_socket(lambda: as_protocol(connection), sock)
            # Like those that were open when the listener was removed.
            connection.close_when_idle()

    def close(self) -> None:
        """Accept no more; drop those that are not served yet."""
        self.stop()
        self._tasks.cancel()

    def stop(self) -> None:
        """Accept no more; those that are not served yet go on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        self._socket.close()
