"""Create the connection objects of a listener's clients, for `loop.create_server`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.handler import ConnectionSettings, Identified
from gateway.proxy.client.protocol_choice import ProtocolChoice


class Acceptor:
    """Creates a connection for each client of one listener.

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
        identify: Callable[[Identified, asyncio.BaseTransport], None] | None = None,
    ) -> ClientConnection | ProtocolChoice:
        """Return a new connection; arguments as in `ClientConnection`."""
        if self.settings.http2:
            return ProtocolChoice(self, peer=peer, identify=identify)
        return ClientConnection(self, peer=peer, identify=identify)
