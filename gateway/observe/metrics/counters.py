"""Counters for the hot path: plain attributes that callers increment.

Objects are looked up by name once, when the configuration is loaded, and then kept by the code that
counts: `policy.refused += 1`. All counting happens in the event loop's thread; nothing here takes a
lock or depends on Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

from gateway.base.clock import Clock, wall_us

REQUEST_BOUNDS_US: Final = (
    *(500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Buckets of requests and upstream responses: half a millisecond to half a minute."""

STORE_BOUNDS_US: Final = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000),
)
"""Buckets of store calls; the default deadline of 20 ms is one of them."""


class Histogram:
    """A histogram of durations.

    Attributes:
        bounds_us: inclusive upper bounds of the buckets, ascending, in microseconds.
        counts: one count per bucket, and a last one for everything above.
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
        statuses: how many requests were answered with each status.
        duration: from the request's head to the last byte of the response.
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
        passed: admitted immediately.
        delayed: admitted after waiting for a turn.
        refused: over the limit, or no place in the queue.
        skipped: the policy had nothing to count for the request, for example because its key is
            missing.
        store_error_passed: the store was unavailable and the request was admitted.
        store_error_refused: the store was unavailable and the request was refused.
        wait_us: the total wait of delayed requests, in microseconds.
        waiting: how many requests currently wait for their turn.
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
        requests: how many requests it was chosen for.
        ejections: how often it was ejected for failures.
        checks: how often it was checked.
        checks_failed: how often a check failed.
        is_healthy: the result of the checks.
        is_ejected: whether it is currently ejected for failures.
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
        requests: how many requests were sent.
        errors: how many failed, by `UpstreamError.kind`.
        retries: how many were retried, by reason: connect, reset, timeout or status.
        retries_refused: how often the budget did not allow a retry.
        connections: how many connections are currently open.
        first_byte: from sending the request to the first byte of the response.
        tunnels: how many WebSockets are currently open.
        tunnel_received: bytes that clients have sent through them.
        tunnel_sent: bytes that were sent to clients through them.
        breaker: the state of its circuit breaker: closed, open or half_open; empty if it has none.
        targets: its targets, if there are several or they are checked, by name.
        refresh: called before `breaker` and `targets` are shown; updates values that change with
            time.
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
        """Return the counters of a target, created on first use."""
        return self.targets.setdefault(name, TargetMetrics())

    def known_target(self, name: str) -> TargetMetrics:
        """Return the counters of a target; new ones, which are not shown, if it is new."""
        return self.targets.get(name) or TargetMetrics()


class FrontendMetrics:
    """One listener for clients of another system.

    Attributes:
        sees_connections: whether the next two are known; a library may not report them.
        connections: how many connections were accepted.
        open_connections: how many are currently open.
        answers: how many requests were answered, by request and result.
        malformed: how much input was invalid, by a short kind from our own code.
        records: how many records it currently keeps besides the store's counts.
        record_bytes: their memory; None for listeners that keep none.
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
        decisions: how many decisions it made.
        batches: in how many calls.
        errors: how many calls failed, by `StoreError.reason`.
        breaker: the state of the circuit breaker: closed, open or half_open.
        is_ready: whether it would probably reply now.
        gateways: how many gateways share the store, as last seen.
        duration: how long successful calls took.
        missed: how many decisions it should have made for another store but did not; None for a
            store that decides alone, where the counters of policies show this.
        messages: how many messages were exchanged outside of calls, by message and result.
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
        """Count one successful call, and the decisions in it."""
        self.batches += 1
        self.decisions += decisions
        self.duration.observe(duration_us)


class MemoryMetrics:
    """The keys of one policy in the memory store.

    Attributes:
        keys: how many are stored.
        evicted: how many were evicted before they expired.
        overflowed: requests admitted although their key was not stored.
        refused: requests refused for the usage, or possible usage, of other keys.
    """

    __slots__ = ("evicted", "keys", "overflowed", "refused")

    def __init__(self) -> None:
        self.keys = 0
        self.evicted = 0
        self.overflowed = 0
        self.refused = 0


class LogMetrics:
    """Counters of log lines.

    Attributes:
        lines_dropped: lines that could not be written: the disk is full, or the reader is gone or
            too slow.
    """

    __slots__ = ("lines_dropped",)

    def __init__(self) -> None:
        self.lines_dropped = 0


class GatewayMetrics:
    """All counters of one gateway process, or of all processes of one gateway.

    Args:
        version: the version of the gateway.
        clock: wall clock in microseconds since 1970, for the time of the start.

    Attributes:
        workers: how many processes serve requests.
        connections: how many client connections are currently open.
        connections_refused: how many were refused, by the limit that was reached.
        connections_evicted: how many were closed to make room for others.
        client_errors: invalid requests, by a short kind from our own code.
        clients_left: clients that left before their response was complete.
        certificates: when each certificate in use expires, in seconds since 1970, by its file.
        config_reloads: reloads of the configuration, by result: applied or failed.
        is_last_reload_applied: whether the last reload succeeded; also if there was none.
        config_applied_us: when the configuration in force was read and applied, in microseconds
            since 1970.
        upgrades_failed: upgrades that were given up, so that this program continues to serve.
        memory: the keys of the memory store, by policy; empty if counts are elsewhere.
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
        self.config_reloads: defaultdict[str, int] = defaultdict(int)
        self.is_last_reload_applied = True
        self.config_applied_us = self.started_us
        self.upgrades_failed = 0
        self.log = LogMetrics()
        self.memory: dict[str, MemoryMetrics] = {}
        self.routes: dict[str, RouteMetrics] = {}
        self.policies: dict[str, PolicyMetrics] = {}
        self.upstreams: dict[str, UpstreamMetrics] = {}
        self.stores: dict[str, StoreMetrics] = {}
        self.frontends: dict[str, FrontendMetrics] = {}

    def keep(
        self,
        *,
        routes: Collection[str],
        policies: Collection[str],
        upstreams: Collection[str],
        frontends: Collection[str],
    ) -> None:
        """Forget the counters of all others: they are not configured any more."""
        self.routes = {name: one for name, one in self.routes.items() if name in routes}
        self.policies = {name: one for name, one in self.policies.items() if name in policies}
        self.upstreams = {name: one for name, one in self.upstreams.items() if name in upstreams}
        self.frontends = {name: one for name, one in self.frontends.items() if name in frontends}

    def route(self, name: str) -> RouteMetrics:
        """Return the counters of a route, created on first use."""
        return self.routes.setdefault(name, RouteMetrics())

    def policy(self, name: str) -> PolicyMetrics:
        """Return the counters of a policy, created on first use."""
        return self.policies.setdefault(name, PolicyMetrics())

    def upstream(self, name: str) -> UpstreamMetrics:
        """Return the counters of an upstream, created on first use."""
        return self.upstreams.setdefault(name, UpstreamMetrics())

    def store(self, name: str) -> StoreMetrics:
        """Return the counters of a store, by its name and never its URL, which may be secret."""
        return self.stores.setdefault(name, StoreMetrics())

    def frontend(self, name: str) -> FrontendMetrics:
        """Return the counters of a listener for another system, created on first use."""
        return self.frontends.setdefault(name, FrontendMetrics())
