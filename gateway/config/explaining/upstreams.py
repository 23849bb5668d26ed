"""How long an upstream may take, and how its targets are chosen and left out, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.config.models.balancing import BreakerConfig, EjectConfig, HashBy, HealthConfig
from gateway.config.models.gateway import RouteConfig
from gateway.config.models.upstreams import Timeouts, UpstreamConfig
from gateway.config.values.units import format_duration
from gateway.config.values.words import join, key_word


def explain_timeouts(upstream: UpstreamConfig) -> str:
    """How long the upstream may take for what."""
    times = upstream.timeouts
    total = f", {format_duration(times.total)} in all" if times.total else ""
    return (
        f"The upstream has {format_duration(times.connect)} to connect, "
        f"{format_duration(times.first_byte)} to begin its answer, {format_duration(times.idle)} "
        f"between two pieces of it{total}."
    )


def explain_websocket(route: RouteConfig, upstream: UpstreamConfig) -> Iterator[str]:
    """What is not as usual with WebSockets."""
    silence = upstream.timeouts.tunnel
    if not route.websocket:
        yield "No WebSocket can be opened: who asks for one is answered as if it had not."
    elif silence is None:
        yield "A WebSocket stays open until one side closes it, however long it is silent."
    elif silence != Timeouts.model_fields["tunnel"].default:
        silent_for = format_duration(silence)
        yield f"A WebSocket in which nobody sends anything for {silent_for} is closed."


def explain_choice(upstream: UpstreamConfig) -> Iterator[str]:
    """What a request's target depends on; nothing for one target that is not watched."""
    has_choice = len(upstream.targets) > 1
    if has_choice:
        yield _balance(upstream.balance)
    if upstream.health is not None:
        yield _health(upstream.health)
    if has_choice and upstream.eject is not None:
        yield _eject(upstream.eject)
    if upstream.slow_start and has_choice and (upstream.health or upstream.eject):
        duration = format_duration(upstream.slow_start)
        yield f"One that comes back has a tenth of its share at first, and all of it in {duration}."
    if upstream.health is not None and upstream.if_none_healthy == "reject":
        yield "If all targets are left out, requests are answered with 503."
    elif upstream.health is not None:
        yield "If all targets are left out, they are used nevertheless."
    if upstream.breaker is not None:
        yield _breaker(upstream.breaker)


_BALANCED: Final = {
    "round_robin": "Targets take turns, by weight.",
    "least_requests": "A request goes to the target with the fewest in flight for its weight.",
    "random_two": "Of two targets drawn by weight, the one with fewer requests in flight is taken.",
}


def _balance(balance: str | HashBy) -> str:
    if not isinstance(balance, HashBy):
        return _BALANCED[balance]
    key = join([key_word(word) for word in balance.words])
    same = f"Requests with the same {key} go to the same target"
    lacks = any(":" in word for word in balance.words)
    return f"{same}; those that lack it take turns." if lacks else f"{same}."


def _health(health: HealthConfig) -> str:
    every, timeout = format_duration(health.every), format_duration(health.timeout)
    if health.path is None:
        asked = f"Every {every} each target is connected to, within {timeout}"
    else:
        wanted = join([str(status) for status in health.status], "or") or "200 to 399"
        asked = (
            f"Every {every} each target is asked for {health.path} and must answer {wanted} "
            f"within {timeout}"
        )
    return (
        f"{asked}; it is left out after {_times(health.unhealthy_after, 'failure')} in a row, "
        f"and back after {health.healthy_after} without."
    )


def _eject(eject: EjectConfig) -> str:
    return (
        f"{_times(eject.failures, 'failure')} in a row (no connection, no answer in time"
        f"{_statuses(eject.statuses)}) leave a target out for {format_duration(eject.duration)}, "
        f"and each time twice as long, up to {format_duration(eject.max_duration)}; at most "
        f"{eject.max_share} of the targets at a time."
    )


def _breaker(breaker: BreakerConfig) -> str:
    return (
        f"If {breaker.failures} of {breaker.min_requests} requests or more in "
        f"{format_duration(breaker.window)} fail (no connection, no answer in time"
        f"{_statuses(breaker.statuses)}), all are answered with 503 for "
        f"{format_duration(breaker.open)}; then {_times(breaker.trials, 'trial')} must succeed."
    )


def _statuses(statuses: Sequence[int | str]) -> str:
    return f", {join([str(status) for status in statuses], 'or')}" if statuses else ""


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
