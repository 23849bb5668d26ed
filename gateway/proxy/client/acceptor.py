"""Makes the connection objects of clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.routing.spelling import NOTHING_RESERVED, Reserved

if TYPE_CHECKING:
    from gateway.proxy.client.handler import Handler


class ProxyServer:
    """Makes a `ClientConnection` for each client.

    Args:
        handler: serves the requests of all connections.
        timeouts: how long clients may take.
        parser: reads heads.
        max_head: bytes that the head of a request may have.
        reserved: as in `ClientConnection`.
    """

    __slots__ = ("_handler", "_max_head", "_parser", "_reserved", "_timeouts")

    def __init__(
        self,
        handler: Handler[ClientConnection],
        timeouts: ClientTimeouts,
        *,
        parser: RequestParser,
        max_head: int,
        reserved: Reserved = NOTHING_RESERVED,
    ) -> None:
        self._handler = handler
        self._timeouts = timeouts
        self._parser = parser
        self._max_head = max_head
        self._reserved = reserved

    def of_listener(
        self,
        https_port: int,
        peer: str = "",
        identify: Callable[[ClientConnection, asyncio.BaseTransport], None] | None = None,
    ) -> ClientConnection:
        """Return a new connection at a listener; arguments as in `ClientConnection`."""
        return ClientConnection(
            self._handler,
            self._timeouts,
            self._parser,
            self._max_head,
            reserved=self._reserved,
            https_port=https_port,
            peer=peer,
            identify=identify,
        )
