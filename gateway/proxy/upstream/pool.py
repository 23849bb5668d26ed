"""Connections to the targets of an upstream: kept, lent out, bounded and timed.

A connection comes back only after its answer has been handed over, so that a freed
connection can never touch an answer that is still being read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Protocol

from gateway.base.clock import US, monotonic_us
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
from gateway.config.values.address import is_ip_address
from gateway.net.tls.client import UpstreamTls
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.connecting import open_connection
from gateway.proxy.upstream.connection import UpstreamConnection, UpstreamTimeouts
from gateway.proxy.upstream.load_balancer import LoadBalancer
from gateway.proxy.upstream.names import Name, Resolve, resolve
from gateway.proxy.upstream.retry import RetryBudget, RetryRule
from gateway.proxy.upstream.small_buffer_reader import SlowReaders

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from gateway.proxy.request import Request

SOCKET_HOST = "localhost"
"""What a server at a Unix socket is asked for by a client that names no host, as with nginx."""

Outcome = int | UpstreamError | None
"""How a try went: the status of its answer, why there is none, or None if it was given up."""


class Judge(Protocol):
    """Who wants to know how tries at a target went."""

    def observe(self, request: Request, outcome: Outcome) -> None:
        """A try is decided; told once for each, as soon as the head of its answer is there."""


class TargetPool:
    """The connections to one target.

    Args:
        target: where to connect to.
        config: of the upstream it belongs to.
        metrics: of that upstream.
        max_head: bytes of header fields that one answer may have.
        tls: for targets with `https://`; never that of another upstream.
        look_up: asks for the addresses of a name.

    Attributes:
        name: host and port, or the path of a socket after `unix:`, for logs.
        authority: the same as a `Host` field says it.
        metrics: as given.
        total_s: how long an exchange may take, in seconds; `inf` for any time.
        judge: is told how each try went; None if nobody wants to know.
        slow_readers: clients that do not take what comes from it.
    """

    def __init__(
        self,
        target: Target,
        config: UpstreamConfig,
        metrics: UpstreamMetrics,
        max_head: int,
        tls: UpstreamTls | None = None,
        look_up: Resolve = resolve,
    ) -> None:
        self.name = target.url if target.socket else f"{target.host}:{target.port}"
        self.authority = SOCKET_HOST if target.socket else target.authority
        self._loop = asyncio.get_running_loop()
        self._max_head = max_head
        self._max_connections = config.max_connections
        self._max_pending = inf if config.max_pending == "auto" else config.max_pending
        self._connect_timeout = config.timeouts.connect / US
        self._queue_timeout = config.timeouts.queue / US
        self._target = target
        self._named: Name | None = None
        if target.host and not is_ip_address(target.host):
            every_us = config.resolve_every
            every_s = None if every_us is None else every_us / US
            self._named = Name(target.host, every_s, self._retire, look_up)
        self._retired: set[UpstreamConnection] = set()
        self._tls: UpstreamTls | None = None
        if target.scheme == "https":
            self._tls = tls
            if tls is None:
                self._tls = UpstreamTls(None, None)
                self._tls.load()
        self._complaint = ""
        self.metrics = metrics
        self.judge: Judge | None = None
        # The one used last is the next; closed ones are taken out, however many there are.
        self._idle: dict[UpstreamConnection, None] = {}
        self._open: set[UpstreamConnection] = set()
        self._connecting = 0
        self.slow_readers = SlowReaders()
        self._pending: OrderedDict[asyncio.Future[UpstreamConnection | None], None] = OrderedDict()
        self._busy = self._refusals(f"max_pending ({config.max_pending}) is reached")
        self._late = self._refusals(
            f"none of max_connections ({config.max_connections}) came free in time "
            "(timeouts.queue, or timeouts.total for all tries)"
        )
        timeouts = config.timeouts
        self._patience = UpstreamTimeouts(
            first_byte=timeouts.first_byte / US,
            idle=timeouts.idle / US,
            total=inf if timeouts.total is None else timeouts.total / US,
            keepalive=config.keepalive / US,
            tunnel=inf if timeouts.tunnel is None else timeouts.tunnel / US,
        )
        self.total_s = self._patience.total
        self._watch = Watch(self._open, min(self._patience))

    def __repr__(self) -> str:
        return (
            f"<TargetPool {self.name}: {len(self._open)} open, {len(self._idle)} idle, "
            f"{len(self._pending)} pending>"
        )

    @property
    def in_flight(self) -> int:
        """Requests that have a connection or wait for one."""
        return len(self._open) - len(self._idle) + self._connecting + len(self._pending)

    @property
    def has_idle(self) -> bool:
        """Whether there is a connection that waits for work, as far as is known."""
        return bool(self._idle)

    @property
    def _is_full(self) -> bool:
        return len(self._open) + self._connecting >= self._max_connections

    def keep_to(self, seconds: float) -> None:
        """Keep to a time limit of this length as well as to those of the configuration."""
        self._watch.keep_to(seconds)

    def take_idle(self) -> UpstreamConnection | None:
        """A connection that is open and waiting for work, the one used last."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def connect(self, due: float = inf) -> UpstreamConnection:
        """A new connection; or, where no more may be opened, the next that comes free.

        Args:
            due: the loop's time by which it is needed, if that is before the time limits end.

        Raises:
            UpstreamError: it could not be had.
        """
        queue_due = min(self._loop.time() + self._queue_timeout, due)
        was_first = False
        while (self._pending and not was_first) or self._is_full:
            freed = await self._wait_for_place(queue_due, was_first=was_first)
            if freed is None:
                break
            if freed.is_open:
                return freed
            # It was closed on its way here: whose turn it was is still before all others.
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
            self._complain(str(error))
            raise
        except BaseException:
            self._connecting -= 1
            self._admit_next()
            raise
        self._connecting -= 1
        self._complaint = ""
        if not connection.is_open:
            self._admit_next()
            raise UpstreamConnectError("closed at once")
        self._open.add(connection)
        self.slow_readers.narrow_if_many(connection)
        self._watch.start()
        self.metrics.connections += 1
        return connection

    def start(self) -> None:
        """Look up its name from now on, if it has one."""
        if self._named is not None:
            self._named.start()

    def _retire(self, gone: frozenset[str]) -> None:
        """Its name has these addresses no more: connections to them serve no more requests."""
        self._retired.update(one for one in self._open if one.address in gone)
        for connection in [one for one in self._idle if one in self._retired]:
            connection.abort()

    async def open_apart(self) -> UpstreamConnection:
        """A connection that is no part of the pool: to be watched and aborted by who asks.

        Raises:
            UpstreamConnectError: it could not be had.
        """
        return await self._open_connection(lambda _: None)

    async def _open_connection(
        self, on_close: Callable[[UpstreamConnection], None]
    ) -> UpstreamConnection:
        return await open_connection(
            self._target if self._named is None else self._named,
            self._target.port,
            on_close=on_close,
            patience=self._patience,
            ssl_context=self._tls.context if self._tls is not None else None,
            server_name=(self._tls.server_name if self._tls is not None else "")
            or self._target.tls_name,
            max_head=self._max_head,
        )

    def _complain(self, complaint: str) -> None:
        """Say what is wrong with TLS, once as long as it is the same."""
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("TLS to %s failed: %s", self.name, complaint)

    def give_back(self, connection: UpstreamConnection) -> None:
        """Take a connection back after its exchange; closes it if it cannot be used again."""
        if not connection.is_reusable or (self._retired and connection in self._retired):
            connection.abort()
            return
        connection.release()
        if not self._pending or not self._hand_over(connection):
            self._idle[connection] = None

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

        Whatever time ends it, it ended in line, and says nothing of the target.
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
            else:
                self._pass_on(place.result())
            if isinstance(error, TimeoutError):
                self._late.note()
                raise UpstreamTimeout("queue") from None
            raise

    def _pass_on(self, granted: UpstreamConnection | None) -> None:
        """What was granted to somebody who is gone goes to the next in line."""
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


