"""Counters for the hot path: plain attributes that callers add to.

An object is looked up by name once, when the configuration is loaded, and then held by
whoever counts: `policy.refused += 1`. Everything is counted from the event loop's thread,
and nothing here takes a lock or knows Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from gateway.base.clock import Clock, wall_us

REQUEST_BOUNDS_US: Final = (
    *(500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Buckets of requests and upstream answers: half a millisecond to half a minute."""

STORE_BOUNDS_US: Final = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000),
)
"""Buckets of store calls, with the default deadline of 20 ms as one of them."""


class Histogram:
    """How often a duration fell into which bucket.

    Attributes:
        bounds_us: inclusive upper bounds of the buckets, ascending, in microseconds.
        counts: one count for each bucket, and a last one for everything above.
        sum_us: all durations together, in microseconds.
    """

    __slots__ = ("bounds_us", "counts", "sum_us")

    def __init__(self, bounds_us: tuple[int, ...]) -> None:
        self.bounds_us = bounds_us
        self.counts = [0] * (len(bounds_us) + 1)
        self.sum_us = 0

    def observe(self, duration_us: int) -> None:
        """Count one duration, in microseconds."""
        self.counts[bisect_left(self.bounds_us, duration_us)] += 1
        self.sum_us += duration_us


class RouteMetrics:
    """Requests of one route.

    Attributes:
        statuses: how many requests were answered with which status.
        duration: from the request's head to the last byte of the answer.
    """

    __slots__ = ("duration", "statuses")

    def __init__(self) -> None:
        self.statuses: defaultdict[int, int] = defaultdict(int)
        self.duration = Histogram(REQUEST_BOUNDS_US)

    def answered(self, status: int, duration_us: int) -> None:
        """Count one answered request."""
        self.statuses[status] += 1
        self.duration.observe(duration_us)


class PolicyMetrics:
    """Decisions of one policy; every request counts in exactly one of the first six.

    Attributes:
        passed: went on at once.
        delayed: went on after waiting for its turn.
        refused: over the limit, or no place in the queue.
        skipped: the policy had nothing to count for the request (its key is missing, say).
        store_error_passed: the store could not be asked and the request went on.
        store_error_refused: the store could not be asked and the request was turned away.
        wait_us: all the waiting of delayed requests together, in microseconds.
        waiting: how many requests wait for their turn at the moment.
    """

    __slots__ = (
        "delayed",
        "passed",
        "refused",
        "skipped",
        "store_error_passed",
        "store_error_refused",
        "wait_us",
        "waiting",
    )

    def __init__(self) -> None:
        self.passed = 0
        self.delayed = 0
        self.refused = 0
        self.skipped = 0
        self.store_error_passed = 0
        self.store_error_refused = 0
        self.wait_us = 0
        self.waiting = 0


