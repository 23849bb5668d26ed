"""Choose the target of each attempt, and judge targets by the outcomes.

The decisions are in `gateway.proxy.upstream.balancing`. Here they meet the clock, randomness,
counters and the log. An upstream of one target without checks or a breaker has no `LoadBalancer`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from gateway.base.clock import US, Clock, monotonic_us
from gateway.base.errors import (
    UpstreamBreakerError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTargetError,
    UpstreamTimeout,
)
from gateway.board.board import Seat
from gateway.config.models.balancing import (
    BreakerConfig,
    EjectConfig,
    HashBy,
    HealthConfig,
    numbers,
)
from gateway.config.models.consistency import parts
from gateway.config.models.gateway import UpstreamConfig
from gateway.config.values.units import format_duration
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.balancing import (
    NO_TICKET,
    Balancer,
    BreakerNumbers,
    Candidate,
    Change,
    CheckCounter,
    ConsistentHash,
    Ejection,
    EjectionRecord,
    LeastRequests,
    RandomTwo,
    RoundRobin,
    TargetHealth,
    WindowBreaker,
)
from gateway.proxy.upstream.pool import AttemptOutcome, TargetPool
from gateway.proxy.upstream.shared_breaker import SharedBreaker
from gateway.routing.keys import compile_key
from gateway.routing.request_view import RequestView

log = logging.getLogger(__name__)

EARLIER_BITS: Final = 8
EARLIER_MOST: Final = (1 << EARLIER_BITS) - 1
"""How often a target was ejected in a row is counted up to this on the board: by then it is out for
the longest time."""

BALANCERS: Final[dict[str, Callable[[], Balancer]]] = {
    "round_robin": RoundRobin,
    "least_requests": LeastRequests,
    "random_two": lambda: RandomTwo(random.random),
}


class LoadBalancer:
    """Chooses among the targets of one upstream.

    Args:
        name: of the upstream, for the log.
        config: of the upstream.
        pools: its targets, in order.
        metrics: of the upstream.
        predecessor: the one that this one replaces when the configuration changes; None for none.
        clock: returns the time.
        seat: the place of this worker at the board, by which workers tell each other what they
            know of targets; None if it is the only one.
    """

    def __init__(
        self,
        name: str,
        config: UpstreamConfig,
        pools: Sequence[TargetPool],
        metrics: UpstreamMetrics,
        predecessor: LoadBalancer | None = None,
        clock: Clock = monotonic_us,
        seat: Seat | None = None,
    ) -> None:
        self._name = name
        self._config = config
        self._pools = tuple(pools)
        self._metrics = metrics
        self._clock = clock
        names = [pool.name for pool in pools]
        self._names = [f"{name}#{names[:at].count(name)}" for at, name in enumerate(names)]
        self._counters = {name: metrics.known_target(name) for name in dict.fromkeys(names)}
        self._targets = [self._counters[pool.name] for pool in pools]
        self._retry_after_us = config.health.every if config.health is not None else US
        self._key: Callable[[RequestView], str | None] | None = None
        self._coming: Counter[TargetPool] = Counter()
        self._looks_at_load = config.balance in {"least_requests", "random_two"}
        self._balancer: Balancer
        if isinstance(config.balance, HashBy):
            self._balancer = ConsistentHash()
            self._key = _key_of(config.balance)
        else:
            self._balancer = BALANCERS[config.balance]()
        ejects = config.eject is not None and len(self._pools) > 1
        self._health = TargetHealth(
            self._candidates(config),
            _ejection(config.eject) if config.eject is not None else None,
            config.slow_start or 0,
            is_panic_allowed=config.if_none_healthy == "all",
        )
        self._spots = []
        if seat is not None and ejects:
            self._spots = [seat.spot(f"ejected {name} {one}") for one in self._names]
        health = config.health or HealthConfig()
        self._checks = [
            CheckCounter(health.healthy_after, health.unhealthy_after) for _ in self._pools
        ]
        self._is_panic = False
        self._ejecting = numbers(config.eject.statuses if config.eject and ejects else ())
        self._breaking = numbers(config.breaker.statuses if config.breaker else ())
        self._seat = seat
        self._breaker = _breaker(config.breaker, name, seat, clock()) if config.breaker else None
        self._judges = ejects or self._breaker is not None
        if predecessor is not None:
            self._take_over(predecessor)
        self.learn()
        self.publish()

    def _take_over(self, predecessor: LoadBalancer) -> None:
        """Continue with what is known of targets that stay."""
        places = {pool: place for place, pool in enumerate(predecessor._pools)}
        kept = {at: places[pool] for at, pool in enumerate(self._pools) if pool in places}
        is_checked_alike = predecessor._config.health == self._config.health
        if is_checked_alike:
            for at, place in kept.items():
                self._checks[at] = predecessor._checks[place]
        now_us = self._clock()
        self._health.take_over(predecessor._health, kept, now_us, is_checked_alike=is_checked_alike)
        self._is_panic = self._health.is_panic
        if self._breaker is not None and predecessor._config.breaker == self._config.breaker:
            self._breaker = predecessor._breaker

    def __repr__(self) -> str:
        return f"<LoadBalancer {self._name}: {list(self._health.usable)}>"

    def publish(self) -> None:
        """Judge the targets, and let the counters of the upstream show them, and no others."""
        for index, pool in enumerate(self._pools):
            pool.judge = TargetJudge(self, index) if self._judges else None
        metrics = self._metrics
        metrics.targets = self._counters
        metrics.breaker = self._breaker.state.value if self._breaker is not None else ""
        metrics.refresh = lambda: self._note(self._health.refresh(self._clock()))

    def admit(self) -> int:
        """Return the ticket of one attempt; `NO_TICKET` if there is no breaker.

        Raises:
            UpstreamError: the breaker is open, or there is no target.
        """
        now = self._refresh()
        if not self._health.usable:
            raise UpstreamTargetError(self._retry_after_us)
        breaker = self._breaker
        if breaker is None:
            return NO_TICKET
        ticket = breaker.admit(now)
        self._metrics.breaker = breaker.state.value
        if ticket == NO_TICKET:
            raise UpstreamBreakerError(breaker.retry_after_us(now) or 1)
        return ticket

    def learn(self) -> None:
        """Take over what other workers have written on the board."""
        seat, now = self._seat, self._clock()
        if isinstance(self._breaker, SharedBreaker) and self._breaker.learn():
            self._metrics.breaker = self._breaker.state.value
        if seat is None:
            return
        for index, spot in enumerate(self._spots):
            if newest := max(seat.others(spot), default=0):
                record = EjectionRecord(newest >> EARLIER_BITS, newest & EARLIER_MOST)
                self._note(self._health.learn(index, record, now))

    def _tell(self, index: int, *, is_news: bool) -> None:
        """Let other workers see whether a target is ejected; wake them if it is news."""
        seat = self._seat
        if seat is None or not self._spots:
            return
        record, number = self._health.ejection_of(index), 0
        if record is not None:
            number = record.until_us << EARLIER_BITS | min(record.earlier, EARLIER_MOST)
        seat.write(self._spots[index], number)
        if is_news:
            seat.ring_others()

    def key_of(self, request: RequestView) -> str | None:
        """Return the key that a request is balanced by; None if it has none."""
        return self._key(request) if self._key is not None else None

    def pick(self, key: str | None, tried: Collection[TargetPool] = ()) -> TargetPool:
        """Return the target for one attempt that was admitted.

        Args:
            key: the key that the request is balanced by; None if it has none.
            tried: targets to avoid, as long as there are others.
        """
        candidates = self._health.usable
        if tried:
            others = [one for one in candidates if self._pools[one.index] not in tried]
            candidates = others or candidates
        if len(candidates) == 1:
            index = candidates[0].index
        else:
            index = self._balancer.pick(candidates, key).index
        self._targets[index].requests += 1
        pool = self._pools[index]
        if self._looks_at_load and not pool.has_idle:
            self._expect(pool)
        return pool

    def _refresh(self) -> int:
        """End what has expired, such as ejections; return the time."""
        now = self._clock()
        if self._health.due_us <= now:
            self._note(self._health.refresh(now))
        return now

    def _candidates(self, config: UpstreamConfig) -> list[Candidate]:
        """Return the candidates, named by address: gateways agree whatever the order."""
        candidates: list[Candidate] = []
        for index, (pool, target) in enumerate(zip(self._pools, config.targets, strict=True)):
            name = self._names[index]
            in_flight = partial(self._in_flight, pool)
            candidates.append(Candidate(index, name, target.weight, in_flight))
        return candidates

    def _in_flight(self, pool: TargetPool) -> int:
        return pool.in_flight + self._coming[pool]

    def _expect(self, pool: TargetPool) -> None:
        """Count a request that has yet to connect as in flight, for others in the same turn."""
        if not self._coming:
            # In the next turn its task runs, and the pool counts it.
            asyncio.get_running_loop().call_soon(self._coming.clear)
        self._coming[pool] += 1

    def observe(self, index: int, ticket: int, outcome: AttemptOutcome) -> None:
        """Record the outcome of an attempt at a target.

        Args:
            index: of the target.
            ticket: as `admit` returned it.
            outcome: of the attempt.
        """
        is_failure = _is_failure(outcome)
        if self._breaker is not None and ticket != NO_TICKET:
            failed = outcome in self._breaking if isinstance(outcome, int) else is_failure
            self._report(self._breaker, ticket, is_failure=failed)
        if isinstance(outcome, int):
            is_failure = outcome in self._ejecting
        if is_failure:
            self._note(self._health.failed(index, self._clock()), outcome)
        elif is_failure is not None and not self._health.has_no_failures(index):
            self._health.succeeded(index, self._clock())

    def checked(self, index: int, failure: str) -> None:
        """Record a check of a target; `failure` says why it failed, or nothing if it passed."""
        target, checks = self._targets[index], self._checks[index]
        target.checks += 1
        target.checks_failed += bool(failure)
        if checks.passed(is_passed=not failure):
            now = self._clock()
            changes = self._health.checked(index, now, is_healthy=checks.is_healthy)
            self._note(changes, failure)

    def _report(self, breaker: WindowBreaker, ticket: int, *, is_failure: bool | None) -> None:
        now = self._clock()
        if not breaker.report(ticket, now, is_failure=is_failure):
            return
        self._metrics.breaker = breaker.state.value
        if wait_us := breaker.retry_after_us(now):
            message = "upstream %s: too many requests fail; no requests are sent for %s"
            log.warning(message, self._name, format_duration(wait_us))
        else:
            log.info("upstream %s: requests succeed again; all are sent", self._name)

    def _note(self, changes: Sequence[Change], why: object = "") -> None:
        for change in changes:
            index = change.target
            target = self._targets[index]
            target.is_healthy = self._health.is_healthy(index)
            if target.is_ejected != self._health.is_ejected(index):
                target.is_ejected = not target.is_ejected
                self._tell(index, is_news=target.is_ejected and not change.is_learned)
            name = self._pools[index].name
            if change.is_learned:
                # The worker that has judged it logs and counts it.
                continue
            if change.kind == "ejected":
                target.ejections += 1
                message = "upstream %s: %s is left out for %s: too many failures, the last: %s"
                duration = format_duration(change.for_us)
                log.warning(message, self._name, name, duration, _in_words(why))
            elif change.kind == "unhealthy":
                message = "upstream %s: %s is left out: checks fail, the last: %s"
                log.warning(message, self._name, name, why)
            elif target.is_healthy and not target.is_ejected:
                log.info("upstream %s: %s is used again", self._name, name)
        if changes and self._is_panic != self._health.is_panic:
            self._is_panic = not self._is_panic
            if self._is_panic:
                then = "used nevertheless" if self._health.usable else "requests are answered 503"
                log.error("upstream %s: all targets are left out; %s", self._name, then)


class TargetJudge:
    """Judges one target of a load balancer by the outcomes of attempts at it."""

    __slots__ = ("_balancer", "_index")

    def __init__(self, balancer: LoadBalancer, index: int) -> None:
        self._balancer = balancer
        self._index = index

    def observe(self, ticket: int, outcome: AttemptOutcome) -> None:
        """Record the outcome of an attempt."""
        self._balancer.observe(self._index, ticket, outcome)


def _is_failure(outcome: AttemptOutcome) -> bool | None:
    """Return whether the target made an attempt fail; None if unknown. Statuses are apart."""
    if isinstance(outcome, UpstreamTimeout):
        return None if outcome.phase == "queue" else True
    if isinstance(outcome, UpstreamError):
        return None if isinstance(outcome, UpstreamBusyError) else True
    return None


def _in_words(outcome: object) -> str:
    if isinstance(outcome, int):
        return f"status {outcome}"
    return f"{outcome.kind} ({outcome})" if isinstance(outcome, UpstreamError) else str(outcome)


def _key_of(by: HashBy) -> Callable[[RequestView], str | None]:
    """Return the function that computes a request's key; None if requests have no key."""
    if by.words == ("path",):
        return lambda request: request.path
    key = compile_key(by.words, if_missing="skip", route="")

    def read(request: RequestView) -> str | None:
        value = key(request)
        if isinstance(value, tuple):
            return value[0]
        return value if isinstance(value, str) else None

    return read


def _ejection(config: EjectConfig) -> Ejection:
    return Ejection(
        config.failures,
        config.duration,
        config.max_duration,
        parts(config.max_share),
        PARTS_PER_WHOLE,
    )


def _breaker(config: BreakerConfig, name: str, seat: Seat | None, now_us: int) -> WindowBreaker:
    numbers = BreakerNumbers(
        parts(config.failures),
        PARTS_PER_WHOLE,
        config.min_requests,
        config.window,
        config.open,
        config.trials,
    )
    if seat is None:
        return WindowBreaker(numbers)
    return SharedBreaker(numbers, seat, f"breaker {name} {config!r}", now_us)
