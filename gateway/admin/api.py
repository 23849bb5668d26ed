"""The admin listener: one request per connection, with a deadline for the connection.

The listener shares its event loop with the traffic, so its clients get few resources: a connection
that has not sent its request and read its response by the deadline is closed, and beyond a number
of connections the oldest is closed. A client that holds connections open can neither fill memory
nor block the next health check.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import IncompleteReadError
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from socket import socket
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import RequestKey
from aiohttp.http import HttpVersion10, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from gateway.admin.mux import (
    READ,
    SECURITY_HEADERS,
    AdminAnswer,
    GuardFields,
    Mux,
    Query,
    Resource,
    problem,
)
from gateway.admin.reloading import Reloadable, reload_on_request
from gateway.admin.resources import Subject, healthz, metrics_text, readyz
from gateway.net.handover import HasNumber

DEADLINE_S: Final = 30.0
"""Time for a whole connection: three times Prometheus's default timeout of a scrape."""

MAX_CONNECTIONS: Final = 100

LINGER_S: Final = 1.0
"""How long a body that nothing reads may continue after the response."""

MAX_BODY: Final = 1024
"""The maximum body of a request that changes something, in bytes."""

_TARGET: Final = RequestKey("target", str)
"""Under which a request has its target as it was sent."""

_log = logging.getLogger(__name__)


