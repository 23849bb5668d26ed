"""Which protocol a client speaks, on listeners where it may speak HTTP/2.

Over TLS the handshake has agreed on it (ALPN, RFC 7301). In clear text a client that knows of it
begins with the preface of HTTP/2 (RFC 9113, section 3.3); no request of HTTP/1.1 begins like that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.http2.connection import Http2Connection
from gateway.proxy.client.http2.frame_meter import PREFACE

if TYPE_CHECKING:
    from gateway.proxy.client.handler import Configured, Identified

Identify = Callable[["Identified", asyncio.BaseTransport], None]


def as_protocol(
    connection: ClientConnection | Http2Connection | ProtocolChoice,
) -> asyncio.Protocol:
    """Return a connection as asyncio knows it: it has the methods of a protocol, but not its class.

    Compiled classes are fast where all of their bases are compiled.
    """
    return cast("asyncio.Protocol", connection)


class ProtocolChoice(asyncio.Protocol):
    """Waits until it is certain, and hands the connection over.

    Until then the client is one of HTTP/1.1, with the time that it has for a head.

    Args:
        acceptor: as in `ClientConnection`.
        peer: likewise.
        identify: likewise.
    """

    __slots__ = ("_acceptor", "_connection", "_held", "_identify", "_peer")

    def __init__(
        self, acceptor: Configured, *, peer: str = "", identify: Identify | None = None
    ) -> None:
        self._acceptor = acceptor
        self._peer = peer
        self._identify = identify
        self._held = b""
        self._connection: ClientConnection | Http2Connection = ClientConnection(
            acceptor, peer=peer, identify=identify
        )

    def close_when_idle(self) -> None:
        """End the connection with its present requests."""
        self._connection.close_when_idle()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Choose what the handshake has agreed on; in clear text, wait."""
        stream = cast("asyncio.Transport", transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            self._connection.connection_made(transport)
            return
        if tls.selected_alpn_protocol() == "h2":
            self._connection = Http2Connection(
                self._acceptor, peer=self._peer, identify=self._identify
            )
        stream.set_protocol(as_protocol(self._connection))
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Decide once the first bytes can only be one of both."""
        first = self._connection
        assert isinstance(first, ClientConnection)
        transport = first.transport
        if transport is None:
            return
        self._held += data
        if self._held != PREFACE[: len(self._held)] and not self._held.startswith(PREFACE):
            transport.set_protocol(as_protocol(first))
            first.data_received(self._held)
        elif len(self._held) >= len(PREFACE):
            self._switch(first, transport)

    def _switch(self, first: ClientConnection, transport: asyncio.Transport) -> None:
        """Let another protocol take the place of HTTP/1.1, which has not seen a byte."""
        handler = self._acceptor.settings.handler
        is_last = first.is_last
        first.due = float("inf")
        first.transport = None
        handler.disconnected(first)
        second = self._connection = Http2Connection(self._acceptor, peer=self._peer)
        transport.set_protocol(as_protocol(second))
        second.connection_made(transport)
        if is_last:
            second.close_when_idle()
        second.data_received(self._held)

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Note that it does again."""
        self._connection.resume_writing()

    def eof_received(self) -> bool:
        """Note that nothing more comes: it is no request of either."""
        first = self._connection
        assert isinstance(first, ClientConnection)
        if first.transport is not None and self._held:
            first.transport.set_protocol(as_protocol(first))
            first.data_received(self._held)
        return bool(first.eof_received())

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note that the client is gone."""
        self._connection.connection_lost(exc)
