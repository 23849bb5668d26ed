"""Connections to one target that speaks HTTP/2: few, each with many streams."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from gateway.base.deadlines import Watch
from gateway.base.errors import (
    UpstreamConnectError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamTlsError,
)
from gateway.base.tasks import Tasks
from gateway.proxy.upstream.http2.connection import ANSWER_S, MultiplexedConnection
from gateway.proxy.upstream.names import Resolve, resolve
from gateway.proxy.upstream.pool import H2, TargetPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.models.gateway import Target, UpstreamConfig
    from gateway.net.tls.client import UpstreamTls
    from gateway.observe.metrics import UpstreamMetrics
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.http2.stream import UpstreamStream


class StreamPool(TargetPool):
    """The connections to one target, whose streams exchanges use; arguments as in `TargetPool`.

    A connection is filled before another one is opened, and requests that come while one is being
    opened share it.
    """

    def __init__(
        self,
        target: Target,
        config: UpstreamConfig,
        metrics: UpstreamMetrics,
        max_head: int,
        tls: UpstreamTls | None = None,
        look_up: Resolve = resolve,
        workers: int = 1,
    ) -> None:
        super().__init__(target, config, metrics, max_head, tls, look_up, workers)
        self._scheme = target.scheme
        self._max_streams = config.max_streams
        # In the order in which they were opened: the first is filled first.
        self._connections: dict[MultiplexedConnection, None] = {}
        self._opening = 0
        self._tasks = Tasks()
        self._liveness = Watch(self._connections, min(ANSWER_S, self._timeouts.keepalive))

    def __repr__(self) -> str:
        return (
            f"<StreamPool {self.name}: {len(self._connections)} connections, "
            f"{len(self._open)} streams, {len(self._pending)} pending>"
        )

    @property
    def in_flight(self) -> int:
        """As in `TargetPool`."""
        return len(self._open) + len(self._pending)

    @property
    def has_idle(self) -> bool:
        """As in `TargetPool`."""
        return any(one.has_room for one in self._connections)

    def take_idle(self) -> UpstreamConnection | None:
        """Return a stream of a connection that is open."""
        return None if self._pending else self._take()

    async def connect(self, due: float = inf) -> UpstreamConnection:
        """Return a stream as soon as a connection has room; arguments as in `TargetPool`."""
        queue_due = min(self._loop.time() + self._queue_timeout, due)
        was_first = False
        while True:
            stream: UpstreamConnection | None = None
            if was_first or not self._pending:
                stream = self._take()
            if stream is None:
                self._open_more(1)
                stream = await self._wait_for_place(queue_due, was_first=was_first)
            assert stream is not None
            if stream.is_open:
                return stream
            stream.abort()
            # The connection was closed on its way here: the request stays first in line.
            was_first = True

    def give_back(self, connection: UpstreamConnection) -> None:
        """Take a stream back after its exchange."""
        connection.release()

    def retire(self) -> None:
        """As in `TargetPool`."""
        super().retire()
        for connection in tuple(self._connections):
            connection.retire()

    def close(self) -> None:
        """As in `TargetPool`."""
        super().close()
        self._is_retired = True
        self._liveness.stop()
        for connection in tuple(self._connections):
            connection.retire()

    async def open_apart(self) -> UpstreamConnection:
        """As in `TargetPool`."""
        connection = await self._open_any(self._maker(lambda _: None), H2)
        try:
            await connection.ready()
        except BaseException:
            # Such as the time limit of a check.
            connection.close()
            raise
        return connection.lend(lambda _: connection.close())

    def _take(self) -> UpstreamStream | None:
        """Return a stream of the first connection with room; None if there is none."""
        for connection in self._connections:
            if connection.has_room:
                stream = connection.lend(self._stream_closed)
                self._open.add(stream)
                self._watch.start()
                return stream
        return None

    def _maker(
        self, on_close: Callable[[MultiplexedConnection], None]
    ) -> Callable[[str], MultiplexedConnection]:
        return lambda address: MultiplexedConnection(
            on_close,
            self._admit_next,
            self._timeouts,
            self._max_head,
            self._max_streams,
            self._scheme,
            address,
        )

    # Opening.

    def _open_more(self, coming: int) -> None:
        """Open connections for those who wait, and for so many who are about to."""
        wanted = len(self._pending) + coming
        while (
            wanted > self._opening * self._max_streams
            and len(self._connections) + self._opening < self._max_connections
        ):
            self._opening += 1
            self._tasks.start(self._open_one())

    async def _open_one(self) -> None:
        """Open a connection, and give its streams to those who wait."""
        error: UpstreamError | None = None
        connection: MultiplexedConnection | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open_any(self._maker(self._connection_closed), H2)
                await connection.ready()
        except TimeoutError:
            error = UpstreamTimeout("connect")
        except UpstreamTlsError as failure:
            self._log_problem(str(failure))
            error = failure
        except UpstreamError as failure:
            error = failure
        finally:
            self._opening -= 1
        if error is not None:
            if connection is not None:
                connection.abort(error)
        elif connection is not None and connection.is_open:
            self._problem = ""
            self._connections[connection] = None
            self._liveness.start()
            self.metrics.connections += 1
            if self._is_retired:
                connection.retire()
        else:
            error = UpstreamConnectError("closed at once")
        if error is not None and not self._connections and not self._opening:
            # Nobody who waits can expect anything of another connection.
            while self._pending:
                self._first().set_exception(error)
        self._admit_next()

    def _admit_next(self) -> None:
        """Give free places to those who wait, in their order; open connections for the others."""
        while self._pending and (stream := self._take()) is not None:
            self._first().set_result(stream)
        if self._pending:
            self._open_more(0)

    def _pass_on(self, granted: UpstreamConnection | None) -> None:
        assert granted is not None
        granted.abort()

    def _retire(self, gone: frozenset[str]) -> None:
        for connection in [one for one in self._connections if one.address in gone]:
            connection.retire()

    # What connections and streams call.

    def _stream_closed(self, stream: UpstreamConnection) -> None:
        self._open.discard(stream)
        self._admit_next()

    def _connection_closed(self, connection: MultiplexedConnection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self.metrics.connections -= 1
        self._admit_next()
