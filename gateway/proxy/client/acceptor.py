"""Create the connection objects of a listener's clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.handler import ConnectionSettings


class Acceptor:
    """Creates a `ClientConnection` for each client of one listener.

    Args:
        settings: see below.

    Attributes:
        settings: those of the connections that are created from now on.
    """

    __slots__ = ("settings",)

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings

    def __call__(
        self,
        peer: str = "",
        identify: Callable[[ClientConnection, asyncio.BaseTransport], None] | None = None,
    ) -> ClientConnection:
        """Return a new connection; arguments as in `ClientConnection`."""
        return ClientConnection(self, peer=peer, identify=identify)
