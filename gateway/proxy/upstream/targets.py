"""A named upstream: its targets, and how often attempts at them may be repeated."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.base.clock import monotonic_us
from gateway.board.board import Seat
from gateway.config.models.gateway import UpstreamConfig
from gateway.net.tls.client import UpstreamTls
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.balancing import NO_TICKET
from gateway.proxy.upstream.http2.pool import StreamPool
from gateway.proxy.upstream.load_balancer import LoadBalancer
from gateway.proxy.upstream.names import Resolve, resolve
from gateway.proxy.upstream.pool import TargetPool
from gateway.proxy.upstream.retry import RetryBudget, RetryRule, retries_of
from gateway.routing.request_view import RequestView

CHOICE: Final = frozenset(
    (
        *("targets", "retry", "tls", "balance", "health", "eject", "breaker", "slow_start"),
        "if_none_healthy",
    )
)
"""Settings of an upstream that do not concern the connections to a target."""


class Upstream:
    """A named pool of targets.

    Args:
        name: as configured.
        config: its configuration.
        metrics: its counters.
        max_head: as in `TargetPool`.
        tls: for targets with `https://`.
        look_up: as in `TargetPool`.
        predecessor: the one that this one replaces when the configuration changes: it keeps the
            connections to targets that stay, and what is known of them.
        seat: the place of this worker at the board; None if it is the only one.
        workers: as in `TargetPool`.

    Attributes:
        name: as configured.
        metrics: its counters.
        speaks_http2: whether its targets are spoken to with HTTP/2.
        health: how its targets are checked; None if they are not.
        balancer: chooses among the targets; None if there is no choice.
        only: the target of every request then; None if `pick` has a choice.
        budget: how often its requests may be retried.
    """

    def __init__(
        self,
        name: str,
        config: UpstreamConfig,
        metrics: UpstreamMetrics,
        max_head: int,
        tls: UpstreamTls | None = None,
        look_up: Resolve = resolve,
        predecessor: Upstream | None = None,
        seat: Seat | None = None,
        workers: int = 1,
    ) -> None:
        self.name = name
        self.metrics = metrics
        self.health = config.health
        self.speaks_http2 = config.http2
        self._config = config
        self._tls = tls
        self._seat = seat
        self._spot = seat.spot(f"retries {name}") if seat is not None else None
        kept = predecessor.pools_for(config, tls) if predecessor is not None else []
        pools: list[TargetPool] = []
        for target in config.targets:
            pool = next((one for one in kept if one.is_of(target) and one not in pools), None)
            if pool is None:
                make = StreamPool if config.http2 else TargetPool
                pool = make(target, config, metrics, max_head, tls, look_up, workers)
            pools.append(pool)
        self._pools = tuple(pools)
        self.balancer: LoadBalancer | None = None
        if len(pools) > 1 or config.health or config.breaker:
            before = predecessor.balancer if predecessor is not None else None
            self.balancer = LoadBalancer(name, config, self._pools, metrics, before, seat=seat)
        self.only = self._pools[0] if self.balancer is None else None
        self.budget: RetryBudget = predecessor.budget if predecessor is not None else RetryBudget()

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {list(self._pools)}>"

    @property
    def total_s(self) -> float:
        """Return how long an exchange may take, in seconds; `inf` for no limit."""
        return self._pools[0].total_s

    @property
    def silence_s(self) -> float:
        """Return how long a stream of both sides may be silent, in seconds; `inf` for any time."""
        return self._pools[0].silence_s

    def keep_to(self, seconds: float) -> None:
        """Check connections often enough for a time limit of this length as well."""
        for pool in self._pools:
            pool.keep_to(seconds)

    def may_retry(self, rule: RetryRule, reason: str) -> bool:
        """Return whether one more retry is allowed now; count it, or its refusal."""
        metrics, now_us = self.metrics, monotonic_us()
        firsts = metrics.requests + self.budget.unsent - sum(metrics.retries.values())
        elsewhere = 0
        if self._seat is not None and self._spot is not None:
            elsewhere = retries_of(self._seat.others(self._spot), now_us)
        if not self.budget.spend(now_us, firsts, rule.share, rule.floor, elsewhere):
            metrics.retries_refused += 1
            return False
        if self._seat is not None and self._spot is not None:
            self._seat.write(self._spot, self.budget.record)
        metrics.retries[reason] += 1
        return True

    @property
    def pools(self) -> tuple[TargetPool, ...]:
        """Return its targets, in the order of the configuration."""
        return self._pools

    def admit(self) -> int:
        """Return the ticket of one attempt, with which its target's `judge` records it.

        Raises:
            UpstreamError: nothing may be sent to this upstream now.
        """
        return NO_TICKET if self.balancer is None else self.balancer.admit()

    def key_of(self, request: RequestView) -> str | None:
        """Return the key that a request is balanced by; None if it has none."""
        return None if self.balancer is None else self.balancer.key_of(request)

    def pick(self, key: str | None = None, tried: Collection[TargetPool] = ()) -> TargetPool:
        """Return the target for one attempt that was admitted.

        Args:
            key: the key that the request is balanced by, as `key_of` returns it.
            tried: targets to avoid, as long as there are others.
        """
        if self.balancer is None:
            return self._pools[0]
        return self.balancer.pick(key, tried)

    def checked(self, index: int, failure: str) -> None:
        """Record a check of a target; `failure` says why it failed, or nothing if it passed."""
        if self.balancer is not None:
            self.balancer.checked(index, failure)

    def learn(self) -> None:
        """Take over what other workers have written on the board."""
        if self.balancer is not None:
            self.balancer.learn()

    def start(self) -> None:
        """Start looking up the names of its targets, instead of at the first request."""
        for pool in self._pools:
            pool.start()

    def pools_for(self, config: UpstreamConfig, tls: UpstreamTls | None) -> list[TargetPool]:
        """Return the targets whose connections another configuration can use."""
        before = self._config
        names = UpstreamConfig.model_fields.keys() - CHOICE
        is_same = all(getattr(before, name) == getattr(config, name) for name in names)
        return list(self._pools) if is_same and tls is self._tls else []

    def publish(self) -> None:
        """Judge its targets, and let the counters of its name show them, and not another's."""
        if self.balancer is not None:
            self.balancer.publish()
        else:
            self._pools[0].judge = None
            self.metrics.targets, self.metrics.breaker = {}, ""

    def retire(self, kept: Collection[TargetPool]) -> None:
        """Close idle connections; requests that began before may still use it.

        Args:
            kept: targets that are still in use elsewhere.
        """
        for pool in self._pools:
            if pool not in kept:
                pool.retire()

    def close(self, kept: Collection[TargetPool] = ()) -> None:
        """Close idle connections; those in use close when they come back.

        Args:
            kept: targets that are still in use elsewhere.
        """
        for pool in self._pools:
            if pool not in kept:
                pool.close()
