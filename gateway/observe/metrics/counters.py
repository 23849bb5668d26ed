"""Counters for the hot path: plain attributes that callers increment.

Objects are looked up by name once, when the configuration is loaded, and then kept by the code that
counts: `policy.refused += 1`. All counting happens in the event loop's thread; nothing here takes a
lock or depends on Prometheus. One of several processes counts with the same objects in memory that
others can read (`shared`), so classes with numbers have no slots, and every count begins at 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, MutableSequence
from functools import cache, partial
from typing import Final, NamedTuple, TypeVar

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

TallyKeys = tuple[tuple[str, str] | None, ...]
"""Keys of `FrontendMetrics.answers`; None for one that is not shown."""

T = TypeVar("T")


class Histogram:
    """A histogram of durations.

    Attributes:
        bounds_us: inclusive upper bounds of the buckets, ascending, in microseconds.
        cells: all durations together, in microseconds, then one count per bucket, and a last one
            for everything above.
    """

    __slots__ = ("_edges_us", "bounds_us", "cells")

    cells: MutableSequence[int]

    def __init__(self, bounds_us: tuple[int, ...]) -> None:
        self.bounds_us = bounds_us
        self._edges_us = _edges(bounds_us)
        self.cells = [0] * (len(bounds_us) + 2)

    @property
    def counts(self) -> list[int]:
        """Return one count per bucket, and a last one for everything above."""
        return list(self.cells[1:])

    @property
    def sum_us(self) -> int:
        """Return all durations together, in microseconds."""
        return self.cells[0]

    def observe(self, duration_us: int) -> None:
        """Count one duration, in microseconds."""
        cells = self.cells
        # A process that is killed in between has counted a duration of 0.
        cells[bisect_left(self._edges_us, duration_us)] += 1
        cells[0] += duration_us


@cache
def _edges(bounds_us: tuple[int, ...]) -> tuple[int, ...]:
    # One below everything instead of `1 + bisect_left(...)` (bench: passing).
    return (-1 << 62, *bounds_us)


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
    """Decisions of one policy; every request counts in exactly one of the first nine.

    Attributes:
        passed: admitted immediately.
        delayed: admitted after waiting for a turn.
        refused: over the limit, or no place in the queue.
        skipped: the policy had nothing to count for the request, for example because its key is
            missing.
        store_error_passed: the store was unavailable and the request was admitted.
        store_error_refused: the store was unavailable and the request was refused.
        shadow_passed, shadow_delayed, shadow_refused: what the policy would have done, where it is
            not enforced.
        wait_us: the total wait of delayed requests, in microseconds.
        waiting: how many requests currently wait for their turn.
        debited: cost that was counted after requests had ended, since they had cost more.
        returned: cost that was given back then, since they had cost less.
        unsettled: requests whose responses did not say what they had cost.
        uncounted: requests that were given back because of the status of their response.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.delayed = 0
        self.refused = 0
        self.skipped = 0
        self.store_error_passed = 0
        self.store_error_refused = 0
        self.shadow_passed = 0
        self.shadow_delayed = 0
        self.shadow_refused = 0
        self.wait_us = 0
        self.waiting = 0
        self.debited = 0
        self.returned = 0
        self.unsettled = 0
        self.uncounted = 0


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
        new_target: makes the counters of a target; nothing shows them yet.
        refresh: called before `breaker` and `targets` are shown; updates values that change with
            time.
    """

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
        self.new_target: Callable[[str], TargetMetrics] = lambda _: TargetMetrics()
        self.refresh: Callable[[], None] = lambda: None

    def target(self, name: str) -> TargetMetrics:
        """Return the counters of a target, created on first use."""
        return self.targets.get(name) or self.targets.setdefault(name, self.new_target(name))

    def known_target(self, name: str) -> TargetMetrics:
        """Return the counters of a target; new ones, which are not shown, if it is new."""
        return self.targets.get(name) or self.new_target(name)


class FrontendMetrics:
    """One listener for clients of another system.

    Attributes:
        hides_connections: whether the next two are unknown: a library may not report them.
        connections: how many connections were accepted.
        open_connections: how many are currently open.
        answers: how many requests were answered, by request and result.
        malformed: how much input was invalid, by a short kind from our own code.
        records: how many records it currently keeps besides the store's counts.
        record_bytes: their memory; None for listeners that keep none.
        tallies: see `tally`.
        refresh: called before `records` and `record_bytes` are shown; sets them.
    """

    def __init__(self) -> None:
        self.hides_connections = False
        self.connections = 0
        self.open_connections = 0
        self.answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.malformed: defaultdict[str, int] = defaultdict(int)
        self.records: int | None = None
        self.record_bytes: int | None = None
        self.tallies: dict[TallyKeys, MutableSequence[int]] = {}
        self.refresh: Callable[[], None] = lambda: None

    def tally(self, keys: TallyKeys) -> MutableSequence[int]:
        """Return counts of `answers` by place, for code that would spend much time on their keys.

        Args:
            keys: of the places, which are always the same places for the same keys.
        """
        return self.tallies.setdefault(keys, [0] * len(keys))

    def refreshed(self) -> None:
        """Let all counters show their present values."""
        for keys, counts in self.tallies.items():
            for key, count in zip(keys, counts, strict=True):
                if key is not None and count:
                    self.answers[key] = count
        self.refresh()


class StoreMetrics:
    """Calls to one store.

    Attributes:
        decisions: how many decisions it made.
        errors: how many calls failed, by `StoreError.reason`.
        breaker: the state of the circuit breaker: closed, open or half_open.
        is_ready: whether it would probably reply now.
        gateways: how many gateways share the store, as last seen.
        duration: how long successful calls took.
        is_follower: whether it follows another store. If it decides alone, the counters of
            policies show what it missed.
        missed: how many decisions it should have made for that store but did not.
        messages: how many messages were exchanged outside of calls, by message and result.
        refresh: called before `breaker`, `is_ready` and `gateways` are shown; sets them.
    """

    def __init__(self) -> None:
        self.decisions = 0
        self.errors: defaultdict[str, int] = defaultdict(int)
        self.breaker = "closed"
        self.is_ready = True
        self.gateways = 1
        self.duration = Histogram(STORE_BOUNDS_US)
        self.is_follower = False
        self.missed = 0
        self.messages: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.refresh: Callable[[], None] = lambda: None

    @property
    def batches(self) -> int:
        """Return in how many calls it made them."""
        return sum(self.duration.counts)

    def answered(self, decisions: int, duration_us: int) -> None:
        """Count one successful call, and the decisions in it."""
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

    def __init__(self) -> None:
        self.lines_dropped = 0


class ShownNames(NamedTuple):
    """What a configuration has counters for."""

    routes: Collection[str]
    policies: Collection[str]
    upstreams: Collection[str]
    stores: Collection[str]
    frontends: Collection[str]


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
        self.log = self.new(LogMetrics)
        self.memory: dict[str, MemoryMetrics] = {}
        self.routes: dict[str, RouteMetrics] = {}
        self.policies: dict[str, PolicyMetrics] = {}
        self.upstreams: dict[str, UpstreamMetrics] = {}
        self.stores: dict[str, StoreMetrics] = {}
        self.frontends: dict[str, FrontendMetrics] = {}

    def keep(self, names: ShownNames) -> None:
        """Forget the counters of all others: they are not configured any more."""
        self.routes = _only(self.routes, names.routes)
        self.policies = _only(self.policies, names.policies)
        self.upstreams = _only(self.upstreams, names.upstreams)
        self.stores = _only(self.stores, names.stores)
        self.frontends = _only(self.frontends, names.frontends)

    def settle(self) -> None:
        """Note that the counters that are not found here any more are not shown any more."""

    def new(self, make: type[T], *labels: str) -> T:
        """Return new counters.

        Args:
            make: their class.
            labels: what tells them apart from others of this class.
        """
        return make()

    def route(self, name: str) -> RouteMetrics:
        """Return the counters of a route, created on first use."""
        return self.routes.get(name) or self._add(self.routes, RouteMetrics, name)

    def policy(self, name: str) -> PolicyMetrics:
        """Return the counters of a policy, created on first use."""
        return self.policies.get(name) or self._add(self.policies, PolicyMetrics, name)

    def upstream(self, name: str) -> UpstreamMetrics:
        """Return the counters of an upstream, created on first use."""
        if name not in self.upstreams:
            of = self._add(self.upstreams, UpstreamMetrics, name)
            of.new_target = partial(self.new, TargetMetrics, name)
        return self.upstreams[name]

    def store(self, name: str) -> StoreMetrics:
        """Return the counters of a store, by its name and never its URL, which may be secret."""
        return self.stores.get(name) or self._add(self.stores, StoreMetrics, name)

    def keys_of(self, policy: str) -> MemoryMetrics:
        """Return the counters of a policy's keys in memory, created on first use."""
        return self.memory.get(policy) or self._add(self.memory, MemoryMetrics, policy)

    def frontend(self, name: str) -> FrontendMetrics:
        """Return the counters of a listener for another system, created on first use."""
        return self.frontends.get(name) or self._add(self.frontends, FrontendMetrics, name)

    def _add(self, to: dict[str, T], make: type[T], name: str) -> T:
        return to.setdefault(name, self.new(make, name))


def _only(children: dict[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: child for name, child in children.items() if name in names}
