"""Makes the connection objects of clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from aiohttp.web_server import Server

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.routing.spelling import NOTHING_RESERVED, Reserved

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.proxy.client.handler import Handler


class ProxyServer(Server):
    """Makes a `ClientConnection` for each client.

    Args:
        handler: serves the requests of all connections.
        patience: how long clients may take.
        parser: reads heads.
        max_head: bytes that the head of a request may have.
        reserved: as in `ClientConnection`.
    """

    def __init__(
        self,
        handler: Handler[ClientConnection],
        patience: ClientTimeouts,
        *,
        parser: RequestParser,
        max_head: int,
        reserved: Reserved = NOTHING_RESERVED,
    ) -> None:
        super().__init__(_unused_handler)
        self._parser = parser
        self._max_head = max_head
        self._reserved = reserved
        self._handler = handler
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
            self,
            self._handler,
            self._patience,
            self._parser,
            self._max_head,
            self._reserved,
            **self._options,
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


async def _unused_handler(request: web.BaseRequest) -> NoReturn:
    """Stand for the handler of aiohttp's own loop, which `ClientConnection` replaces."""
    raise AssertionError(request)
