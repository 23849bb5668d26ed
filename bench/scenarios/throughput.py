"""What the three closed-loop scenarios share: a flood by wrk, told per contestant.

Beside requests per second stands how busy the proxy's CPU was. Where it was not near 100 %,
the load generator and the upstream on the other CPU were the narrow place, and the proxy
could have done more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from bench.load import Flood, flood
from bench.results import Result
from bench.rivals.base import Contestant, Rate, Rival
from bench.scenarios.base import Plan, forget_log, in_rounds, running
from bench.servers import CpuShares, cpu_shares
from bench.stage import Stage

_WARM_UP_SECONDS = 1.0

_LEAST_SHARE = 0.01
_LEGEND = (
    '"x": the multiple of Sluice\'s figure. "its CPU": how busy the proxy kept its CPU; well under '
    "100 %, the load generator and the upstream on the other one were the narrow place, and "
    '"per CPU second" tells what the proxy would do if they were not. "others": what other '
    "processes took of that CPU at worst; next to nothing on a quiet machine."
)
_HEADER = (
    "proxy",
    "does",
    "requests/s",
    "x",
    "lowest to highest",
    "its CPU",
    "per CPU second",
    "others",
)

Figure = Callable[[Flood], float]
"""Which number of a flood the scenario is about, per second."""

Load = Callable[[str, float], Flood]
"""Floods an address for so many seconds."""


@dataclass(slots=True)
class Samples:
    """One contestant's rounds."""

    floods: list[Flood] = field(default_factory=list)
    cpu: list[CpuShares] = field(default_factory=list)


def measure(
    title: str,
    rivals: Sequence[Rival],
    rate: Rate,
    figure: Figure,
    plan: Plan,
    stage: Stage,
    load: Load = flood,
    *,
    is_http2: bool = False,
) -> tuple[Result, dict[str, float]]:
    """Flood all contestants in interleaved rounds; with `is_http2`, where they speak HTTP/2.

    Returns:
        The result with its table but without goals, and the median figure by rival's name.
    """
    result = Result(title, list(_HEADER))
    samples: dict[str, Samples] = {}

    def url_of(contestant: Contestant) -> str:
        return contestant.http2_url if is_http2 else contestant.url()

    def take(contestant: Contestant, number: int) -> None:
        if number == 1:
            load(url_of(contestant), _WARM_UP_SECONDS)
        name = contestant.rival.name
        one = partial(load, url_of(contestant), plan.seconds)
        _flood_once(contestant, samples.setdefault(name, Samples()), one)
        plan.say(f"  round {number}: {name} {figure(samples[name].floods[-1]):,.0f}/s")

    with running(rivals, rate, stage, result.broken) as contestants:
        measurements = {c.rival.name: partial(take, c) for c in contestants}
        working = in_rounds(plan.rounds, measurements, result.broken)
    names = [rival.name for rival in rivals if rival.name in working]
    figures = {name: [figure(f) for f in samples[name].floods] for name in names}
    _fill(result, rivals, figures, samples)
    for name in names:
        result.remarks += _oddities(name, samples[name], rate)
    return result, {name: median(values) for name, values in figures.items()}


def _flood_once(contestant: Contestant, samples: Samples, load: Callable[[], Flood]) -> None:
    server = contestant.server
    server.expect_alive()
    shares = cpu_shares(server, lambda: samples.floods.append(load()))
    server.expect_alive()
    samples.cpu.append(shares)
    forget_log(contestant)


def _fill(
    result: Result,
    rivals: Sequence[Rival],
    figures: dict[str, list[float]],
    samples: dict[str, Samples],
) -> None:
    ours = next((median(v) for name, v in figures.items() if name.startswith("Sluice")), None)
    jobs = {rival.name: rival.job for rival in rivals}
    for name, values in sorted(figures.items(), key=lambda item: -median(item[1])):
        result.rows.append(
            [
                name,
                jobs[name],
                f"{median(values):,.0f}",
                f"{median(values) / ours:.2f}" if ours else "",
                f"{min(values):,.0f} to {max(values):,.0f}",
                f"{median(shares.own for shares in samples[name].cpu):.0%}",
                f"{_per_cpu_second(values, samples[name].cpu):,.0f}",
                f"{max(shares.others for shares in samples[name].cpu):.0%}",
            ]
        )
    result.remarks.append(_LEGEND)


def _per_cpu_second(per_second: list[float], cpu: list[CpuShares]) -> float:
    pairs = zip(per_second, cpu, strict=True)
    return median(value / max(shares.own, _LEAST_SHARE) for value, shares in pairs)


def _oddities(name: str, samples: Samples, rate: Rate) -> list[str]:
    """What a reader should know: broken connections, refusals within a limit, excess over it."""
    found: list[str] = []
    errors = sum(one.errors for one in samples.floods)
    if errors:
        found.append(f"{name}: {errors:,} socket errors.")
    passed = sum(one.requests - one.not_ok for one in samples.floods)
    refused = sum(one.not_ok for one in samples.floods)
    allowed = sum(rate.burst + rate.per_second * one.seconds for one in samples.floods)
    is_within = passed + refused <= allowed
    if is_within and refused:
        found.append(f"{name}: {refused:,} answers were not 2xx, though within the limit.")
    if passed > allowed:
        found.append(f"{name}: {passed:,} passed where the limit allowed {allowed:,.0f}.")
    return found
