"""One request and its response: a state machine that returns what to do next.

`Exchange` immediately does everything that needs no waiting: it chooses a target, sends the
request over an idle connection, checks the head of the response, and writes a small response in
one piece. If it has to wait, it returns a `Step`. How to wait is left to `driver.py`, which uses a
callback or a task and then calls the method that the step names.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from gateway.base.clock import US, monotonic_ns
from gateway.base.errors import (
    UpstreamClosedError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
    UpstreamUnprocessedError,
)
from gateway.proxy.attempts import Attempts
from gateway.proxy.direct_responses import intercepted
from gateway.proxy.grpc import as_status, outcome_of
from gateway.proxy.request_head import request_head
from gateway.proxy.step import CONNECT, HEAD, RELAY, TUNNEL, UPLOAD, WHOLE, Pause, Step
from gateway.proxy.upload import Upload, take_body
from gateway.proxy.upstream.answer_head import without_length
from gateway.proxy.upstream.balancing import NO_TICKET
from gateway.proxy.upstream.retry import IDEMPOTENT
from gateway.proxy.websocket import SWITCH, SWITCHED, may_open_websocket

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.ruling import Ruling
    from gateway.proxy.upstream.answer_head import AnswerHead
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.pool import AttemptOutcome, Judge, TargetPool
    from gateway.proxy.upstream.retry import RetryRule
    from gateway.proxy.upstream.targets import Upstream

NS: Final = 1e9


class ExchangeCallbacks(Protocol):
    """What an exchange calls when an event that it has waited for happens."""

    def advance(self, exchange: Exchange, step: Step) -> None:
        """Take the next step."""

    def fail(self, exchange: Exchange, error: Exception) -> None:
        """End the exchange with an error."""

    def client_left(self, exchange: Exchange) -> None:
        """Abandon an exchange: its client is gone."""


class Exchange:
    """The state of one request and its response, and the next step.

    Attributes:
        request: the client's request.
        ruling: what was decided; None until the route is known.
        keeps_alive: whether the client's connection may carry another request.
        status: the status of the response; 0 before its head is written.
        sent: bytes of body that were written to the client.
        received: bytes that the client sent through a tunnel; -1 if there is none.
        error: what went wrong, as a short kind.
        upstream_name: the targets that the request was sent to, for the log.
        upstream_us: the time until the first byte of the response; -1 if none came.
        pool: the target of the present attempt; None before the first one.
        deadline: the loop's time at which the client of a gRPC call stops waiting, `inf` for never;
            0 for all other requests.
        connection: the upstream connection of the present attempt; None without one.
        attempts: the attempts so far, if there may be several and the first was not the only one.
        upload: the body while it is streamed; None if all of it has arrived.
        pump: the task that streams it.
        task: the task that works on the exchange, if any.
        trailers: header lines after the body of the response, for a client of HTTP/2.
    """

    __slots__ = (
        "_body",
        "_callbacks",
        "_framing",
        "_may_repeat",
        "_may_switch",
        "_sent_ns",
        "_ticket",
        "_was_refused",
        "attempts",
        "connection",
        "deadline",
        "error",
        "keeps_alive",
        "pool",
        "pump",
        "received",
        "request",
        "ruling",
        "sent",
        "status",
        "task",
        "trailers",
        "upload",
        "upstream_name",
        "upstream_us",
    )

    def __init__(self, request: Request, callbacks: ExchangeCallbacks) -> None:
        self.request = request
        self._callbacks = callbacks
        self.ruling: Ruling | None = None
        self.keeps_alive: bool = not request.message.should_close
        self.status = 0
        self.sent = 0
        self.received = -1
        self.error = ""
        self.upstream_name = ""
        self.upstream_us = -1
        self.pool: TargetPool | None = None
        self.connection: UpstreamConnection | None = None
        self.deadline = 0.0
        self.attempts: Attempts | None = None
        self.upload: Upload | None = None
        self.pump: asyncio.Task[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.trailers = b""
        self._body: bytes | None = None
        self._framing = b""
        self._may_switch = False
        self._may_repeat = False
        self._was_refused = False
        self._sent_ns = 0
        self._ticket = NO_TICKET

    # What the client's connection sees.

    @property
    def is_http_1_0(self) -> bool:
        """Return whether the client uses HTTP/1.0, which has no interim responses."""
        return self.request.is_http_1_0

    @property
    def is_waiting(self) -> bool:
        """Return whether the request only waits for its turn in a queue."""
        return self.ruling is not None and self.ruling.is_waiting

    @property
    def is_endless(self) -> bool:
        """Return whether an upstream that announced no length is sending the response."""
        return self.connection is not None and self.connection.answer.length is None

    def client_left(self) -> None:
        """Stop serving: the client is gone before its response was complete."""
        self._callbacks.client_left(self)

    # What is next.

    def forward(self) -> Step:
        """Answer the request, or choose a target and send it there if a connection is idle.

        Raises:
            ClientError: the request cannot be forwarded.
            UpstreamError: nothing may be sent to the upstream now.
        """
        request, ruling = self.request, self.ruling
        assert ruling is not None
        route = ruling.route
        upstream = route.upstream
        if upstream is None:
            assert route.direct_response is not None
            return route.direct_response(request)
        self._body, self._framing, self.upload = take_body(request, route, self._body)
        if self.upload is not None and self.deadline:
            self.upload.quiet_s = upstream.silence_s
        if request.message.upgrade and may_open_websocket(request, route):
            self._may_switch = True
            self._framing += SWITCH
        pool = upstream.only or self._pick(upstream)
        self.pool = pool
        self.upstream_name = pool.name if self.attempts is None else self.attempts.named(pool)
        self._may_repeat = True
        connection = pool.take_idle()
        return self._connect() if connection is None else self._send(pool, connection, ruling)

    async def connect(self) -> UpstreamConnection:
        """Wait for a connection to the target.

        Raises:
            UpstreamError: no connection could be opened.
        """
        assert self.pool is not None
        due = inf if self.attempts is None else self.attempts.due
        return await self.pool.connect(min(due, self.deadline) if self.deadline else due)

    def connected(self, connection: UpstreamConnection) -> Step:
        """Send the request over a connection that is new, or was handed over by another request."""
        assert self.pool is not None
        assert self.ruling is not None
        self._may_repeat = self._may_repeat and connection.is_used
        return self._send(self.pool, connection, self.ruling)

    def failed(self, error: UpstreamError) -> Step:
        """Continue after an attempt that brought no response.

        Raises:
            ClientError: the client is to blame.
            UpstreamError: as given; no other attempt is allowed.
        """
        pool, connection, upload = self.pool, self.connection, self.upload
        assert pool is not None
        if connection is not None:
            connection.abort()
            if self._is_lost_in_reuse(connection, error) or self._is_unprocessed(error):
                # Only once (RFC 9112, section 9.3.1; RFC 9113, section 8.7).
                self._may_repeat, self._was_refused = False, True
                self.connection = None
                return self._connect()
        if upload is not None:
            self._stop_upload(upload)
            if upload.error is not None:
                raise upload.error from None
        if pool.judge is not None:
            self._judge(pool.judge, error)
        if not self._may_follow(pool, error):
            raise error
        return self._next()

    def head_arrived(self) -> Step:
        """Continue: the head of the response has arrived, or is certain not to.

        Raises:
            ClientError: there is no response, and the client is to blame.
            UpstreamError: there is no valid response, and no other attempt is allowed.
        """
        pool, connection, ruling = self.pool, self.connection, self.ruling
        assert pool is not None
        assert connection is not None
        assert ruling is not None
        answer = connection.answer
        if not answer.has_head:
            return self.failed(connection.error or UpstreamClosedError("no response"))
        self.upstream_us = (monotonic_ns() - self._sent_ns) // 1000
        pool.metrics.first_byte.observe(self.upstream_us)
        outcome = outcome_of(answer) if self.deadline else answer.status
        if pool.judge is not None:
            self._judge(pool.judge, as_status(outcome))
        upload = self.upload
        if upload is not None:
            # The rest of the client's body may come too late; then the connection must end.
            self.keeps_alive = self.keeps_alive and upload.is_done
            if upload.is_done:
                self._body = upload.kept
        route = ruling.route
        if route.retry is not None and self._may_follow(pool, outcome):
            connection.read_now()
            self.release()
            return self._next()
        if route.intercepted is not None and answer.status in route.intercepted:
            if ruling.meter is not None:
                ruling.meter.replaced(answer.head.fields)
            self.give_up()
            return intercepted(answer.status, answer.head.fields)
        if answer.status == SWITCHED:
            return TUNNEL
        if answer.is_complete and not self.request.connection.writing_paused:
            return WHOLE
        if not answer.is_complete and isinstance(connection.error, UpstreamProtocolError):
            # Nothing irrevocable has been sent to the client yet.
            raise connection.error
        return RELAY

    def release(self) -> None:
        """Return the connection to its pool: the response was passed on, or is not needed."""
        pool, connection, upload = self.pool, self.connection, self.upload
        assert pool is not None
        assert connection is not None
        self.connection = None
        if upload is None or upload.is_done:
            pool.give_back(connection)
        else:
            # The response arrived before the request was sent: neither connection can be reused.
            self._stop_upload(upload)
            connection.abort()

    def give_up(self) -> None:
        """Close what is in use: nothing more is expected from the upstream."""
        if self.upload is not None:
            self._stop_upload(self.upload)
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.forget()
        if self.pool is not None and self.pool.judge is not None:
            self._judge(self.pool.judge, None)

    # How the steps are done.

    def _pick(self, upstream: Upstream) -> TargetPool:
        """Choose a target.

        Raises:
            UpstreamError: nothing may be sent to the upstream now.
        """
        self._ticket = upstream.admit()
        tried = () if self.attempts is None else self.attempts.tried
        return upstream.pick(upstream.key_of(self.request), tried)

    def _connect(self) -> Step:
        """Wait for a connection; the time limit of all attempts starts here."""
        assert self.ruling is not None
        rule = self.ruling.route.retry
        if rule is not None and self.attempts is None:
            self.attempts = self._begin_attempts(rule)
        return CONNECT

    def _send(self, pool: TargetPool, connection: UpstreamConnection, ruling: Ruling) -> Step:
        """Send the request, as far as it has arrived."""
        request, upload = self.request, self.upload
        self.connection = connection
        self._sent_ns = monotonic_ns()
        pool.metrics.requests += 1
        head = request_head(request, ruling, pool.authority, self._framing)
        try:
            connection.begin(
                head + self._body if self._body else head,
                is_head=request.method == "HEAD",
                on_interim=None if request.is_http_1_0 else self._on_interim,
                is_whole=upload is None,
                may_switch=self._may_switch,
                deadline=self.deadline,
                on_head=self._on_head,
            )
        except UpstreamError as error:
            return self.failed(error)
        if ruling.route.retry is not None:
            self._limit(connection, ruling.route.retry)
        return HEAD if upload is None else UPLOAD

    def _on_head(self) -> None:
        try:
            step = self.head_arrived()
        except Exception as error:  # noqa: BLE001 - judged in one place
            self._callbacks.fail(self, error)
        else:
            self._callbacks.advance(self, step)

    def _on_interim(self, head: AnswerHead) -> None:
        """Pass an interim response on (RFC 9110, section 15.2)."""
        request = self.request
        if head.status != 100 or "Expect" in request.headers:
            # It has no body, and so must not have a length (RFC 9110, section 8.6).
            fields = head.fields if head.length is None else without_length(head.fields)
            request.connection.send(b"%b%b\r\n\r\n" % (head.status_line, fields))

    def _limit(self, connection: UpstreamConnection, rule: RetryRule) -> None:
        """Shorten the time limit of an attempt that has just begun if another one may follow."""
        attempts = self.attempts
        may_retry = rule.methods is None or self.request.method in rule.methods
        has_time = rule.timeout_s if may_retry and self._is_kept(rule) else None
        if attempts is None:
            connection.limit(has_time, inf)
        else:
            connection.limit(None if attempts.is_last else has_time, attempts.due)

    def _begin_attempts(self, rule: RetryRule) -> Attempts:
        assert self.ruling is not None
        upstream = self.ruling.route.upstream
        assert upstream is not None
        gone_s = (monotonic_ns() - self.request.started_ns) / NS - self.ruling.wait_us / US
        due = asyncio.get_running_loop().time() + upstream.total_s - gone_s
        return Attempts(rule, upstream, self.request.method, due)

    def _may_follow(self, pool: TargetPool, outcome: int | UpstreamError) -> bool:
        """Return whether another attempt may follow; count it if so."""
        assert self.ruling is not None
        rule = self.ruling.route.retry
        if rule is None or self.status:
            return False
        if self.attempts is None:
            self.attempts = self._begin_attempts(rule)
        answer = None if self.connection is None else self.connection.answer
        return self.attempts.may_follow(pool, outcome, answer, is_kept=self._is_kept(rule))

    def _is_kept(self, rule: RetryRule) -> bool:
        """Return whether the whole body is here and may be sent again."""
        return self._body is not None and len(self._body) <= rule.max_body

    def _next(self) -> Step:
        """Start another attempt."""
        assert self.attempts is not None
        self.connection = None
        pause_s = self.attempts.pause_s(asyncio.get_running_loop().time())
        return self.forward() if pause_s is None else Pause(pause_s)

    def _is_lost_in_reuse(self, connection: UpstreamConnection, error: UpstreamError) -> bool:
        """Return whether to resend: the upstream closed an idle connection just as it was used."""
        return (
            self._may_repeat
            and self.upload is None
            and isinstance(error, UpstreamClosedError)
            and not connection.answer.has_begun
            and self.request.method in IDEMPOTENT
        )

    def _is_unprocessed(self, error: UpstreamError) -> bool:
        """Return whether to resend: the upstream says that it has done nothing with the request."""
        return isinstance(error, UpstreamUnprocessedError) and not (
            self._was_refused or self.upload is not None
        )

    def _judge(self, judge: Judge, outcome: AttemptOutcome) -> None:
        """Report the outcome of an attempt to the judge of the target."""
        if isinstance(outcome, UpstreamTimeout) and outcome.phase == "total":
            # A client that is slow with its body can use up the whole time limit.
            # So can the client itself, with a short deadline.
            is_own = self.request.payload.is_eof() and self.deadline in (0, inf)
            outcome = outcome if is_own else None
        # A ticket is valid for one report: an attempt may still be abandoned after its head.
        ticket, self._ticket = self._ticket, NO_TICKET
        judge.observe(ticket, outcome)

    def _stop_upload(self, upload: Upload) -> None:
        """Stop streaming the body, if it has not all been sent."""
        if upload.is_done:
            if upload.kept is not None:
                self._body = upload.kept
            return
        pump, self.pump = self.pump, None
        if pump is not None:
            # From here on the client's time limit is that of the next step, which the pump must not
            # touch when it ends.
            self.request.connection.due = inf
            pump.cancel()