class Upstream:
    """A named pool of targets.

    Attributes:
        name: as configured.
        metrics: its counters.
        health: how its targets are checked; None if they are not.
        only: the target that every request goes to; None where `pick` has a choice.
        budget: how often its requests may be sent again.
    """

    def __init__(
        self,
        name: str,
        config: UpstreamConfig,
        metrics: UpstreamMetrics,
        max_head: int,
        tls: UpstreamTls | None = None,
        look_up: Resolve = resolve,
    ) -> None:
        self.name = name
        self.metrics = metrics
        self.health = config.health
        self._pools = tuple(
            TargetPool(target, config, metrics, max_head, tls, look_up) for target in config.targets
        )
        needs_choice = len(self._pools) > 1 or config.health or config.breaker
        self._chooser = LoadBalancer(name, config, self._pools, metrics) if needs_choice else None
        self.only = self._pools[0] if self._chooser is None else None
        self.budget = RetryBudget()

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {list(self._pools)}>"

    @property
    def total_s(self) -> float:
        """How long an exchange may take, in seconds; `inf` for any time."""
        return self._pools[0].total_s

    def keep_to(self, seconds: float) -> None:
        """Keep to a time limit of this length as well as to those of the configuration."""
        for pool in self._pools:
            pool.keep_to(seconds)

    def may_retry(self, rule: RetryRule, reason: str) -> bool:
        """Whether there may be one more retry now; it is counted, and so is its refusal."""
        metrics = self.metrics
        firsts = metrics.requests + self.budget.unsent - sum(metrics.retries.values())
        if not self.budget.spend(monotonic_us(), firsts, rule.share, rule.floor):
            metrics.retries_refused += 1
            return False
        metrics.retries[reason] += 1
        return True

    @property
    def pools(self) -> tuple[TargetPool, ...]:
        """Its targets, in the order of the configuration."""
        return self._pools

    def pick(
        self, request: Request | None = None, tried: Collection[TargetPool] = ()
    ) -> TargetPool:
        """The target for one try of a request; how it went is for the target's `judge`.

        Args:
            request: the request; None for none in particular.
            tried: targets to be avoided, as long as there are others.

        Raises:
            UpstreamError: nothing may be sent to this upstream now.
        """
        if self._chooser is None:
            return self._pools[0]
        return self._chooser.pick(request, tried)

    def checked(self, index: int, failure: str) -> None:
        """A target was checked; `failure` says why it did not pass, or nothing if it did."""
        if self._chooser is not None:
            self._chooser.checked(index, failure)

    def start(self) -> None:
        """Look up the names of its targets from now on; without it, from the first request on."""
        for pool in self._pools:
            pool.start()

    def close(self) -> None:
        """Close idle connections; those in use close when they come back."""
        for pool in self._pools:
            pool.close()
