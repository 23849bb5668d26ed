"""Connections to one target of an upstream: kept, lent, limited and timed.

A connection comes back only after its answer has been handed over, so that a freed
connection can never affect an answer that is still being read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Protocol

from gateway.base.clock import US
from gateway.base.deadlines import Watch
from gateway.base.errors import (
    UpstreamBusyError,
    UpstreamConnectError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamTlsError,
)
from gateway.base.refusal_log import Refusals
from gateway.config.models.gateway import Target, UpstreamConfig
from gateway.config.models.upstreams import part_of
from gateway.config.values.address import is_ip_address
from gateway.net.tls.client import UpstreamTls
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.connecting import Opened, open_connection
from gateway.proxy.upstream.connection import UpstreamConnection, UpstreamTimeouts
from gateway.proxy.upstream.http1_connection import Http1Connection
from gateway.proxy.upstream.names import Name, Resolve, resolve
from gateway.proxy.upstream.small_buffer_reader import SlowReaders

log = logging.getLogger(__name__)

H2 = "h2"
"""What TLS agrees on (ALPN) for HTTP/2."""

SOCKET_HOST = "localhost"
"""The `Host` sent to a Unix socket if the client names none, as in nginx."""

AttemptOutcome = int | UpstreamError | None
"""The outcome of an attempt: the status of its response, why there is none, or None if it does not
concern the target, such as when the client has left."""


class Judge(Protocol):
    """Judges a target by the outcomes of attempts at it."""

    def observe(self, ticket: int, outcome: AttemptOutcome) -> None:
        """Record the outcome of an attempt, as soon as the head of its response has arrived.

        Args:
            ticket: the ticket with which the upstream admitted the attempt.
            outcome: of the attempt.
        """


class TargetPool:
    """The connections to one target.

    Args:
        target: where to connect to.
        config: of the upstream it belongs to.
        metrics: of that upstream.
        max_head: most bytes of header fields in one answer.
        tls: for targets with `https://`; never that of another upstream.
        look_up: returns the addresses of a name.
        workers: how many processes there are; each has a part of the connections.

    Attributes:
        name: host and port, or the path of a socket after `unix:`, for logs.
        authority: the same in the form of a `Host` field.
        metrics: as given.
        total_s: how long an exchange may take, in seconds; `inf` for no limit.
        silence_s: how long a WebSocket or a stream of gRPC may be silent, likewise.
        judge: records the outcome of each attempt; None if the target is not judged.
        slow_readers: clients that do not read what comes from it.
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
        self.name = target.url if target.socket else f"{target.host}:{target.port}"
        self.authority = SOCKET_HOST if target.socket else target.authority
        self._loop = asyncio.get_running_loop()
        self._max_head = max_head
        self._max_connections = part_of(config.max_connections, workers)
        self._max_pending = inf
        if config.max_pending != "auto":
            self._max_pending = float(part_of(config.max_pending, workers))
        self._connect_timeout = config.timeouts.connect / US
        self._queue_timeout = config.timeouts.queue / US
        self._target = target
        self._named: Name | None = None
        if target.host and not is_ip_address(target.host):
            every_us = config.resolve_every
            every_s = None if every_us is None else every_us / US
            self._named = Name(target.host, every_s, self._retire, look_up)
        self._retired: set[UpstreamConnection] = set()
        self._is_retired = False
        self._tls: UpstreamTls | None = None
        if target.scheme == "https":
            self._tls = tls
            if tls is None:
                self._tls = UpstreamTls(None, None, protocol=H2 if config.http2 else "")
                self._tls.load()
        self._problem = ""
        self.metrics = metrics
        self.judge: Judge | None = None
        # The one used last is taken first; closed ones are removed, however many there are.
        self._idle: dict[UpstreamConnection, None] = {}
        self._open: set[UpstreamConnection] = set()
        self._connecting = 0
        self.slow_readers = SlowReaders()
        self._pending: OrderedDict[asyncio.Future[UpstreamConnection | None], None] = OrderedDict()
        part = f", divided among {workers} workers" if workers > 1 else ""
        self._busy = self._refusals(f"max_pending ({config.max_pending}{part}) is reached")
        self._late = self._refusals(
            f"none of max_connections ({config.max_connections}{part}) became free in time "
            "(timeouts.queue, or timeouts.total for all attempts)"
        )
        timeouts = config.timeouts
        self._timeouts = UpstreamTimeouts(
            first_byte=timeouts.first_byte / US,
            idle=timeouts.idle / US,
            total=inf if timeouts.total is None else timeouts.total / US,
            keepalive=config.keepalive / US,
            tunnel=inf if timeouts.tunnel is None else timeouts.tunnel / US,
        )
        self.total_s = self._timeouts.total
        self.silence_s = self._timeouts.tunnel
        self._watch = Watch(self._open, min(self._timeouts))

    def __repr__(self) -> str:
        return (
            f"<TargetPool {self.name}: {len(self._open)} open, {len(self._idle)} idle, "
            f"{len(self._pending)} pending>"
        )

    def is_of(self, target: Target) -> bool:
        """Return whether it leads to a target, whatever the weight of that."""
        return self._target.model_copy(update={"weight": target.weight}) == target

    @property
    def in_flight(self) -> int:
        """Return how many requests have a connection or wait for one."""
        return len(self._open) - len(self._idle) + self._connecting + len(self._pending)

    @property
    def has_idle(self) -> bool:
        """Return whether there is an idle connection, as far as is known."""
        return bool(self._idle)

    @property
    def _is_full(self) -> bool:
        return len(self._open) + self._connecting >= self._max_connections

    def keep_to(self, seconds: float) -> None:
        """Check connections often enough for a time limit of this length as well."""
        self._watch.keep_to(seconds)

    def take_idle(self) -> UpstreamConnection | None:
        """Return the open idle connection that was used last."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def connect(self, due: float = inf) -> UpstreamConnection:
        """Return a new connection, or the next free one if no more may be opened.

        Args:
            due: the loop's time by which it is needed, if that is before the time limits.

        Raises:
            UpstreamError: no connection could be obtained.
        """
        queue_due = min(self._loop.time() + self._queue_timeout, due)
        was_first = False
        while (self._pending and not was_first) or self._is_full:
            freed = await self._wait_for_place(queue_due, was_first=was_first)
            if freed is None:
                break
            if freed.is_open:
                return freed
            # It was closed on its way here: the request stays first in line.
            was_first = True
        else:
            self._connecting += 1
        connect_due = self._loop.time() + self._connect_timeout
        try:
            async with asyncio.timeout_at(min(connect_due, due)):
                connection = await self._open_connection(self._closed)
        except TimeoutError:
            self._connecting -= 1
            self._admit_next()
            raise UpstreamTimeout("connect" if connect_due <= due else "total") from None
        except UpstreamTlsError as error:
            self._connecting -= 1
            self._admit_next()
            self._log_problem(str(error))
            raise
        except BaseException:
            self._connecting -= 1
            self._admit_next()
            raise
        self._connecting -= 1
        self._problem = ""
        if not connection.is_open:
            self._admit_next()
            raise UpstreamConnectError("closed at once")
        self._open.add(connection)
        self.slow_readers.limit_reads_if_many(connection)
        self._watch.start()
        self.metrics.connections += 1
        return connection

    def start(self) -> None:
        """Start looking up its name, if it has one."""
        if self._named is not None:
            self._named.start()

    def _retire(self, gone: frozenset[str]) -> None:
        """Stop using connections to these addresses, which the name no longer has."""
        self._retired.update(one for one in self._open if one.address in gone)
        for connection in [one for one in self._idle if one in self._retired]:
            connection.abort()

    async def open_apart(self) -> UpstreamConnection:
        """Open a connection outside the pool; the caller watches and aborts it.

        Raises:
            UpstreamConnectError: it could not be opened.
        """
        return await self._open_connection(lambda _: None)

    async def _open_connection(
        self, on_close: Callable[[UpstreamConnection], None]
    ) -> UpstreamConnection:
        return await self._open_any(
            lambda address: Http1Connection(on_close, self._timeouts, self._max_head, address)
        )

    async def _open_any(self, make: Callable[[str], Opened], protocol: str = "") -> Opened:
        """Connect; arguments as in `open_connection`."""
        tls = self._tls
        return await open_connection(
            self._target if self._named is None else self._named,
            self._target.port,
            make,
            ssl_context=tls.context if tls is not None else None,
            server_name=(tls.server_name if tls is not None else "") or self._target.tls_name,
            protocol=protocol,
        )

    def _log_problem(self, problem: str) -> None:
        """Log a TLS problem, once for as long as it stays the same."""
        if problem != self._problem:
            self._problem = problem
            log.warning("TLS to %s failed: %s", self.name, problem)

    def give_back(self, connection: UpstreamConnection) -> None:
        """Take a connection back after its exchange; close it if it cannot be reused."""
        if (
            not connection.is_reusable
            or self._is_retired
            or (self._retired and connection in self._retired)
        ):
            connection.abort()
            return
        connection.release()
        if not self._pending or not self._hand_over(connection):
            self._idle[connection] = None

    def retire(self) -> None:
        """Close the idle connections; those in use close when they come back.

        Requests that began before may still use it, within its time limits.
        """
        self._is_retired = True
        if self._named is not None:
            self._named.retire()
        for connection in tuple(self._idle):
            connection.abort()

    def close(self) -> None:
        """Close the idle connections; those in use close when they come back."""
        self._watch.stop()
        if self._named is not None:
            self._named.close()
        while self._idle:
            self._idle.popitem()[0].abort()
        self._busy.stop()
        self._late.stop()

    def _refusals(self, reason: str) -> Refusals:
        return Refusals(log, f"requests to {self.name} are answered 503: {reason}")

    async def _wait_for_place(self, due: float, *, was_first: bool) -> UpstreamConnection | None:
        """Wait in line: for a connection, or (None) for the right to open one.

        A time limit that ends here ended in line, and is not a failure of the target.
        """
        if len(self._pending) >= self._max_pending and not was_first:
            self._busy.note()
            raise UpstreamBusyError("too many requests wait for a connection")
        place: asyncio.Future[UpstreamConnection | None]
        place = self._loop.create_future()
        self._pending[place] = None
        if was_first:
            self._pending.move_to_end(place, last=False)
        try:
            async with asyncio.timeout_at(due):
                return await asyncio.shield(place)
        except (TimeoutError, asyncio.CancelledError) as error:
            if not place.done():
                place.cancel()
                del self._pending[place]
            elif place.exception() is None:
                self._pass_on(place.result())
            if isinstance(error, TimeoutError):
                self._late.note()
                raise UpstreamTimeout("queue") from None
            raise

    def _pass_on(self, granted: UpstreamConnection | None) -> None:
        """Pass what was granted to a request that is gone to the next in line."""
        if granted is None:
            self._connecting -= 1
            self._admit_next()
        elif not self._hand_over(granted):
            self._idle[granted] = None

    def _hand_over(self, connection: UpstreamConnection) -> bool:
        if not self._pending or not connection.is_open:
            return False
        self._first().set_result(connection)
        return True

    def _admit_next(self) -> None:
        """Let the first in line open a connection, if there is room for one."""
        if self._pending and not self._is_full:
            self._connecting += 1
            self._first().set_result(None)

    def _first(self) -> asyncio.Future[UpstreamConnection | None]:
        return self._pending.popitem(last=False)[0]

    def _closed(self, connection: UpstreamConnection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self.metrics.connections -= 1
        self._retired.discard(connection)
        self._idle.pop(connection, None)
        self._admit_next()