class AdminServer:
    """Listens on one address and serves the `resources`.

    Args:
        host: address or name to listen on.
        port: port to listen on; 0 takes a free one.
        subject: the gateway to report on.
        reloadable: reloads its configuration; None if it was not started with a file.
        names: further host names of this listener, such as that of a service in a cluster.
        resources: the resources of other features.
        deadline_s: time for a whole connection.
        max_connections: how many connections may be open.
    """

    def __init__(
        self,
        host: str,
        port: int,
        subject: Subject,
        *,
        reloadable: Reloadable | None = None,
        names: Iterable[str] = (),
        resources: Iterable[Resource] = (),
        deadline_s: float = DEADLINE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._host = host
        self._port = port
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        told = (healthz(subject), readyz(subject), metrics_text(subject))
        own = (*told, reload_on_request(reloadable))
        self._mux = Mux(host, names, (*own, *resources))
        self._listeners: list[asyncio.Server] = []
        self._connections: _Connections | None = None

    async def start(self, sockets: Sequence[socket] = (), *, waits: bool = False) -> None:
        """Listen.

        Args:
            sockets: sockets that already listen on the address; none to open them.
            waits: accept no connections before `serve`.

        Raises:
            OSError: the address is in use or not of this machine.
        """
        connections = _Connections(self._answer, self._deadline_s, self._max_connections)
        self._connections = connections
        loop = asyncio.get_running_loop()
        if not sockets:
            self._listeners = [await loop.create_server(connections, self._host, self._port)]
        for one in sockets:
            listener = await loop.create_server(connections, sock=one, start_serving=not waits)
            self._listeners.append(listener)

    async def serve(self) -> None:
        """Accept connections, if it has waited."""
        for listener in self._listeners:
            await listener.start_serving()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if not self._listeners:
            return self._port
        port: int = self._listeners[0].sockets[0].getsockname()[1]
        return port

    @property
    def sockets(self) -> list[HasNumber]:
        """The sockets that it listens on."""
        return [one for listener in self._listeners for one in listener.sockets]

    async def close(self) -> None:
        """Stop listening, and give unfinished responses a second to arrive."""
        if not self._listeners or self._connections is None:
            return
        for listener in self._listeners:
            listener.close()
        self._connections.pre_shutdown()
        await self._connections.shutdown(LINGER_S)
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners = []

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        found = self._mux.find(request.method, request[_TARGET], _fields(request))
        if isinstance(found, Resource):
            found = await self._ask(found, request)
        if isinstance(found.body, bytes):
            return _response(found)
        return await _stream(request, found, found.body)

    async def _ask(self, resource: Resource, request: BaseRequest) -> AdminAnswer:
        """Return the response of a resource."""
        accept = request.headers.get("Accept", "")
        if request.method in READ:
            return await resource.answer(Query(accept))
        try:
            await request.content.readexactly(MAX_BODY + 1)
        except IncompleteReadError as whole:
            if resource.longest_s and self._connections is not None:
                self._connections.extend(request.protocol, resource.longest_s)
            return await resource.answer(Query(accept, whole.partial))
        return problem(413, f"The body may have {MAX_BODY} bytes.")


def _fields(request: BaseRequest) -> GuardFields:
    def all_of(name: str) -> str:
        # Of several values, none may be the one that was checked.
        return ", ".join(request.headers.getall(name, []))

    hosts = request.headers.getall("Host", [])
    return GuardFields(
        host=hosts[0] if len(hosts) == 1 else "",
        content_type=all_of("Content-Type"),
        origin=all_of("Origin"),
        fetch_site=all_of("Sec-Fetch-Site"),
        needs_host=bool(hosts) or request.version != HttpVersion10,
    )


async def _stream(
    request: BaseRequest, answer: AdminAnswer, parts: Sequence[bytes]
) -> StreamResponse:
    """Send a large response in parts: copying megabytes takes a while."""
    response = StreamResponse(status=answer.status, headers=_headers(answer))
    response.content_length = sum(map(len, parts))
    response.force_close()
    # A client that does not wait for the end is not our failure.
    with suppress(ConnectionError):
        await response.prepare(request)
        for part in parts if request.method != "HEAD" else ():
            await response.write(part)
            await asyncio.sleep(0)
    return response


def _headers(answer: AdminAnswer) -> dict[str, str]:
    own = {"Content-Type": answer.content_type, "Server": "sluice"}
    return {**SECURITY_HEADERS, **own, **answer.headers}


def _response(answer: AdminAnswer) -> Response:
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    response = Response(status=answer.status, body=body, headers=_headers(answer))
    response.force_close()
    return response


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> BaseRequest:
    """Make aiohttp's request, with its target: `raw_path` leaves out a host from 3.15 on."""
    request = BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
    request[_TARGET] = message.path
    return request


class _Connections(Server):
    """All connections of the listener, the oldest first, each with its deadline."""

    def __init__(
        self,
        handler: Callable[[BaseRequest], Awaitable[StreamResponse]],
        deadline_s: float,
        max_connections: int,
    ) -> None:
        super().__init__(handler, request_factory=_request)
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        self._open: dict[RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def __call__(self) -> RequestHandler:
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
            auto_decompress=False,
            keepalive_timeout=self._deadline_s,
            lingering_time=LINGER_S,
        )

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Start the connection's deadline; if there are too many connections, close the oldest."""
        super().connection_made(handler, transport)
        if len(self._open) >= self._max_connections:
            self._abort(next(iter(self._open)))
        self._keep(handler, transport, self._deadline_s)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        super().connection_lost(handler, exc)
        if handler in self._open:
            self._open.pop(handler)[1].cancel()

    def extend(self, handler: RequestHandler, seconds: float) -> None:
        """Let a connection take so many more seconds, from now on."""
        if handler in self._open:
            transport, deadline = self._open[handler]
            deadline.cancel()
            self._keep(handler, transport, seconds)

    def _keep(self, handler: RequestHandler, transport: asyncio.Transport, seconds: float) -> None:
        deadline = asyncio.get_running_loop().call_later(seconds, self._abort, handler)
        self._open[handler] = (transport, deadline)

    def _abort(self, handler: RequestHandler) -> None:
        transport, deadline = self._open.pop(handler)
        deadline.cancel()
        transport.abort()


class _Connection(RequestHandler):
    """aiohttp's connection, with error responses of this listener."""

    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer a request that is invalid, or for which a resource failed.

        `message` contains what the client sent; it is neither returned nor logged.
        """
        if status >= 500:
            _log.error("the admin listener failed to answer a request", exc_info=exc)
            return _response(
                problem(500, "The gateway failed to answer this request; see its log.")
            )
        return _response(problem(400, "The request is not valid."))
