"""Forward one request and bring its answer back.

A small answer that is there as a whole is written with its head in one piece. Whatever is
larger or slower flows through with backpressure on both sides, and a body that is uploaded
flows at the same time as the answer comes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import inf
from typing import TYPE_CHECKING, Any, Final

from gateway.base.clock import monotonic_ns, wall_us
from gateway.base.errors import UpstreamClosedError, UpstreamError
from gateway.base.tasks import Tasks
from gateway.proxy.attempts import Attempts, connect, first_byte_s, may_repeat, wants_another
from gateway.proxy.direct_responses import InterceptedAnswer
from gateway.proxy.head import (
    http_date,
    takes_trailers,
)
from gateway.proxy.request_head import request_head
from gateway.proxy.tunnel import SWITCH, SWITCHED, Tunnel, may_open_websocket
from gateway.proxy.upload import Upload, chunk, take_body
from gateway.proxy.upstream.answer_head import (
    added_to,
    trailer_lines,
    without_length,
    without_limits,
)
from gateway.proxy.upstream.answer_reader import NO_BODY

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.routes import Route
    from gateway.proxy.upstream.answer_reader import AnswerReader
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.pool import TargetPool, Upstream

    Done = Callable[[Request, Exception | None, Coroutine[Any, Any, None] | None], None]

CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


class Forwarder:
    """Brings requests to upstreams and answers back.

    Args:
        tasks: keeps the tasks of uploads.
        done: told what became of a request that was forwarded at once: nothing more if it
            is answered, an error, or the rest of the work, which needs a task.
    """

    def __init__(self, tasks: Tasks, done: Done) -> None:
        self._tasks = tasks
        self._done = done

    def forward_at_once(
        self, request: Request, upstream: Upstream
    ) -> Coroutine[Any, Any, None] | None:
        """Send a request on if that can be done without waiting; `done` is told the rest.

        Returns:
            The work that needs a task, if nothing was sent, because there is no idle connection
            to its upstream or its body is not here yet.
        """
        body, framing, upload = take_body(request)
        if upload is not None:
            return self.forward(request, upstream)
        pool = upstream.only
        if pool is None:
            pool = upstream.pick(request)
        connection = pool.take_idle()
        if connection is None:
            return self._forward_to(request, pool, None)
        request.pool = pool
        request.lent = connection
        request.upstream = pool.name
        request.sent_ns = monotonic_ns()
        pool.metrics.requests += 1
        connection.begin(
            request_head(request, pool.authority, framing) + body,
            is_head=request.method == "HEAD",
            on_interim=None if request.is_http_1_0 else request.pass_interim_on,
            is_whole=True,
            on_head=self._answered,
            request=request,
        )
        route = request.route
        if route is not None and route.retry is not None:
            connection.limit(first_byte_s(request, route.retry), inf)
        return None

    def give_up(self, request: Request) -> None:
        """Nobody waits for the answer any more."""
        request.lent.forget()
        if request.pool.judge is not None:
            request.pool.judge.observe(request, None)

    def _answered(self, request: Request) -> None:
        """The head of an answer is there, or will never be."""
        connection = request.lent
        error: Exception | None = connection.error
        rest = None
        route = request.route
        try:
            if connection.answer.has_head:
                _note_head(request, connection)
                if route is not None and route.retry is not None:
                    rest = self._after_first(request, route, connection.answer.status)
                if rest is not None:
                    connection.read_now()
                    request.pool.give_back(connection)
                elif (
                    route is not None
                    and route.intercepted is not None
                    and connection.answer.status in route.intercepted
                ):
                    error = InterceptedAnswer(connection.answer)
                    connection.abort()
                elif connection.answer.is_complete and not request.connection.writing_paused:
                    error = None
                    _send_whole(request, connection)
                    request.pool.give_back(connection)
                elif error is None:
                    rest = self._stream_rest(request, connection)
            elif may_repeat(request, connection):
                rest = self._forward_to(request, request.pool, None)
            else:
                if request.pool.judge is not None:
                    request.pool.judge.observe(request, connection.error)
                if route is not None and route.retry is not None and connection.error is not None:
                    rest = self._after_first(request, route, connection.error)
        except Exception as failure:  # noqa: BLE001 - judged where all failures are
            error = failure
        self._done(request, error, rest)

    def _after_first(
        self, request: Request, route: Route, outcome: int | UpstreamError
    ) -> Coroutine[Any, Any, None] | None:
        """The tries that follow a first one which was forwarded at once, if any may."""
        if route.retry is None or route.upstream is None:
            return None
        tries = Attempts(request, route.retry, route.upstream)
        if not tries.may_follow(request.pool, outcome):
            return None
        return self._go_on(request, tries, None, None)

    async def _stream_rest(self, request: Request, connection: UpstreamConnection) -> None:
        try:
            await _stream(request, connection)
        except BaseException:
            connection.abort()
            raise
        request.pool.give_back(connection)

    async def forward(self, request: Request, upstream: Upstream) -> None:
        """Send the request on and its answer back to the client.

        Raises:
            ClientError: the request's body is not valid, too large or too slow.
            UpstreamError: no whole, valid answer came; if `request.status` is set, a part of
                one was already passed on.
        """
        pool = upstream.pick(request)
        await self._forward_to(request, pool, pool.take_idle())

    async def _forward_to(
        self, request: Request, pool: TargetPool, connection: UpstreamConnection | None
    ) -> None:
        """Send the request to a target, and on to others as far as its route allows."""
        route = request.route
        if route is None or route.retry is None or route.upstream is None:
            await self._judged(request, pool, connection, None)
        else:
            tries = Attempts(request, route.retry, route.upstream)
            await self._go_on(request, tries, pool, connection)

    async def _go_on(
        self,
        request: Request,
        tries: Attempts,
        pool: TargetPool | None,
        connection: UpstreamConnection | None,
    ) -> None:
        """Try until there is an answer to be passed on, or nothing may be tried any more."""
        while True:
            if pool is None:
                pool = await tries.next_target()
                connection = pool.take_idle()
            try:
                if await self._judged(request, pool, connection, tries):
                    return
            except UpstreamError as error:
                if request.status or not tries.may_follow(pool, error):
                    raise
            pool = None

    async def _judged(
        self,
        request: Request,
        pool: TargetPool,
        connection: UpstreamConnection | None,
        tries: Attempts | None,
    ) -> bool:
        """One try at a target, whose judge is told how that went; False if another follows."""
        try:
            return await self._try(request, pool, connection, tries)
        except UpstreamError as error:
            if pool.judge is not None and not request.status:
                pool.judge.observe(request, error)
            raise
        except BaseException:
            if pool.judge is not None:
                pool.judge.observe(request, None)
            raise

    async def _try(
        self,
        request: Request,
        pool: TargetPool,
        connection: UpstreamConnection | None,
        tries: Attempts | None,
    ) -> bool:
        may_switch = may_open_websocket(request)
        body, framing, upload = take_body(request)
        if may_switch:
            framing += SWITCH
        request.pool = pool
        request.upstream = pool.name if tries is None else tries.named(pool)
        if connection is None:
            connection = await connect(pool, tries)
        is_reused = connection.answer.is_complete
        pool.metrics.requests += 1
        while True:
            request.lent = connection
            request.sent_ns = monotonic_ns()
            try:
                connection.begin(
                    request_head(request, pool.authority, framing) + body,
                    is_head=request.method == "HEAD",
                    on_interim=None if request.is_http_1_0 else request.pass_interim_on,
                    is_whole=upload is None,
                )
                connection.answer.may_switch = may_switch
                if tries is not None:
                    tries.limit(connection)
                if upload is not None:
                    is_last = await self._exchange_bodies(request, connection, upload, tries)
                else:
                    is_last = await _pass_answer_on(request, connection, tries)
            except UpstreamClosedError:
                connection.abort()
                if not is_reused or upload is not None or not may_repeat(request, connection):
                    raise
                # Only once (RFC 9112, section 9.3.1).
                is_reused = False
                connection = await connect(pool, tries)
            except BaseException:
                connection.abort()
                raise
            else:
                pool.give_back(connection)
                return is_last

    async def _exchange_bodies(
        self,
        request: Request,
        connection: UpstreamConnection,
        upload: Upload,
        tries: Attempts | None,
    ) -> bool:
        """Send the request's body while waiting for the answer, which may come before its end.

        Returns:
            False if the answer was not passed on, because the request is sent again.
        """
        pump = self._tasks.start(upload.pump(connection))
        try:
            await connection.head()
            _note_head(request, connection)
            if not upload.is_done:
                # The client's rest may come too late; then the connection must end.
                request.keeps_alive = False
            elif upload.kept is not None:
                request.body = upload.kept
            if wants_another(request, connection, tries):
                return False
            await _stream(request, connection)
        except UpstreamError:
            if upload.is_done and upload.kept is not None:
                request.body = upload.kept
            if upload.error is not None and not request.status:
                raise upload.error from None
            raise
        finally:
            if not upload.is_done:
                # The answer was there before the request was: neither connection can be
                # used again. From here on the client's time is counted for what comes next,
                # which the pump, when its end reaches it, must not touch.
                request.connection.due = inf
                pump.cancel()
                connection.abort()
        return True


async def _pass_answer_on(
    request: Request, connection: UpstreamConnection, tries: Attempts | None
) -> bool:
    """Wait for the answer; returns False if the request is sent again instead."""
    await connection.head()
    _note_head(request, connection)
    if wants_another(request, connection, tries):
        return False
    await _stream(request, connection)
    return True


def _note_head(request: Request, connection: UpstreamConnection) -> None:
    request.upstream_us = (monotonic_ns() - request.sent_ns) // 1000
    pool = request.pool
    pool.metrics.first_byte.observe(request.upstream_us)
    if pool.judge is not None:
        pool.judge.observe(request, connection.answer.status)


def _send_whole(request: Request, connection: UpstreamConnection) -> None:
    """Answer in one piece."""
    answer = connection.answer
    body = connection.read_now()
    framing = b""
    if answer.length is None and request.method != "HEAD" and answer.status not in NO_BODY:
        framing = b"Content-Length: %d\r\n" % len(body)
    request.status = answer.status
    request.sent = len(body)
    if answer.trailers and _takes_trailers(request):
        framing = _chunked(answer)
        body = chunk(body, is_chunked=bool(body)) + _last_chunk(answer)
    request.connection.send(_answer_head(request, answer, framing, body))


async def _stream(request: Request, connection: UpstreamConnection) -> None:
    """Answer piece by piece; in one where all is there."""
    answer = connection.answer
    client = request.connection
    route = request.route
    if route is not None and route.intercepted is not None and answer.status in route.intercepted:
        raise InterceptedAnswer(answer)
    if answer.status == SWITCHED:
        await Tunnel(request, connection).run()
        return
    if answer.is_complete:
        _send_whole(request, connection)
        await client.drained()
        return
    is_chunked = False
    has_trailers = False
    framing = b""
    if answer.length is not None:
        pass
    elif request.is_http_1_0:
        request.keeps_alive = False
    else:
        is_chunked = True
        has_trailers = answer.head.is_chunked and _takes_trailers(request)
        framing = _chunked(answer) if has_trailers else CHUNKED
    data = connection.read_now()
    request.status = answer.status
    request.sent = len(data)
    body = chunk(data, is_chunked=is_chunked) if data else b""
    client.send(_answer_head(request, answer, framing, body))
    readers = request.pool.slow_readers
    with readers.stream(connection):
        while True:
            if client.writing_paused:
                # The client is slow, not the upstream.
                connection.hold_back()
                with readers.one(connection):
                    await client.drained()
                connection.flow()
            data = await connection.read()
            if not data:
                break
            request.sent += len(data)
            client.send(chunk(data, is_chunked=is_chunked))
    if is_chunked:
        client.send(_last_chunk(answer) if has_trailers else b"0\r\n\r\n")
    await client.drained()


def _takes_trailers(request: Request) -> bool:
    return not request.is_http_1_0 and takes_trailers(request.message.raw_headers)


def _chunked(answer: AnswerReader) -> bytes:
    """The framing of an answer that may have trailers, with what the upstream says of them."""
    announced = answer.head.announced
    return CHUNKED + announced[2:] + b"\r\n" if announced else CHUNKED


def _last_chunk(answer: AnswerReader) -> bytes:
    return b"0\r\n%b\r\n" % trailer_lines(answer.trailers)


def _answer_head(request: Request, answer: AnswerReader, framing: bytes, body: bytes) -> bytes:
    """The head for the client, with as much of the body as is there."""
    head = answer.head
    status_line = head.status_line
    fields = head.fields
    if answer.status == 204 and head.length is not None:
        # RFC 9110, section 8.6: not even a length of 0.
        fields = without_length(fields)
    added = request.added_fields
    if head.tells_limits:
        fields = without_limits(fields, added)
    added = added_to(fields, added)
    route = request.route
    if route is not None and route.answer_edit is not None:
        lines = fields[2:] + b"\r\n" + added if fields else added
        fields, added = b"", route.answer_edit.apply(lines, request)
    if not head.has_date:
        framing += b"Date: %b\r\n" % http_date(wall_us() // 1_000_000)
    if not request.keeps_alive:
        framing += b"Connection: close\r\n"
    elif request.is_http_1_0:
        framing += b"Connection: keep-alive\r\n"
    return b"%b%b\r\n%b%b\r\n%b" % (status_line, fields, added, framing, body)
