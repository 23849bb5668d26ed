"""Makes the connection objects of clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp.web_server import Server

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.routing.spelling import NOTHING_RESERVED, Reserved

if TYPE_CHECKING:
    from gateway.proxy.server import Proxy


class ProxyServer(Server):
    """Makes a `ClientConnection` for each client.

    Attributes:
        reserved: as in `ClientConnection`.
    """

    def __init__(
        self,
        proxy: Proxy,
        patience: ClientTimeouts,
        *,
        parser: RequestParser,
        max_head: int,
        reserved: Reserved = NOTHING_RESERVED,
    ) -> None:
        super().__init__(proxy.unused_handler)
        self._parser = parser
        self._max_head = max_head
        self.reserved = reserved
        self._proxy = proxy
        self._patience = patience
        self._options: dict[str, Any] = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            # Time limits are the proxy's; aiohttp's timer would be a second one.
            "keepalive_timeout": 0,
        }

    def __call__(self) -> ClientConnection:
        """A new connection."""
        return ClientConnection(
            self, self._proxy, self._patience, self._parser, self._max_head, **self._options
        )

    def of_listener(self, https_port: int, peer: str = "") -> ClientConnection:
        """A new connection at a listener.

        Args:
            https_port: as in `ClientConnection`.
            peer: the address that somebody else has told; empty for that of the socket.
        """
        connection = self()
        connection.https_port = https_port
        connection.peer = peer
        return connection
