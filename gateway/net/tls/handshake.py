"""Handshakes with clients: what a client offers, and the alert after a failure.

Event loops close a connection after a failed handshake without sending OpenSSL's alert. The objects
here send the alert themselves (RFC 8446, section 6.2), and keep the client's first message until it
has been checked, because `ssl` does not report the protocols it offers.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol

from gateway.net.tls.client_hello import offered_protocols

ALERT_NO_APPLICATION_PROTOCOL: Final = 120
"""RFC 7301, section 3.2; `ssl.AlertDescription` lacks it."""

PROTOCOLS: Final = ("http/1.1", "http/1.0")
"""The protocols of listeners without HTTP/2, by their ALPN names."""
PROTOCOLS_WITH_HTTP2: Final = ("h2", *PROTOCOLS)
"""Those of others; the first that the client offers is used."""


class Covering(Protocol):
    """The names of a certificate."""

    def find(self, server_name: str | None) -> int | None:
        """Return 0 if a name is among them; None if not."""


class Handshake:
    """One handshake on an accepted connection.

    Args:
        sock: the connection; non-blocking.

    Attributes:
        refused: a second handle on the connection, once an alert was sent on it. The code that
            takes it must close it; until then the client can read the alert.
    """

    __slots__ = ("_sock", "refused")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.refused: socket.socket | None = None

    def send_alert(self, alert: bytes) -> None:
        """Send the last bytes of a failed handshake; a client that has left does not get them."""
        if not alert or self.refused is not None:
            return
        with suppress(OSError):
            self.refused = self._sock.dup()
            self.refused.send(alert)
            self.refused.shutdown(socket.SHUT_WR)


handshake_under_way: ContextVar[Handshake] = ContextVar("handshake_under_way")
"""The handshake that the current task waits for: event loops pass nothing else through."""


class ServerConnection(ssl.SSLObject):
    """TLS of one connection from a client.

    Attributes:
        server_name: the name that the client has asked for; empty for none.
        names: those of the certificate that it was shown; None if they are not known.
    """

    server_name: str = ""
    names: Covering | None = None

    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _handshake: Handshake | None
    _hello: bytes | None

    def watch(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, handshake: Handshake | None
    ) -> None:
        """Register the handshake's observer; call this before it begins."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._handshake = handshake
        self._hello = b""

    def offers_one_of(self, protocols: Iterable[str]) -> bool:
        """Return whether the client offers one of these or none (RFC 7301, section 3.2)."""
        offered = offered_protocols(self._hello or b"")
        self._hello = None
        return offered is None or any(name.encode() in offered for name in protocols)

    def covers(self, host: str) -> bool:
        """Return whether the client has asked for this host, or the certificate names it.

        A client that has asked for no name, like those that know only an address, means them all.
        """
        if not self.server_name or self.names is None:
            return True
        return host.lower() == self.server_name.lower() or self.names.find(host) is not None

    def do_handshake(self) -> None:
        """Continue the handshake."""
        if self._hello is not None:
            arrived = self._incoming.read()
            self._hello += arrived
            self._incoming.write(arrived)
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self._handshake is not None:
                self._handshake.send_alert(self._outgoing.read())
            raise
        self._handshake = self._hello = None


class ServerContext(ssl.SSLContext):
    """A context whose connections are `ServerConnection`s."""

    sslobject_class = ServerConnection

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any
    ) -> ssl.SSLObject:
        """Like `ssl.SSLContext.wrap_bio`."""
        connection = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(connection, ServerConnection)
        connection.watch(incoming, outgoing, handshake_under_way.get(None))
        return connection
