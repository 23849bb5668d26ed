"""The way of a request, on one page.

`Proxy.serve` finds the route and asks the limits (`gate`), and forwards (`forward`). All of
that happens at once, without a task, as long as nothing has to be waited for but the answer
of an upstream to which a connection is open: an asyncio task and its wake-ups would cost a
small request as much as parsing it does. Everything else goes on in a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gateway.base.clock import US, monotonic_ns
from gateway.base.errors import BadRequestError, ClientError, UpstreamError
from gateway.base.refusal_log import Refusals
from gateway.base.tasks import Portions, Tasks
from gateway.config.models.gateway import ServerConfig
from gateway.http import answer
from gateway.http.answer import Answer
from gateway.limiter.decider import Outcome, Pending, refusing_rule
from gateway.observe.logs import AccessEntry, AccessLog
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.cached_refusal import CachedRefusal, holds_for_ns
from gateway.proxy.client.acceptor import ProxyServer
from gateway.proxy.client.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP, Admission
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.deadlines import Watch
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.timeouts import ClientTimeouts
from gateway.proxy.direct_responses import ErrorPages, InterceptedAnswer, own_head
from gateway.proxy.forward import Forwarder
from gateway.proxy.gate import Gate
from gateway.proxy.request import Request
from gateway.proxy.tunnel import SWITCHED, asks_for_websocket
from gateway.proxy.upstream.answer_head import added_to

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader

    from gateway.proxy.routes import Route
    from gateway.routing.spelling import Reserved

log = logging.getLogger(__name__)

CLIENT_LEFT: Final = 499
LINGER_S: Final = 2.0
"""How long a client that is still sending may take to read its answer (nginx: 5 s)."""


class Proxy:
    """Serves the requests of all connections.

    Args:
        gate: decides which requests go where.
        config: what clients may do.
        metrics: of the gateway.
        access_log: takes one line for each request; None for none.
        max_connections: how many clients there may be.
        reserved: as in `ClientConnection`.
        pages: the forms of errors where no route is known; None for problem documents.

    Attributes:
        gate: as given.
        server: makes a connection object for each client, for `loop.create_server`.
        crowd: has the work that comes with many clients who leave at once.
    """

    def __init__(
        self,
        gate: Gate,
        config: ServerConfig,
        metrics: GatewayMetrics,
        access_log: AccessLog | None,
        max_connections: int,
        reserved: Reserved,
        pages: ErrorPages | None = None,
    ) -> None:
        self.gate = gate
        self._pages = pages
        self._metrics = metrics
        self._access_log = access_log
        self._is_draining = False
        self._clients: set[ClientConnection] = set()
        self._all_gone = asyncio.Event()
        self._tasks = Tasks()
        self.crowd = Portions()
        patience = ClientTimeouts(
            head=config.header_timeout / US,
            body=config.body_timeout / US,
            idle=config.keepalive_timeout / US,
            linger=LINGER_S,
            rate=float(config.min_rate or 0),
        )
        self._admission = Admission(self._clients, max_connections, config.max_connections_per_ip)
        self._refusals = {
            limit: Refusals(log, f"clients are refused: server.{limit} is reached")
            for limit in (MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP)
        }
        self._watch = Watch(self._clients, min(patience[:-1]))
        self._forwarder = Forwarder(self._tasks, self._forwarded)
        self.server = ProxyServer(
            self,
            patience,
            parser=RequestParser(config.max_header_size, config.max_headers, config.methods),
            max_head=config.max_head_size,
            reserved=reserved,
        )

    def __repr__(self) -> str:
        return f"<Proxy {len(self._clients)} clients, {len(self._tasks)} tasks>"

    @property
    def under_way(self) -> int:
        """How many requests are being served."""
        return sum(client.is_busy for client in self._clients)

    # What connections tell.

    def connected(self, connection: ClientConnection, transport: asyncio.Transport) -> bool:
        """A client has connected; returns whether it may stay, or else closes it."""
        now = asyncio.get_running_loop().time()
        limit, leaver = self._admission.judge(connection, now)
        if limit:
            self._metrics.connections_refused[limit] += 1
            self._refusals[limit].note()
            if connection.scheme == "https":
                # An orderly end of TLS waits for the client.
                transport.abort()
            else:
                reply = answer.problem(503, "Too many connections")
                transport.write(own_head(reply, b"Connection: close\r\n") + reply.body)
                transport.close()
            return False
        if leaver is not None:
            self._metrics.connections_evicted += 1
            leaver.make_room()
        self._metrics.connections += 1
        self._clients.add(connection)
        self._all_gone.clear()
        self._watch.start()
        return True

    def disconnected(self, connection: ClientConnection) -> None:
        """A client is gone."""
        self._metrics.connections -= 1
        self._admission.release(connection)
        self._clients.discard(connection)
        if not self._clients:
            self._all_gone.set()

    def head_is_late(self) -> None:
        """A client took too long to send the head of a request."""
        self._metrics.client_errors["header_timeout"] += 1

    def reader_is_late(self, request: Request | None) -> None:
        """A client took too long to take the answer to a request, or what is left of one."""
        self._metrics.client_errors["send_timeout"] += 1
        if request is not None:
            request.error = "send_timeout"

    def client_left(self, request: Request) -> None:
        """A client is gone before its answer was complete."""
        if not request.error:
            self._metrics.clients_left += 1
            request.error = "client_left"
        # nginx's word for it; nothing was answered.
        request.status = request.status or CLIENT_LEFT
        if request.task is not None:
            # The place is free at once, not when the task has come to its end.
            request.release()
            request.task.cancel()
        elif request.pending is not None:
            request.pending.abandon()
            self._note(request)
        else:
            self._forwarder.give_up(request)
            self._note(request)

    # What requests go through.

    def serve(
        self, connection: ClientConnection, message: RawRequestMessage, payload: StreamReader
    ) -> Request:
        """Serve one request, or begin to; `connection.finished` is called at its end."""
        request = Request(connection, message, payload)
        if (
            self._is_draining
            or connection.is_closing
            or (message.upgrade and not (asks_for_websocket(request) and connection.is_waiting))
        ):
            request.keeps_alive = False
        try:
            if connection.https_port and (reply := self.gate.to_https(request)) is not None:
                return self._answered(request, reply)
            route = request.route = self.gate.find_route(request)
            if request.method == "OPTIONS" and (reply := self.gate.count_hop(request)) is not None:
                return self._answered(request, reply)
            if route.outgoing is not None:
                request.sent_target = route.outgoing.target(request)
            outcome = self.gate.ask(request, route)
            if isinstance(outcome, Pending):
                request.pending = outcome
                outcome.then(partial(self._decided, request, route))
            else:
                self._go_on(request, route, outcome)
        except Exception as error:  # noqa: BLE001 - judged in one place
            self._fail(request, error)
            self._finish(request)
        return request

    def _answered(self, request: Request, reply: Answer) -> Request:
        """A request that goes no further than this."""
        self._answer(request, reply)
        self._finish(request)
        return request

    def _decided(self, request: Request, route: Route, outcome: Outcome) -> None:
        """The store has answered."""
        request.pending = None
        try:
            self._go_on(request, route, outcome)
        except Exception as error:  # noqa: BLE001 - judged in one place
            self._fail(request, error)
            self._finish(request)

    def _go_on(self, request: Request, route: Route, outcome: Outcome | None) -> None:
        """Refuse, hold back or forward, as the limits say."""
        if outcome is not None:
            refusal = self.gate.heed(request, route, outcome)
            if refusal is not None:
                reply = self._answer(request, refusal)
                self._finish(request)
                self._remember(request, outcome, reply)
                return
            if outcome.verdict.wait_us:
                self._start(request, self._wait_and_forward(request, route, outcome))
                return
        upstream = route.upstream
        if upstream is None:
            self._answer_itself(request, route)
            self._finish(request)
            return
        if request.message.upgrade:
            self._start(request, self._forwarder.forward(request, upstream))
            return
        rest = self._forwarder.forward_at_once(request, upstream)
        if rest is not None:
            self._start(request, rest)

    def _remember(self, request: Request, outcome: Outcome, reply: bytes) -> None:
        """Keep a refusal at hand, for as long as it holds."""
        holds_ns = holds_for_ns(request, outcome)
        if not holds_ns or outcome.closed_by is not None:
            return
        log_again = None
        if self._access_log is not None:
            log_again = self._access_log.repeat(request.log_entry())
        policy = refusing_rule(outcome).policy.metrics
        request.connection.refused = CachedRefusal(request, holds_ns, reply, policy, log_again)

    def refuse_again(self, refused: CachedRefusal, segment: bytes) -> bytes:
        """The answer to a request that the last one was refused with; none if it may differ."""
        now_ns = monotonic_ns()
        if self._is_draining or not refused.fits(segment, now_ns):
            return b""
        refused.policy.refused += 1
        duration_us = (monotonic_ns() - now_ns) // 1000
        refused.route.answered(refused.status, duration_us)
        if refused.log is not None:
            refused.log(duration_us)
        return refused.answer

    async def _wait_and_forward(self, request: Request, route: Route, outcome: Outcome) -> None:
        refusal = await self.gate.wait(request, outcome)
        if refusal is not None:
            self._answer(request, refusal)
        elif route.upstream is None:
            self._answer_itself(request, route)
        else:
            await self._forwarder.forward(request, route.upstream)

    def _start(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Go on in a task."""
        task = self._tasks.start(self._run(request, work))
        task.add_done_callback(partial(self._gone, request, work))
        request.task = task

    async def _run(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - judged in one place
            self._fail(request, error)
        self._finish(request)

    def _gone(
        self, request: Request, work: Coroutine[Any, Any, None], task: asyncio.Task[None]
    ) -> None:
        """A task is over; if the client left, perhaps before it began."""
        if task.cancelled():
            work.close()
            self._note(request)

    def _forwarded(
        self,
        request: Request,
        error: Exception | None,
        rest: Coroutine[Any, Any, None] | None,
    ) -> None:
        """What was forwarded at once has its answer, or failed, or goes on in a task."""
        if rest is not None:
            self._start(request, rest)
            return
        if error is not None:
            self._fail(request, error)
        self._finish(request)

    def _finish(self, request: Request) -> None:
        self._note(request)
        request.connection.finished(request)

    def _fail(self, request: Request, error: Exception) -> None:
        """Tell the client what went wrong, if anything can still be told."""
        if isinstance(error, ClientError):
            request.error = request.error or error.kind
            self._metrics.client_errors[error.kind] += 1
            reply = answer.problem(error.status, error.title)
        elif isinstance(error, UpstreamError):
            request.error = error.kind
            if request.route is not None and request.route.upstream is not None:
                request.route.upstream.metrics.errors[error.kind] += 1
            reply = answer.failed(error)
        elif isinstance(error, InterceptedAnswer):
            title = HTTPStatus(error.status).phrase
            reply = answer.problem(error.status, title, fields=error.fields)
        else:
            log.error("A request could not be served", exc_info=error)
            request.error = "internal"
            request.keeps_alive = False
            reply = answer.problem(500, "The gateway failed")
        if request.status:
            # Part of an answer is out already: it must not look whole.
            request.keeps_alive = False
            request.connection.break_off()
        else:
            self._answer(request, reply)

    # What the gateway answers by itself.

    def reject(self, connection: ClientConnection, error: BadRequestError) -> None:
        """Answer what could not be parsed; the connection ends with it."""
        self._metrics.client_errors[error.kind] += 1
        reply = answer.problem(error.status, error.title)
        connection.send(own_head(reply, b"Connection: close\r\n") + reply.body)
        if self._access_log is not None:
            self._access_log.log(
                AccessEntry(
                    client=connection.peer,
                    status=error.status,
                    body_bytes=len(reply.body),
                    error=error.kind,
                )
            )

    def _answer_itself(self, request: Request, route: Route) -> None:
        """Answer a request of a route that has no upstream."""
        assert route.own is not None
        self._answer(request, route.own(request))

    def _answer(self, request: Request, reply: Answer) -> bytes:
        """Send an answer of the gateway's own; returns its bytes."""
        if not request.payload.is_eof():
            # A body that nobody will read ends the connection.
            request.keeps_alive = False
        connection = b"" if request.keeps_alive else b"Connection: close\r\n"
        if request.keeps_alive and request.is_http_1_0:
            connection = b"Connection: keep-alive\r\n"
        added = request.added_fields
        route = request.route
        pages = self._pages if route is None else route.pages
        if pages is not None:
            reply = pages.dress(reply, request)
        added = added_to(reply.fields, added)
        if route is not None and route.answer_edit is not None:
            added = route.answer_edit.apply(reply.fields + added, request)
            reply = reply._replace(fields=b"")
        head = own_head(reply, connection, added)
        request.status = reply.status
        if request.method != "HEAD":
            request.sent = len(reply.body)
            head += reply.body
        request.connection.send(head)
        return head

    def _note(self, request: Request) -> None:
        """Count and log a request whose fate is known."""
        request.release()
        route = request.route
        duration_us = (monotonic_ns() - request.started_ns) // 1000
        if request.status == SWITCHED:
            # It was counted when the protocol was switched.
            if self._access_log is not None:
                entry = request.log_entry(duration_us)
                entry.bytes_received = request.received
                self._access_log.log(entry)
            return
        if route is not None:
            route.metrics.answered(request.status, duration_us)
        if self._access_log is not None:
            self._access_log.log(request.log_entry(duration_us))

    # Beginning and end.

    @staticmethod
    async def unused_handler(request: web.BaseRequest) -> NoReturn:
        """What aiohttp's own loop would call; `ClientConnection` replaces that loop."""
        raise AssertionError(request)

    async def drain(self, seconds: float) -> int:
        """Let requests under way end, at most for `seconds`; idle connections close at once.

        Returns:
            How many requests were cut off.
        """
        self._is_draining = True
        for connection in tuple(self._clients):
            connection.close_when_idle()
        if self._clients:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
        cut_off = self.under_way
        for connection in tuple(self._clients):
            connection.break_off()
        await self._tasks.finish(1)
        self._watch.stop()
        for refusals in self._refusals.values():
            refusals.stop()
        return cut_off
