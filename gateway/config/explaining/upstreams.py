"""Timeouts of an upstream, and how its targets are chosen and excluded, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from gateway.config.models.balancing import BreakerConfig, EjectConfig, HashBy, HealthConfig
from gateway.config.models.gateway import RouteConfig
from gateway.config.models.upstreams import Timeouts, UpstreamConfig, part_of
from gateway.config.values.units import format_duration
from gateway.config.values.words import join, key_word, number


def explain_timeouts(upstream: UpstreamConfig) -> str:
    """Describe the timeouts of the upstream."""
    times = upstream.timeouts
    total = f", {format_duration(times.total)} in all" if times.total else ""
    return (
        f"The upstream has {format_duration(times.connect)} to connect, "
        f"{format_duration(times.first_byte)} to begin its response, "
        f"{format_duration(times.idle)} between two pieces of it{total}."
    )


def explain_parts(upstream: UpstreamConfig, workers: Literal["auto"] | int) -> Iterator[str]:
    """Describe how many connections each of several workers may open."""
    most = number(upstream.max_connections)
    if workers == "auto":
        yield f"{most} connections to each target are divided among the workers, at least one each."
    elif workers > 1:
        part = number(part_of(upstream.max_connections, workers))
        yield f"Each worker opens at most {part} of {most} connections to each target."


def explain_websocket(route: RouteConfig, upstream: UpstreamConfig) -> Iterator[str]:
    """Describe WebSockets if they are not as usual."""
    silence = upstream.timeouts.tunnel
    if upstream.http2 or not route.websocket:
        yield "WebSockets are disabled: a request for one is answered as if it had not asked."
    elif silence is None:
        yield "A WebSocket stays open until one side closes it, even if it is idle."
    elif silence != Timeouts.model_fields["tunnel"].default:
        silent_for = format_duration(silence)
        yield f"A WebSocket that is idle for {silent_for} is closed."


def explain_choice(upstream: UpstreamConfig) -> Iterator[str]:
    """Describe how targets are spoken to and chosen; nothing for a single one as usual."""
    has_choice = len(upstream.targets) > 1
    if upstream.http2:
        yield (
            f"HTTP/2 is spoken, with up to {number(upstream.max_streams)} requests on a connection "
            "at a time."
        )
    if has_choice:
        yield _balance(upstream.balance)
    if upstream.health is not None:
        yield _health(upstream.health)
    if has_choice and upstream.eject is not None:
        yield _eject(upstream.eject)
    if upstream.slow_start and has_choice and (upstream.health or upstream.eject):
        duration = format_duration(upstream.slow_start)
        yield (
            "A target that returns gets a tenth of its share at first, and all of it after "
            f"{duration}."
        )
    if upstream.health is not None and upstream.if_none_healthy == "reject":
        yield "If no target is available, requests are answered with 503."
    elif upstream.health is not None:
        yield "If no target is available, all are used anyway."
    if upstream.breaker is not None:
        yield _breaker(upstream.breaker)


_BALANCED: Final = {
    "round_robin": "Targets take turns, by weight.",
    "least_requests": (
        "A request goes to the target with the fewest requests in flight, relative to its weight."
    ),
    "random_two": (
        "Of two targets drawn by weight, a request goes to the one with fewer requests in flight."
    ),
}


def _balance(balance: str | HashBy) -> str:
    if not isinstance(balance, HashBy):
        return _BALANCED[balance]
    key = join([key_word(word) for word in balance.words])
    same = f"Requests with the same {key} go to the same target"
    lacks = any(":" in word for word in balance.words)
    return f"{same}; requests without it take turns." if lacks else f"{same}."


def _health(health: HealthConfig) -> str:
    every, timeout = format_duration(health.every), format_duration(health.timeout)
    if health.grpc is not None:
        asked = (
            f"Every {every}, the gateway asks each target by gRPC for the health of "
            f"{health.grpc or 'the whole server'}, which must be SERVING within {timeout}"
        )
    elif health.path is None:
        asked = f"Every {every}, the gateway connects to each target, within {timeout}"
    else:
        wanted = join([str(status) for status in health.status], "or") or "200 to 399"
        asked = (
            f"Every {every}, the gateway requests {health.path} from each target, which "
            f"must answer {wanted} within {timeout}"
        )
    return (
        f"{asked}; a target is excluded after {_times(health.unhealthy_after, 'failure')} "
        "in a row, and returns after "
        f"{_times(health.healthy_after, 'successful check')}."
    )


def _eject(eject: EjectConfig) -> str:
    return (
        f"{_times(eject.failures, 'failure')} in a row (no connection, no response in "
        f"time{_statuses(eject.statuses)}) exclude a target for "
        f"{format_duration(eject.duration)}, and twice as long each time after, up to "
        f"{format_duration(eject.max_duration)}; at most {eject.max_share} of the targets "
        "at a time."
    )


def _breaker(breaker: BreakerConfig) -> str:
    return (
        f"If {breaker.failures} of at least {breaker.min_requests} requests in "
        f"{format_duration(breaker.window)} fail (no connection, no response in "
        f"time{_statuses(breaker.statuses)}), all are answered with 503 for "
        f"{format_duration(breaker.open)}; then {_times(breaker.trials, 'trial')} must "
        "succeed."
    )


def _statuses(statuses: Sequence[int | str]) -> str:
    return f", {join([str(status) for status in statuses], 'or')}" if statuses else ""


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
