"""Responses as clients get them: those of upstreams, and the gateway's own.

A small response that is here as a whole is written with its head in one piece. What is larger or
slower flows through with backpressure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.base.clock import wall_us
from gateway.proxy.direct_responses import ErrorPages, response_head
from gateway.proxy.head import http_date, takes_trailers
from gateway.proxy.upload import chunk
from gateway.proxy.upstream.answer_head import (
    added_to,
    trailer_lines,
    without_length,
    without_limits,
)
from gateway.proxy.upstream.answer_reader import NO_BODY

if TYPE_CHECKING:
    from gateway.http.answer import Answer
    from gateway.proxy.exchange import Exchange
    from gateway.proxy.request import Request
    from gateway.proxy.ruling import Ruling
    from gateway.proxy.upstream.answer_reader import AnswerReader
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.small_buffer_reader import SlowReaders

CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


def send_reply(exchange: Exchange, reply: Answer, pages: ErrorPages | None) -> bytes:
    """Send a response of the gateway's own; returns its bytes.

    Args:
        exchange: what it ends.
        reply: the response.
        pages: the forms that errors take where no route is known; None for problem documents.
    """
    request, ruling = exchange.request, exchange.ruling
    if not request.payload.is_eof():
        # A body that nothing will read ends the connection.
        exchange.keeps_alive = False
    connection = b"" if exchange.keeps_alive else b"Connection: close\r\n"
    if exchange.keeps_alive and request.is_http_1_0:
        connection = b"Connection: keep-alive\r\n"
    added = b""
    edit = None
    if ruling is not None:
        pages = ruling.route.pages
        edit = ruling.route.answer_edit
        added = ruling.added_fields
    if pages is not None:
        reply = pages.render(reply, request)
    added = added_to(reply.fields, added)
    if edit is not None:
        added = edit.apply(reply.fields + added, request)
        reply = reply._replace(fields=b"")
    data = response_head(reply, connection, added)
    exchange.status = reply.status
    if request.method != "HEAD":
        exchange.sent = len(reply.body)
        data += reply.body
    request.connection.send(data)
    return data


def send_whole(exchange: Exchange) -> None:
    """Pass a response on that is here as a whole, in one piece."""
    request, ruling, connection = exchange.request, exchange.ruling, exchange.connection
    assert ruling is not None
    assert connection is not None
    answer = connection.answer
    body = connection.read_now()
    framing = b""
    if answer.length is None and request.method != "HEAD" and answer.status not in NO_BODY:
        framing = b"Content-Length: %d\r\n" % len(body)
    exchange.status = answer.status
    exchange.sent = len(body)
    if answer.trailers and _takes_trailers(request):
        framing = _chunked(answer)
        body = chunk(body, is_chunked=bool(body)) + _last_chunk(answer)
    request.connection.send(_head(exchange, ruling, answer, framing, body))


async def relay(
    exchange: Exchange, ruling: Ruling, connection: UpstreamConnection, readers: SlowReaders
) -> None:
    """Pass a response on as it comes.

    Args:
        exchange: what it belongs to.
        ruling: its route, and what is added to its head.
        connection: where it comes from.
        readers: clients that do not take what comes from this target.

    Raises:
        UpstreamError: the response broke off.
    """
    answer = connection.answer
    request = exchange.request
    client = request.connection
    if answer.is_complete:
        send_whole(exchange)
        await client.drained()
        return
    is_chunked = False
    has_trailers = False
    framing = b""
    if answer.length is not None:
        pass
    elif request.is_http_1_0:
        exchange.keeps_alive = False
    else:
        is_chunked = True
        has_trailers = answer.head.is_chunked and _takes_trailers(request)
        framing = _chunked(answer) if has_trailers else CHUNKED
    data = connection.read_now()
    exchange.status = answer.status
    exchange.sent = len(data)
    body = chunk(data, is_chunked=is_chunked) if data else b""
    client.send(_head(exchange, ruling, answer, framing, body))
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
            exchange.sent += len(data)
            client.send(chunk(data, is_chunked=is_chunked))
    if is_chunked:
        client.send(_last_chunk(answer) if has_trailers else b"0\r\n\r\n")
    await client.drained()


def _takes_trailers(request: Request) -> bool:
    return not request.is_http_1_0 and takes_trailers(request.message.raw_headers)


def _chunked(answer: AnswerReader) -> bytes:
    """Return the framing of a response that may have trailers, and what announces them."""
    announced = answer.head.announced
    return CHUNKED + announced[2:] + b"\r\n" if announced else CHUNKED


def _last_chunk(answer: AnswerReader) -> bytes:
    return b"0\r\n%b\r\n" % trailer_lines(answer.trailers)


def _head(
    exchange: Exchange, ruling: Ruling, answer: AnswerReader, framing: bytes, body: bytes
) -> bytes:
    """Return the head for the client, with as much of the body as is here."""
    head = answer.head
    fields = head.fields
    if answer.status == 204 and head.length is not None:
        # RFC 9110, section 8.6: not even a length of 0.
        fields = without_length(fields)
    added = ruling.added_fields
    if head.tells_limits:
        fields = without_limits(fields, added)
    added = added_to(fields, added)
    edit = ruling.route.answer_edit
    if edit is not None:
        lines = fields[2:] + b"\r\n" + added if fields else added
        fields, added = b"", edit.apply(lines, exchange.request)
    if not head.has_date:
        framing += b"Date: %b\r\n" % http_date(wall_us() // 1_000_000)
    if not exchange.keeps_alive:
        framing += b"Connection: close\r\n"
    elif exchange.request.is_http_1_0:
        framing += b"Connection: keep-alive\r\n"
    return b"%b%b\r\n%b%b\r\n%b" % (head.status_line, fields, added, framing, body)
