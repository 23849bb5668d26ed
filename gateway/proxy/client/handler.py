"""What a client's connection needs of the code that serves its requests: two protocols.

The client side reads requests and writes bytes. It knows nothing of routes, limits or upstreams.
`Proxy` in `gateway.proxy.server` is the handler of a running gateway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader

    from gateway.base.errors import BadRequestError
    from gateway.base.tasks import Portions
    from gateway.proxy.client.request_message import RequestMessage
    from gateway.proxy.client.request_parser import RequestParser
    from gateway.proxy.client.timeouts import ClientTimeouts
    from gateway.routing.spelling import Reserved

Connection_contra = TypeVar("Connection_contra", contravariant=True)


class ServedRequest(Protocol):
    """A request that the handler is serving.

    Attributes:
        keeps_alive: whether another request may follow on the connection. The connection clears
            it when this request is the last one.
        error: why the request failed, as a short kind; empty if it has not.
    """

    keeps_alive: bool
    error: str

    @property
    def is_http_1_0(self) -> bool:
        """Return whether the client uses HTTP/1.0, which has no interim responses."""

    @property
    def status(self) -> int:
        """Return the status of the response; 0 before its head is written."""

    @property
    def sent(self) -> int:
        """Return how many bytes of the response's body were written."""

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for its turn, and keeps nothing busy."""

    @property
    def is_endless(self) -> bool:
        """Return whether an upstream that announced no length is sending the response."""

    def client_left(self) -> None:
        """Stop serving: the client is gone before its response was complete."""


class RepeatableReply(Protocol):
    """A reply that may be sent again when the same bytes arrive."""

    def repeat(self, segment: bytes) -> bytes:
        """Return the reply to a request in these bytes; empty if it must be served again."""


class Handler(Protocol[Connection_contra]):
    """Serves the requests of all connections.

    Attributes:
        crowd: defers the work of many clients that leave at the same moment.
    """

    crowd: Portions

    def recognise(self, peer: str) -> tuple[str, bool]:
        """Return the key that a peer is counted under, and whether it is a trusted proxy."""

    def connected(self, connection: Connection_contra, transport: asyncio.Transport) -> bool:
        """Admit a new client; return False, and close its transport, if there is no room."""

    def disconnected(self, connection: Connection_contra) -> None:
        """Note that a client is gone."""

    def serve(
        self, connection: Connection_contra, message: RequestMessage, payload: StreamReader
    ) -> ServedRequest:
        """Start serving a request; `connection.finished` is called at its end."""

    def reject(self, connection: Connection_contra, error: BadRequestError) -> None:
        """Answer a request that could not be parsed; the connection ends with it."""

    def head_is_late(self) -> None:
        """Count a client that took too long to send the head of a request."""

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count a client that took too long to read a response or the rest of the last one."""


class Configured(Protocol):
    """What created a connection, and knows how it is to be served.

    Attributes:
        settings: the present ones of its listener.
    """

    settings: ConnectionSettings


class ConnectionSettings(NamedTuple):
    """What all connections of a listener have in common.

    Attributes:
        handler: serves the requests.
        timeouts: how long clients may take.
        parser: reads heads.
        max_head: most bytes in the head of a request.
        reserved: names of fields that clients may not send, or not in any spelling.
        https_port: the port of HTTPS redirects; 0 for no redirect.
    """

    handler: Handler[Any]
    timeouts: ClientTimeouts
    parser: RequestParser
    max_head: int
    reserved: Reserved
    https_port: int = 0