class TargetMetrics:
    """One of the targets that an upstream chooses from.

    Attributes:
        requests: for how many it was chosen.
        ejections: how often it was left out for failures.
        checks: how often it was checked, and
        checks_failed: how often it did not pass.
        is_healthy: what checks found.
        is_ejected: whether it is left out for failures at the moment.
    """

    __slots__ = (
        "checks",
        "checks_failed",
        "ejections",
        "is_ejected",
        "is_healthy",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.ejections = 0
        self.checks = 0
        self.checks_failed = 0
        self.is_healthy = True
        self.is_ejected = False


class UpstreamMetrics:
    """Requests to one upstream.

    Attributes:
        requests: how many were sent.
        errors: how many failed, by `UpstreamError.kind`.
        retries: how many of them were sent again, by why: connect, reset, timeout or status.
        retries_refused: how often the budget did not allow that.
        connections: how many connections are open at the moment.
        first_byte: from sending the request to the first byte of the answer.
        tunnels: how many WebSockets are open at the moment.
        tunnel_received: bytes that clients have sent through them, and
        tunnel_sent: bytes that were sent to clients.
        breaker: the state of its circuit breaker: closed, open or half_open; empty if it has none.
        targets: those that are chosen from or checked, by name.
        refresh: called before `breaker` and `targets` are shown; sets what changed with time.
    """

    __slots__ = (
        "breaker",
        "connections",
        "errors",
        "first_byte",
        "refresh",
        "requests",
        "retries",
        "retries_refused",
        "targets",
        "tunnel_received",
        "tunnel_sent",
        "tunnels",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.errors: defaultdict[str, int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.retries_refused = 0
        self.connections = 0
        self.first_byte = Histogram(REQUEST_BOUNDS_US)
        self.tunnels = 0
        self.tunnel_received = 0
        self.tunnel_sent = 0
        self.breaker = ""
        self.targets: dict[str, TargetMetrics] = {}
        self.refresh: Callable[[], None] = lambda: None

    def target(self, name: str) -> TargetMetrics:
        """The counters of a target, made when first asked for."""
        return self.targets.setdefault(name, TargetMetrics())


class FrontendMetrics:
    """One listener for clients of another system.

    Attributes:
        sees_connections: whether it knows of the two that follow; a library may keep them.
        connections: how many were taken, and
        open_connections: how many are open at the moment.
        answers: how many requests were answered, by what was asked for and what came of it.
        malformed: what could not be read, by a short kind from our own code.
        records: what it keeps at the moment beside the store's counts, and
        record_bytes: the memory of that; None of a listener that keeps nothing.
        refresh: called before `records` and `record_bytes` are shown; sets them.
    """

    __slots__ = (
        "answers",
        "connections",
        "malformed",
        "open_connections",
        "record_bytes",
        "records",
        "refresh",
        "sees_connections",
    )

    def __init__(self) -> None:
        self.sees_connections = True
        self.connections = 0
        self.open_connections = 0
        self.answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.malformed: defaultdict[str, int] = defaultdict(int)
        self.records: int | None = None
        self.record_bytes: int | None = None
        self.refresh: Callable[[], None] = lambda: None


class StoreMetrics:
    """Calls to one store.

    Attributes:
        decisions: how many requests were decided on.
        batches: in how many calls.
        errors: how many calls failed, by `StoreError.reason`.
        breaker: the state of the circuit breaker: closed, open or half_open.
        is_ready: whether a call would probably be answered now.
        gateways: how many gateways share the store, as last seen.
        duration: how long the calls took that were answered.
        missed: how many decisions it should have made beside another store and did not; None of
            a store that is asked by itself, where the policies' counters say what came of that.
        messages: what it says and hears without being asked, by what that says and what came of it.
        refresh: called before `breaker`, `is_ready` and `gateways` are shown; sets them.
    """

    __slots__ = (
        "batches",
        "breaker",
        "decisions",
        "duration",
        "errors",
        "gateways",
        "is_ready",
        "messages",
        "missed",
        "refresh",
    )

    def __init__(self) -> None:
        self.decisions = 0
        self.batches = 0
        self.errors: defaultdict[str, int] = defaultdict(int)
        self.breaker = "closed"
        self.is_ready = True
        self.gateways = 1
        self.duration = Histogram(STORE_BOUNDS_US)
        self.missed: int | None = None
        self.messages: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.refresh: Callable[[], None] = lambda: None

    def answered(self, decisions: int, duration_us: int) -> None:
        """Count one call that was answered, and the decisions it carried."""
        self.batches += 1
        self.decisions += decisions
        self.duration.observe(duration_us)


class MemoryMetrics:
    """The keys of one policy in the memory store.

    Attributes:
        keys: how many have a place.
        evicted: how many lost theirs before their time.
        overflowed: requests let through of keys without one.
        refused: requests refused for what other keys used, or may have.
    """

    __slots__ = ("evicted", "keys", "overflowed", "refused")

    def __init__(self) -> None:
        self.keys = 0
        self.evicted = 0
        self.overflowed = 0
        self.refused = 0


class LogMetrics:
    """What became of log lines.

    Attributes:
        lines_dropped: lines that could not be written: a full disk, a reader that is gone
            or too slow.
    """

    __slots__ = ("lines_dropped",)

    def __init__(self) -> None:
        self.lines_dropped = 0


class GatewayMetrics:
    """Everything that one gateway process counts, or all processes of one gateway together.

    Args:
        version: the version of the gateway.
        clock: wall clock in microseconds since 1970, for the time of the start.

    Attributes:
        workers: how many processes serve requests.
        connections: how many client connections are open at the moment.
        connections_refused: how many were refused, by the limit that was reached.
        connections_evicted: how many were closed to make room for others.
        client_errors: requests that could not be read, by a short kind from our own code.
        clients_left: clients that left before their answer was complete.
        certificates: when each certificate in use ends, in seconds since 1970, by its file.
        memory: the keys of the memory store, by policy; empty where counts are elsewhere.
    """

    def __init__(self, version: str = "", clock: Clock = wall_us) -> None:
        self.version = version
        self.started_us = clock()
        self.workers = 1
        self.connections = 0
        self.connections_refused: defaultdict[str, int] = defaultdict(int)
        self.connections_evicted = 0
        self.client_errors: defaultdict[str, int] = defaultdict(int)
        self.clients_left = 0
        self.certificates: dict[str, int] = {}
        self.log = LogMetrics()
        self.memory: dict[str, MemoryMetrics] = {}
        self.routes: dict[str, RouteMetrics] = {}
        self.policies: dict[str, PolicyMetrics] = {}
        self.upstreams: dict[str, UpstreamMetrics] = {}
        self.stores: dict[str, StoreMetrics] = {}
        self.frontends: dict[str, FrontendMetrics] = {}

    def route(self, name: str) -> RouteMetrics:
        """The counters of a route, made when first asked for."""
        return self.routes.setdefault(name, RouteMetrics())

    def policy(self, name: str) -> PolicyMetrics:
        """The counters of a policy, made when first asked for."""
        return self.policies.setdefault(name, PolicyMetrics())

    def upstream(self, name: str) -> UpstreamMetrics:
        """The counters of an upstream, made when first asked for."""
        return self.upstreams.setdefault(name, UpstreamMetrics())

    def store(self, name: str) -> StoreMetrics:
        """The counters of a store; its name must not be its URL, which may hold a password."""
        return self.stores.setdefault(name, StoreMetrics())

    def frontend(self, name: str) -> FrontendMetrics:
        """The counters of a listener for another system, made when first asked for."""
        return self.frontends.setdefault(name, FrontendMetrics())
