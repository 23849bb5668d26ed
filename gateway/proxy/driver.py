"""Drives exchanges, from the head of a request to its line in the access log.

A request whose limits are decided immediately, and whose upstream has an idle connection, needs no
task: the head of its response calls back. An asyncio task and its wake-ups would cost a small
request as much as parsing it does. A task is started only for what must be awaited: a turn in a
queue, a connection, a pause, the body of a request, a long response, a WebSocket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gateway.base.clock import monotonic_ns
from gateway.base.errors import ClientError, UpstreamError
from gateway.base.tasks import Tasks
from gateway.http import answer
from gateway.http.answer import Answer
from gateway.limiter.decider import Outcome, Pending
from gateway.observe.logs import AccessEntry, AccessLog
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.access_line import fill_in
from gateway.proxy.cached_refusal import remember
from gateway.proxy.exchange import Exchange
from gateway.proxy.gate import Gate
from gateway.proxy.grpc import deadline_of, is_call
from gateway.proxy.peeked_body import PeekedBody, peek
from gateway.proxy.request import Request
from gateway.proxy.response import Unrouted, relay, reply_bytes, whole_bytes
from gateway.proxy.ruling import Ruling
from gateway.proxy.step import (
    CONNECT,
    DONE,
    HEAD,
    LIMITS,
    RELAY,
    TUNNEL,
    UPLOAD,
    WHOLE,
    Pause,
    Step,
)
from gateway.proxy.tunnel import Tunnel
from gateway.proxy.websocket import SWITCHED, asks_for_websocket

if TYPE_CHECKING:
    from gateway.base.errors import BadRequestError
    from gateway.proxy.client.handler import RequestBody, ServedConnection
    from gateway.proxy.client.request_message import RequestMessage

log = logging.getLogger(__name__)

CLIENT_LEFT: Final = 499
"""The status of a request whose client left before there was a response, as in nginx."""


class Driver:
    """Serves requests: an `ExchangeCallbacks`.

    Args:
        gate: decides which requests go where.
        metrics: of the gateway.
        access_log: takes one line for each request; None without a log.
        unrouted: how requests are answered where no route is known.

    Attributes:
        access_log: as given.
        is_draining: whether every connection ends with the request that comes next.
    """

    def __init__(
        self,
        gate: Gate,
        metrics: GatewayMetrics,
        access_log: AccessLog | None,
        unrouted: Unrouted,
    ) -> None:
        self.access_log = access_log
        self.is_draining = False
        self._gate = gate
        self._metrics = metrics
        self._unrouted = unrouted
        self._tasks = Tasks()
        # All lines are written from this one entry, which each exchange fills in: to create one for
        # each request would cost as much as a quarter of its line (bench: passing).
        self._entry = AccessEntry()

    def reconfigure(self, gate: Gate, access_log: AccessLog | None, unrouted: Unrouted) -> None:
        """Serve the requests that come from now on as another configuration says.

        Those that are being served keep their routes; arguments as in the constructor.
        """
        self._gate = gate
        self.access_log = access_log
        self._unrouted = unrouted

    def __repr__(self) -> str:
        return f"<Driver: {len(self._tasks)} tasks>"

    def __len__(self) -> int:
        return len(self._tasks)

    def serve(
        self, connection: ServedConnection, message: RequestMessage, payload: RequestBody
    ) -> Exchange:
        """Start serving a request; `connection.finished` is called at its end.

        Args:
            connection: where it came from.
            message: the parsed head.
            payload: the body, as it arrives.
        """
        request = Request(connection, message, payload)
        exchange = Exchange(request, self)
        if request.method == "POST" and is_call(request):
            exchange.deadline = deadline_of(request, asyncio.get_running_loop().time())
        if (
            self.is_draining
            or connection.is_last
            or (message.upgrade and not (asks_for_websocket(request) and connection.is_waiting))
        ):
            exchange.keeps_alive = False
        gate = self._gate
        try:
            if connection.https_port and (reply := gate.to_https(request)) is not None:
                self._reply(exchange, reply)
                return exchange
            route = gate.find_route(request)
            ruling = exchange.ruling = Ruling(route)
            if route.access is not None:
                gate.check_access(request, ruling)
            if request.method == "OPTIONS" and (reply := gate.count_hop(request)) is not None:
                self._reply(exchange, reply)
                return exchange
            if route.outgoing is not None:
                ruling.sent_target = route.outgoing.target(request)
            if route.reads_body and (body := peek(request)) is not None:
                self._start(exchange, partial(self._read_body, exchange, body))
            else:
                self._ask(exchange, ruling)
        except Exception as error:  # noqa: BLE001 - judged in one place
            self.fail(exchange, error)
        return exchange

    def refuse(
        self,
        connection: ServedConnection,
        message: RequestMessage,
        payload: RequestBody,
        error: BadRequestError,
    ) -> None:
        """Answer a request with an error; arguments as in `serve`."""
        request = Request(connection, message, payload)
        with suppress(ClientError):
            request.read_target()
        self.fail(Exchange(request, self), error)

    async def finish(self, seconds: float) -> None:
        """Wait for all tasks, at most for `seconds`; cancel the rest."""
        await self._tasks.finish(seconds)

    @staticmethod
    async def _read_body(exchange: Exchange, body: PeekedBody) -> Step:
        """Wait for what the limits count by in the body of a request."""
        await body.fill(exchange.request.connection)
        return LIMITS

    def _ask(self, exchange: Exchange, ruling: Ruling) -> None:
        """Ask the limits about a request."""
        outcome = self._gate.ask(exchange.request, ruling)
        if isinstance(outcome, Pending):
            ruling.pending = outcome
            outcome.then(partial(self._decided, exchange, ruling))
        else:
            self._apply(exchange, ruling, outcome)

    def _decided(self, exchange: Exchange, ruling: Ruling, outcome: Outcome) -> None:
        """Continue: the store has answered."""
        ruling.pending = None
        try:
            self._apply(exchange, ruling, outcome)
        except Exception as error:  # noqa: BLE001 - judged in one place
            self.fail(exchange, error)

    def _apply(self, exchange: Exchange, ruling: Ruling, outcome: Outcome | None) -> None:
        """Refuse the request, make it wait or forward it, as the limits decide."""
        if outcome is not None:
            refusal = self._gate.apply(ruling, outcome)
            if refusal is not None:
                if outcome.closed_by is not None:
                    exchange.error = "store"
                reply = reply_bytes(exchange, refusal, self._unrouted)
                remember(exchange, outcome, reply, self.access_log)
                self._send_last(exchange, reply)
                return
            if outcome.verdict.wait_us:
                self._start(exchange, partial(self._wait_turn, exchange, ruling, outcome))
                return
        step = exchange.forward()
        if step is not HEAD:
            self.advance(exchange, step)

    # What becomes of it.

    def client_left(self, exchange: Exchange) -> None:
        """Abandon an exchange: its client is gone."""
        if not exchange.error:
            self._metrics.clients_left += 1
            exchange.error = "client_left"
        exchange.status = exchange.status or CLIENT_LEFT
        ruling, task = exchange.ruling, exchange.task
        if task is not None:
            if ruling is not None:
                # The place is free immediately, not only when the task has ended.
                ruling.release()
            task.cancel()
            return
        if ruling is not None and ruling.pending is not None:
            ruling.pending.abandon()
        exchange.give_up()
        self._note(exchange)

    def advance(self, exchange: Exchange, step: Step) -> None:
        """Take the next steps, until one must wait."""
        if step is HEAD:
            return
        try:
            if step is WHOLE:
                response = whole_bytes(exchange)
                exchange.release()
                self._send_last(exchange, response)
            elif isinstance(step, Answer):
                self._reply(exchange, step)
            elif step is DONE:
                self._finish(exchange)
            elif step is LIMITS:
                assert exchange.ruling is not None
                self._ask(exchange, exchange.ruling)
            elif step is UPLOAD:
                assert exchange.connection is not None
                assert exchange.upload is not None
                exchange.pump = self._tasks.start(exchange.upload.pump(exchange.connection))
            else:
                self._start(exchange, partial(self._go_on, exchange, step))
        except Exception as error:  # noqa: BLE001 - judged in one place
            self.fail(exchange, error)

    def _start(self, exchange: Exchange, work: Callable[[], Coroutine[Any, Any, Step]]) -> None:
        """Continue in a task."""
        task = self._tasks.start(self._run(exchange, work))
        task.add_done_callback(partial(self._ended, exchange))
        exchange.task = task

    async def _run(self, exchange: Exchange, work: Callable[[], Coroutine[Any, Any, Step]]) -> None:
        """Await a step, and continue without a task if possible."""
        try:
            step = await work()
        except Exception as error:  # noqa: BLE001 - judged in one place
            exchange.task = None
            self.fail(exchange, error)
        else:
            exchange.task = None
            self.advance(exchange, step)

    async def _wait_turn(self, exchange: Exchange, ruling: Ruling, outcome: Outcome) -> Step:
        """Wait in the queue of a policy; return the next step."""
        connection = exchange.request.connection
        refusal = await self._gate.wait(ruling, outcome, lambda: connection.transport is None)
        if refusal is not None:
            return refusal
        return await self._go_on(exchange, exchange.forward())

    async def _go_on(self, exchange: Exchange, step: Step) -> Step:
        """Await the steps that must wait; return the first one that needs no task."""
        while True:
            if step is CONNECT:
                try:
                    connection = await exchange.connect()
                except UpstreamError as error:
                    step = exchange.failed(error)
                else:
                    step = exchange.connected(connection)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                step = exchange.forward()
            elif step is RELAY or step is TUNNEL:
                step = await self._pass_on(exchange, step)
            else:
                return step

    @staticmethod
    async def _pass_on(exchange: Exchange, step: Step) -> Step:
        """Pass a response on as it arrives, or the bytes of a WebSocket; return the next step."""
        ruling, pool, connection = exchange.ruling, exchange.pool, exchange.connection
        assert ruling is not None
        assert pool is not None
        assert connection is not None
        try:
            if step is RELAY:
                await relay(exchange, ruling, connection, pool.slow_readers)
            else:
                await Tunnel(exchange, connection, ruling, pool.metrics).run()
        except UpstreamError as error:
            if exchange.status:
                raise
            return exchange.failed(error)
        exchange.release()
        return DONE

    def _ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """Clean up after a task that was cancelled, perhaps before it began."""
        if task.cancelled():
            exchange.give_up()
            self._note(exchange)

    # How it ends.

    def _reply(self, exchange: Exchange, reply: Answer) -> None:
        """End with a response generated by the gateway."""
        self._send_last(exchange, reply_bytes(exchange, reply, self._unrouted))

    def fail(self, exchange: Exchange, error: Exception) -> None:
        """End with an error; report it to the client, if that is still possible."""
        exchange.give_up()
        if isinstance(error, ClientError):
            exchange.error = exchange.error or error.kind
            exchange.keeps_alive = exchange.keeps_alive and not error.closes
            self._metrics.client_errors[error.kind] += 1
            reply = answer.problem(error.status, error.title, fields=error.fields)
        elif isinstance(error, UpstreamError):
            exchange.error = error.kind
            ruling = exchange.ruling
            if ruling is not None and ruling.route.upstream is not None:
                ruling.route.upstream.metrics.errors[error.kind] += 1
            reply = answer.failed(error)
        else:
            log.error("A request could not be served", exc_info=error)
            exchange.error = "internal"
            exchange.keeps_alive = False
            reply = answer.problem(500, "The gateway failed")
        if exchange.status:
            # Part of a response was sent already: it must not look complete.
            exchange.keeps_alive = False
            exchange.request.connection.break_off()
            self._finish(exchange)
        else:
            self._reply(exchange, reply)

    def _send_last(self, exchange: Exchange, response: bytes) -> None:
        """Send a response in one piece; it ends the exchange."""
        # Counted before it is sent: what a client has received is in the metrics, even if this
        # process is killed now.
        self._note(exchange)
        connection = exchange.request.connection
        connection.send(response)
        connection.finished(exchange)

    def _finish(self, exchange: Exchange) -> None:
        self._note(exchange)
        exchange.request.connection.finished(exchange)

    def _note(self, exchange: Exchange) -> None:
        """Count and log an exchange that has ended."""
        ruling = exchange.ruling
        duration_us = (monotonic_ns() - exchange.request.started_ns) // 1000
        if ruling is not None:
            if ruling.lease is not None:
                ruling.release()
            if ruling.meter is not None:
                # A client that left has no response, and its request counts.
                status = 0 if exchange.status == CLIENT_LEFT else exchange.status
                is_broken = bool(exchange.error)
                ruling.meter.end(status, exchange.sent, duration_us, is_broken=is_broken)
                ruling.meter = None
            if exchange.status != SWITCHED:
                # A WebSocket was counted when the protocol was switched.
                ruling.route.metrics.answered(exchange.status, duration_us)
        if self.access_log is not None:
            self.access_log.log(fill_in(self._entry, exchange, duration_us))
