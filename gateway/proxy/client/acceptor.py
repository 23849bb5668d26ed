"""Create the connection objects of clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.handler import ConnectionSettings, Handler
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.routing.spelling import NOTHING_RESERVED, Reserved


class ProxyServer:
    """Creates a `ClientConnection` for each client; arguments as in `ConnectionSettings`."""

    __slots__ = ("_settings",)

    def __init__(
        self,
        handler: Handler[ClientConnection],
        timeouts: ClientTimeouts,
        *,
        parser: RequestParser,
        max_head: int,
        reserved: Reserved = NOTHING_RESERVED,
    ) -> None:
        self._settings = ConnectionSettings(handler, timeouts, parser, max_head, reserved)

    def of_listener(
        self,
        https_port: int,
        peer: str = "",
        identify: Callable[[ClientConnection, asyncio.BaseTransport], None] | None = None,
    ) -> ClientConnection:
        """Return a new connection at a listener; arguments as in `ClientConnection`."""
        return ClientConnection(self._settings, https_port=https_port, peer=peer, identify=identify)
