"""What a client's connection needs of the code that serves its requests: two protocols.

The client side reads requests and writes bytes. It knows nothing of routes, limits or upstreams.
`Proxy` in `gateway.proxy.server` is the handler of a running gateway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.base.errors import BadRequestError
    from gateway.base.tasks import Portions
    from gateway.net.tls.peer import ClientCertificate
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
        trailers: header lines after the body, where they need not be a part of it.
    """

    keeps_alive: bool
    error: str
    trailers: bytes

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


class RequestBody(Protocol):
    """The body of a request, as it arrives: aiohttp's `StreamReader`, or that of a stream."""

    def is_eof(self) -> bool:
        """Return whether all of it has arrived."""

    def exception(self) -> BaseException | type[BaseException] | None:
        """Return why no more can be read."""

    def set_exception(self, exc: BaseException, /) -> None:
        """Let readers fail."""

    def read_nowait(self) -> bytes:
        """Return all that is here."""

    async def readany(self) -> bytes:
        """Return what is here, once there is anything; nothing at the end."""


class Identified(Protocol):
    """A connection whose client may have a certificate.

    Attributes:
        certificate: the client's verified certificate; None if not requested or not sent.
        own_fields: header lines about it for the upstream.
    """

    certificate: ClientCertificate | None
    own_fields: bytes


class ServedConnection(Identified, Protocol):
    """Where a request came from, to what serves it: a connection of HTTP/1.1, or a stream.

    Attributes:
        due: the loop's time at which the client is late; `inf` for never.
        is_last: whether the connection ends with the present request.
        repeatable: the last reply, if it may be sent again when the same bytes arrive.
        sent_headers, sent_host: the header fields and the host of the last request, and
        sent_fields: the lines made from them for the upstream.
    """

    due: float
    is_last: bool
    repeatable: RepeatableReply | None
    sent_headers: object
    sent_host: str
    sent_fields: bytes

    @property
    def transport(self) -> asyncio.Transport | None:
        """Return the transport; None once the client is gone."""

    @property
    def writing_paused(self) -> bool:
        """Return whether the client is not reading what was sent."""

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing has arrived after the present request."""

    @property
    def peer(self) -> str:
        """Return the address at the other end."""

    @property
    def peer_key(self) -> str:
        """Return what `per ip` counts it under, if the peer is the client itself."""

    @property
    def is_trusted(self) -> bool:
        """Return whether the peer is a proxy trusted to name the client."""

    @property
    def scheme(self) -> str:
        """Return `http` or `https`."""

    @property
    def https_port(self) -> int:
        """Return the port of HTTPS redirects; 0 for no redirect."""

    @property
    def reserved(self) -> Reserved:
        """Return names of fields that clients may not send, or not in any spelling."""

    @property
    def segment(self) -> bytes:
        """Return the bytes the present request was read from, if that is one short request."""

    def expect_body(self, on_late: Callable[[], None], size: int, waited_s: float) -> None:
        """Wait for a piece of the request's body; arguments as in `ClientDeadline.send_body`."""

    def send(self, data: bytes) -> None:
        """Write to the client; do nothing if it is gone."""

    async def drained(self) -> None:
        """Wait until the client has read enough of what was sent, or is gone."""

    def break_off(self) -> None:
        """End so that a partial response cannot be taken for a complete one."""

    def finished(self, served: Any, /) -> None:
        """Note that the response is written."""


class OpenConnection(Protocol):
    """A connection, to what admits clients and lets them go.

    Attributes:
        acceptor: what created it.
        due: the loop's time at which the client is late; `inf` for never.
        peer_key: what `per ip` counts it under.
        is_trusted: whether the peer is a trusted proxy.
    """

    acceptor: Configured
    due: float
    peer_key: str
    is_trusted: bool

    @property
    def scheme(self) -> str:
        """Return `http` or `https`."""

    @property
    def under_way(self) -> int:
        """Return how many requests are being served."""

    def expire(self) -> None:
        """Handle a late client."""

    def spare(self, now: float) -> int:
        """Return how readily it can be closed: 0 for not at all, else the lowest goes first."""

    def make_room(self) -> None:
        """Close, to make room for another client."""

    def reconfigure(self) -> None:
        """Take the present settings of the listener, from the next request on."""

    def close_when_idle(self) -> None:
        """End with the present requests."""

    def break_off(self) -> None:
        """Reset the connection."""


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
        self, connection: ServedConnection, message: RequestMessage, payload: RequestBody
    ) -> ServedRequest:
        """Start serving a request; `connection.finished` is called at its end."""

    def refuse(
        self,
        connection: ServedConnection,
        message: RequestMessage,
        payload: RequestBody,
        error: BadRequestError,
    ) -> None:
        """Answer a request with an error; `connection.finished` is called at its end."""

    def reject(self, connection: ServedConnection, error: BadRequestError) -> None:
        """Answer a request that could not be parsed; nothing follows."""

    def misbehaved(self, kind: str) -> None:
        """Count an error of a client that has no request to be answered."""

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
        http2: whether clients may speak HTTP/2.
        foreign_ports: the ports of listeners that have other rules for clients' certificates.
    """

    handler: Handler[Any]
    timeouts: ClientTimeouts
    parser: RequestParser
    max_head: int
    reserved: Reserved
    https_port: int = 0
    http2: bool = False
    foreign_ports: frozenset[int] = frozenset()


class ListenerRules(NamedTuple):
    """What the connections of one listener do not share with those of others.

    Attributes:
        https_port, http2, foreign_ports: as in `ConnectionSettings`.
    """

    https_port: int = 0
    http2: bool = False
    foreign_ports: frozenset[int] = frozenset()
