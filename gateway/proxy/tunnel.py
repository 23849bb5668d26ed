"""WebSockets: after the handshake, bytes are copied both ways without being read.

A handshake is a request like any other until its upstream answers 101 (RFC 9110, section 7.8;
RFC 6455, section 4). From then on both connections belong to a `Tunnel`. What one side sends is
written to the other as it is. If one side stops reading, the tunnel stops reading from the other.
A side that ends its sending (half-close) still gets what the other one sends, and a reset becomes
a reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.base.clock import monotonic_ns
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.hang_up import HangUpWatch
from gateway.proxy.client.reset import reset
from gateway.proxy.websocket import SWITCH, SWITCHED

if TYPE_CHECKING:
    from gateway.observe.metrics import UpstreamMetrics
    from gateway.proxy.exchange import Exchange
    from gateway.proxy.ruling import Ruling
    from gateway.proxy.upstream.connection import UpstreamConnection


class Tunnel:
    """Two connections joined into one.

    Args:
        exchange: the handshake, whose answer was not passed on yet.
        connection: where the answer 101 came from.
        ruling: the route of the handshake, and what is added to its answer.
        metrics: of the upstream.
    """

    __slots__ = (
        "_client",
        "_client_connection",
        "_connection",
        "_exchange",
        "_half_silence_s",
        "_loop",
        "_metrics",
        "_ruling",
        "_silence_s",
        "_upstream",
        "done",
    )

    def __init__(
        self,
        exchange: Exchange,
        connection: UpstreamConnection,
        ruling: Ruling,
        metrics: UpstreamMetrics,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        client = exchange.request.connection
        # A stream of HTTP/2 cannot ask for another protocol.
        assert isinstance(client, ClientConnection)
        self._client_connection = client
        self._connection = connection
        self._ruling = ruling
        self._metrics = metrics
        self._silence_s, self._half_silence_s = connection.silence_s
        self._client = _ClientEnd(self, exchange, metrics)
        self._upstream = _UpstreamEnd(self, exchange, metrics)
        self._client.other, self._upstream.other = self._upstream, self._client
        self.done = self._loop.create_future()

    async def run(self) -> None:
        """Pass the answer on, and then all bytes, until both connections are closed.

        Raises:
            UpstreamError: the upstream broke off before its answer was passed on.
        """
        if self._connection.error is not None:
            raise self._connection.error
        self._metrics.tunnels += 1
        try:
            self._open()
            await self.done
        finally:
            self._metrics.tunnels -= 1

    def _open(self) -> None:
        exchange, client, upstream = self._exchange, self._client, self._upstream
        exchange.status = SWITCHED
        exchange.received = 0
        exchange.keeps_alive = False
        duration_us = (monotonic_ns() - exchange.request.started_ns) // 1000
        self._ruling.route.metrics.answered(SWITCHED, duration_us)
        client.is_full = self._client_connection.writing_paused
        due = self._loop.time() + self._silence_s
        switched = self._client_connection.switch(client, due, self._is_silent)
        client.transport, early, has_ended = switched
        client.on_lost = self._client_connection.switched_lost
        upstream.transport, upstream.is_full = self._connection.switch(upstream)
        upstream.on_lost = self._connection.connection_lost
        answer = self._connection.answer
        head, first = answer.head, answer.take()
        added = self._ruling.added_fields
        fields = head.fields
        if head.tells_limits:
            fields, added = self._ruling.route.combine_limits(fields, added)
        client.transport.write(b"%b%b\r\n%b%b\r\n" % (head.status_line, fields, added, SWITCH))
        if first:
            upstream.data_received(first)
        if upstream.transport is None:
            # It has answered and closed: nothing can be sent to it.
            client.transport.close()
            return
        if early:
            client.data_received(early)
        if has_ended:
            client.eof_received()
        client.read()
        upstream.read()

    def _is_silent(self) -> None:
        """Close if nothing arrived within the time limit since it was last set."""
        due = max(self._client.seen, self._upstream.seen) + self._silence_s
        if due > self._loop.time():
            self._client_connection.due = due
            return
        self._exchange.error = "tunnel_idle"
        self._client.give_up()
        self._upstream.give_up()

    def half(self) -> None:
        """Shorten the idle limit of the other side: one side has ended its sending.

        A side that has closed completely looks the same at first.
        """
        self._silence_s = min(self._silence_s, self._half_silence_s)
        self._client_connection.due = self._loop.time() + self._silence_s

    def lost(self) -> None:
        """Note that one side is gone."""
        if self._client.transport is self._upstream.transport is None and not self.done.done():
            self.done.set_result(None)


class _TunnelSide(asyncio.Protocol):
    """One side of a tunnel.

    Attributes:
        other: the other side.
        transport: of this side; None when it is lost.
        on_lost: called when it is lost.
        is_full: whether it must read what was sent to it before it gets more.
        has_ended: whether nothing more will come from it.
        seen: the loop's time at which it last sent something.
    """

    error = ""
    """The error recorded for the request if this side breaks off."""

    def __init__(self, tunnel: Tunnel, exchange: Exchange, metrics: UpstreamMetrics) -> None:
        self._loop = asyncio.get_running_loop()
        self._tunnel = tunnel
        self._exchange = exchange
        self._metrics = metrics
        # Until the tunnel sets the other side.
        self.other: _TunnelSide = self
        self.transport: asyncio.Transport | None = None
        self.on_lost: Callable[[Exception | None], None] = lambda _: None
        self.is_full = False
        self.has_ended = False
        self.seen = self._loop.time()
        self._hang_up_watch = HangUpWatch(lambda: self.other.is_full, self._hung_up)

    def _hung_up(self) -> None:
        self._exchange.error = self._exchange.error or self.error
        if self.other.transport is not None:
            reset(self.other.transport)
        if self.transport is not None:
            self.transport.abort()

    def pass_on(self, data: bytes) -> None:
        """Send what came from this side to the other one."""
        self.seen = self._loop.time()
        if self.other.transport is not None:
            self.other.transport.write(data)

    def read(self) -> None:
        """Read from this side for as long as the other one takes the bytes."""
        if self.transport is None or self.has_ended:
            return
        if self.other.is_full:
            self.transport.pause_reading()
            self._hang_up_watch.begin(self.transport)
        else:
            self.transport.resume_reading()

    def give_up(self) -> None:
        """Close, and discard what was sent and not read."""
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size():
            reset(self.transport)
        else:
            self.transport.close()

    # What the transport calls.

    def pause_writing(self) -> None:
        """Stop reading from the other side: this one does not keep up."""
        self.is_full = True
        self.other.read()

    def resume_writing(self) -> None:
        """Resume reading from the other side."""
        self.is_full = False
        self.other.read()

    def eof_received(self) -> bool:
        """Note that this side sends no more; the other direction continues if possible."""
        self.has_ended = True
        transport, other = self.transport, self.other.transport
        if transport is None or other is None:
            return False
        if self.other.has_ended:
            other.close()
            return False
        self._tunnel.half()
        if other.can_write_eof():
            other.write_eof()
        else:
            # TLS has no half-close.
            other.close()
        return transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other side in the same way."""
        self.transport = None
        other = self.other.transport
        if exc is not None:
            self._exchange.error = self._exchange.error or self.error
        if other is not None:
            if exc is not None:
                reset(other)
            else:
                other.close()
        self.on_lost(exc)
        self._tunnel.lost()


class _ClientEnd(_TunnelSide):
    error = "client_left"

    def data_received(self, data: bytes) -> None:
        """Note that the client has sent something."""
        self._exchange.received += len(data)
        self._metrics.tunnel_received += len(data)
        self.pass_on(data)


class _UpstreamEnd(_TunnelSide):
    error = "closed"

    def data_received(self, data: bytes) -> None:
        """Note that the upstream has sent something."""
        self._exchange.sent += len(data)
        self._metrics.tunnel_sent += len(data)
        self.pass_on(data)
