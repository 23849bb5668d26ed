"""1 GiB down and 1 GiB up through a proxy: how fast, and how much its memory grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from bench import proc
from bench.bulk import download, upload
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN, Contestant
from bench.rivals.nginx import NGINX
from bench.rivals.sluice import SLUICE
from bench.scenarios.base import Plan, in_rounds, running
from bench.stage import LARGE_BYTES, Stage

RIVALS = (NGINX, SLUICE)
_MIB = 1 << 20
_ALLOWED_GROWTH_MIB = 20
_LEAST_SPEED = 0.5


@dataclass(slots=True)
class _Samples:
    mib_per_second: list[float] = field(default_factory=list)
    growth_mib: list[float] = field(default_factory=list)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Move the file both ways through nginx and Sluice, in interleaved rounds."""
    result = Result(
        "1 GiB through the proxy",
        ["proxy", "way", "MiB/s", "lowest to highest", "memory grew by at most"],
    )
    samples: dict[tuple[str, str], _Samples] = {}
    at_rest: dict[str, int] = {}

    def take(contestant: Contestant, way: str, number: int) -> None:
        name = contestant.rival.name
        of_one = samples.setdefault((name, way), _Samples())
        _move(contestant, way, stage, at_rest[name], of_one)
        plan.say(f"  round {number}: {name} {way} {of_one.mib_per_second[-1]:,.0f} MiB/s")

    with running(RIVALS, WITHIN, stage, result.broken) as contestants:
        # The caches of the system are warm before anything is measured, the proxies are not.
        download(f"http://127.0.0.1:{stage.upstream_port}/large")
        at_rest |= {c.rival.name: proc.resident_bytes(c.server.session) for c in contestants}
        measurements = {
            f"{contestant.rival.name} {way}": partial(take, contestant, way)
            for way in ("down", "up")
            for contestant in contestants
        }
        working = in_rounds(plan.rounds, measurements, result.broken)
    samples = {key: of_one for key, of_one in samples.items() if " ".join(key) in working}
    for (name, way), of_one in samples.items():
        result.rows.append(
            [
                name,
                way,
                f"{median(of_one.mib_per_second):,.0f}",
                f"{min(of_one.mib_per_second):,.0f} to {max(of_one.mib_per_second):,.0f}",
                f"{max(of_one.growth_mib):.1f} MiB",
            ]
        )
    _set_goals(result, samples)
    result.remarks.append(
        "One transfer at a time. Growth is the peak resident size during any of the transfers, "
        "less the size before the first of them."
    )
    yield result


def _move(contestant: Contestant, way: str, stage: Stage, at_rest: int, samples: _Samples) -> None:
    session = contestant.server.session
    proc.reset_peaks(session)
    if way == "down":
        seconds = download(contestant.url("/large"))
    else:
        seconds = upload(contestant.url("/sink"), stage.large_file)
    samples.mib_per_second.append(LARGE_BYTES / _MIB / seconds)
    samples.growth_mib.append((proc.peak_resident_bytes(session) - at_rest) / _MIB)


def _set_goals(result: Result, samples: dict[tuple[str, str], _Samples]) -> None:
    for way in ("down", "up"):
        ours = samples.get((SLUICE.name, way))
        theirs = samples.get((NGINX.name, way))
        speed = ratio(
            median(ours.mib_per_second) if ours else None,
            median(theirs.mib_per_second) if theirs else None,
        )
        result.goals.append(Goal(f"1 GiB {way}, Sluice / nginx", speed, _LEAST_SPEED))
        growth = max(ours.growth_mib) if ours else None
        result.goals.append(
            Goal(
                f"1 GiB {way}, growth of Sluice",
                growth,
                _ALLOWED_GROWTH_MIB,
                is_ceiling=True,
                unit=" MiB",
            )
        )
