"""Latency that a proxy adds at 1,000 requests a second, over asking the upstream directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from bench.pace import Latencies, measure
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.nginx import NGINX
from bench.rivals.sluice import SLUICE
from bench.scenarios.base import Plan, in_rounds, running
from bench.stage import Stage

RATE = 1_000
RIVALS = (NGINX, SLUICE)
_DIRECT = "direct"
_WARM_UP_SECONDS = 1.0
_ALLOWED = 3.0

Percentile = Callable[[Latencies], float]
_PERCENTILES: tuple[tuple[str, Percentile], ...] = (
    ("p50", lambda found: found.p50_us),
    ("p99", lambda found: found.p99_us),
)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Interleave direct, nginx and Sluice; compare what the two proxies add."""
    result = Result(
        f"Latency at {RATE:,} requests/s, in microseconds",
        ["way", "p50", "p99", "highest", "added p50", "added p99"],
    )
    found: dict[str, list[Latencies]] = {}

    def take(name: str, url: str, number: int) -> None:
        if number == 1:
            measure(url, RATE, _WARM_UP_SECONDS)
        one = measure(url, RATE, plan.seconds)
        found.setdefault(name, []).append(one)
        plan.say(f"  round {number}: {name} p50 {one.p50_us:.0f} us, p99 {one.p99_us:.0f} us")

    with running(RIVALS, WITHIN, stage, result.broken) as contestants:
        ways = {_DIRECT: f"http://127.0.0.1:{stage.upstream_port}/"}
        ways |= {contestant.rival.name: contestant.url() for contestant in contestants}
        measurements = {name: partial(take, name, url) for name, url in ways.items()}
        working = in_rounds(plan.rounds, measurements, result.broken)
    _fill(result, {name: rounds for name, rounds in found.items() if name in working})
    result.remarks.append(
        "A constant rate on 64 connections; latency counts from when a request was due, "
        "so a stall is charged to every request that it delays. "
        "Medians over the rounds; what is added is taken round by round, over direct."
    )
    yield result


def _added(found: dict[str, list[Latencies]], name: str, of: Percentile) -> float | None:
    if name not in found or _DIRECT not in found:
        return None
    pairs = zip(found[name], found[_DIRECT], strict=True)
    return median(of(through) - of(direct) for through, direct in pairs)


def _fill(result: Result, found: dict[str, list[Latencies]]) -> None:
    for name, rounds in found.items():
        cells = [f"{median(of(one) for one in rounds):.0f}" for _, of in _PERCENTILES]
        added = [
            f"{more:.0f}" if name != _DIRECT and more is not None else ""
            for more in (_added(found, name, of) for _, of in _PERCENTILES)
        ]
        highest = f"{median(one.max_us for one in rounds):.0f}"
        result.rows.append([name, *cells, highest, *added])
    for label, of in _PERCENTILES:
        multiple = ratio(_added(found, SLUICE.name, of), _added(found, NGINX.name, of))
        goal = Goal(f"added {label}, Sluice / nginx", multiple, _ALLOWED, is_ceiling=True)
        result.goals.append(goal)
