"""A named upstream: its targets, and how often attempts at them may be repeated."""

from __future__ import annotations

from collections.abc import Collection

from gateway.base.clock import monotonic_us
from gateway.config.models.gateway import UpstreamConfig
from gateway.net.tls.client import UpstreamTls
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.balancing import NO_TICKET
from gateway.proxy.upstream.load_balancer import LoadBalancer
from gateway.proxy.upstream.names import Resolve, resolve
from gateway.proxy.upstream.pool import TargetPool
from gateway.proxy.upstream.retry import RetryBudget, RetryRule
from gateway.routing.request_view import RequestView


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
        self._balancer = LoadBalancer(name, config, self._pools, metrics) if needs_choice else None
        self.only = self._pools[0] if self._balancer is None else None
        self.budget = RetryBudget()

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {list(self._pools)}>"

    @property
    def total_s(self) -> float:
        """How long an exchange may take, in seconds; `inf` for any time."""
        return self._pools[0].total_s

    def keep_to(self, seconds: float) -> None:
        """Watch connections often enough for a time limit of this length as well."""
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

    def admit(self) -> int:
        """Return the ticket of one attempt, which its target's `judge` observes it with.

        Raises:
            UpstreamError: nothing may be sent to this upstream now.
        """
        return NO_TICKET if self._balancer is None else self._balancer.admit()

    def key_of(self, request: RequestView) -> str | None:
        """What a request is balanced by; None if that is not the request."""
        return None if self._balancer is None else self._balancer.key_of(request)

    def pick(self, key: str | None = None, tried: Collection[TargetPool] = ()) -> TargetPool:
        """Return the target for one attempt that was admitted.

        Args:
            key: what the request is balanced by, as `key_of` returns it.
            tried: targets to be avoided, as long as there are others.
        """
        if self._balancer is None:
            return self._pools[0]
        return self._balancer.pick(key, tried)

    def checked(self, index: int, failure: str) -> None:
        """A target was checked; `failure` says why it did not pass, or nothing if it did."""
        if self._balancer is not None:
            self._balancer.checked(index, failure)

    def start(self) -> None:
        """Look up the names of its targets from now on; without it, from the first request on."""
        for pool in self._pools:
            pool.start()

    def close(self) -> None:
        """Close idle connections; those in use close when they come back."""
        for pool in self._pools:
            pool.close()
