"""Whether a request belongs on the connection that it came on (RFC 9113, section 9.1.1). Pure.

A browser sends requests for several hosts on one connection if the certificate names them all. What
was agreed in the handshake, such as the client's certificate, holds for the connection and not for
the other host; so a request for one that the connection was not made for gets 421, and the browser
makes another connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gateway.config.values.address import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Collection

_HTTPS: Final = DEFAULT_PORTS["https"]


class NamedConnection(Protocol):
    """TLS of a connection."""

    def covers(self, host: str, /) -> bool:
        """Return whether the client has asked for this host, or the certificate names it."""


class HostCheck:
    """Knows which hosts a connection is for.

    Args:
        connection: its TLS.
    """

    __slots__ = ("_connection", "_known", "_ports")

    def __init__(self, connection: NamedConnection) -> None:
        self._connection = connection
        # The last one that was right: clients repeat themselves.
        self._known = ""
        self._ports: Collection[int] = ()

    def is_misdirected(self, authority: str, foreign_ports: Collection[int]) -> bool:
        """Return whether a request for an authority must come on another connection.

        Args:
            authority: host and port, as the client wrote them.
            foreign_ports: the ports of listeners with other rules for clients' certificates.
        """
        if authority == self._known and foreign_ports is self._ports:
            return False
        if _is_misdirected(authority, self._connection, foreign_ports):
            return True
        self._known, self._ports = authority, foreign_ports
        return False


def _is_misdirected(
    authority: str, connection: NamedConnection, foreign_ports: Collection[int]
) -> bool:
    host, bracket, rest = authority.partition("]")
    if bracket:
        host, port = host.removeprefix("["), rest.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else _HTTPS
    return number in foreign_ports or not connection.covers(host)
