"""From starting the command to the first answer, beside the imports that nobody can avoid."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from statistics import median

from bench.errors import BenchError
from bench.machine import pinned
from bench.programs import python
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN, enter
from bench.rivals.sluice import SLUICE
from bench.scenarios.base import Plan
from bench.stage import Stage

IMPORTS = "import aiohttp, redis, pydantic"
_LEAST_ROUNDS = 5
_ALLOWED = 2.0


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Alternate between the bare imports and a start of Sluice; the first of each warms up."""
    result = Result("Start to first answer", ["what", "milliseconds", "lowest to highest"])
    imports: list[float] = []
    starts: list[float] = []
    try:
        for number in range(max(plan.rounds, _LEAST_ROUNDS) + 1):
            pair = _import_seconds(stage), _start_seconds(stage)
            if number == 0:
                continue
            imports.append(pair[0])
            starts.append(pair[1])
            plan.say(
                f"  round {number}: imports {pair[0] * 1000:.0f} ms, start {pair[1] * 1000:.0f} ms"
            )
    except BenchError as error:
        result.broken.append(f"{SLUICE.name}: {error}")
    for name, seconds in ((f'python -c "{IMPORTS}"', imports), ("Sluice, first answer", starts)):
        if seconds:
            ends = f"{min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f}"
            result.rows.append([name, f"{median(seconds) * 1000:.0f}", ends])
    found = ratio(median(starts), median(imports)) if starts else None
    result.goals.append(Goal("start of Sluice / imports", found, _ALLOWED, is_ceiling=True))
    result.remarks.append("The first answer is one that went through to the upstream and back.")
    yield result


def _import_seconds(stage: Stage) -> float:
    begun = time.perf_counter()
    subprocess.run(pinned(stage.cpus.proxy, [python(), "-c", IMPORTS]), check=True)
    return time.perf_counter() - begun


def _start_seconds(stage: Stage) -> float:
    contestant = enter(SLUICE, stage, WITHIN)
    try:
        return contestant.server.start()
    finally:
        contestant.server.stop()
