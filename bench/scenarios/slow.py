"""What slow clients do to others: slowhttptest with 500 connections, and a client as any other."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import median

from bench import proc
from bench.errors import BenchError
from bench.pace import Latencies, measure
from bench.programs import program
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN, Contestant
from bench.rivals.nginx import NGINX
from bench.rivals.sluice import SLUICE
from bench.scenarios.base import Plan, in_rounds, running
from bench.stage import Stage

RATE = 200
CONNECTIONS = 500
RIVALS = (NGINX, SLUICE)
MODES: Mapping[str, tuple[list[str], str]] = {
    "slow headers": (["-H", "-i", "2", "-x", "24"], "/"),
    "slow bodies": (["-B", "-i", "2", "-x", "10", "-s", "8192"], "/sink"),
    "slow readers": (["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"], "/large"),
}
"""What slowhttptest is told, and the path that it asks for."""
_QUIET = "quiet"
_CONNECTING_SECONDS = 2.0
_ALLOWED = 3.0
_MEMORY_MIB = 100
_MIB = 1 << 20


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Measure each proxy in peace and in each mode; compare the two, and look at its memory."""
    result = Result(
        f"Slow clients: {CONNECTIONS} of them, and {RATE} requests/s of others (microseconds, MiB)",
        ["proxy", "clients", "p50", "p99", "highest", "more memory"],
    )
    found: dict[tuple[str, str], list[tuple[Latencies, float]]] = {}

    def take(contestant: Contestant, mode: str, number: int) -> None:
        name = contestant.rival.name
        if number == 1 and mode == _QUIET:
            measure(contestant.url(), RATE, 1.0)
        session = contestant.server.session
        proc.reset_peaks(session)
        before = proc.peak_resident_bytes(session)
        with _attack(contestant, mode, plan.seconds):
            one = measure(contestant.url(), RATE, plan.seconds)
        grown = (proc.peak_resident_bytes(session) - before) / _MIB
        found.setdefault((name, mode), []).append((one, grown))
        plan.say(f"  round {number}: {name}, {mode}: p99 {one.p99_us:.0f} us, {grown:+.0f} MiB")

    with running(RIVALS, WITHIN, stage, result.broken) as contestants:
        measurements = {
            f"{one.rival.name}, {mode}": partial(take, one, mode)
            for one in contestants
            for mode in (_QUIET, *MODES)
        }
        in_rounds(plan.rounds, measurements, result.broken)
    _fill(result, found)
    result.remarks.append(
        "All settings are as they come, so the slow clients stay for the whole measurement. "
        "Growth is that of the peak, which what a slow reader is owed belongs to."
    )
    yield result


@contextmanager
def _attack(contestant: Contestant, mode: str, seconds: float) -> Iterator[None]:
    """Slow clients, connected before and until after; none in peace.

    Raises:
        BenchError: they ended by themselves.
    """
    if mode == _QUIET:
        yield
        return
    options, path = MODES[mode]
    argv = [program("slowhttptest"), *options, "-c", str(CONNECTIONS), "-r", str(CONNECTIONS)]
    argv += ["-l", str(int(seconds) + 30), "-v", "0", "-u", contestant.url(path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as slow:
        try:
            time.sleep(_CONNECTING_SECONDS)
            yield
            if slow.poll() is not None:
                raise BenchError(f"slowhttptest ended with {slow.returncode}")
        finally:
            slow.terminate()


def _fill(result: Result, found: Mapping[tuple[str, str], list[tuple[Latencies, float]]]) -> None:
    p99: dict[tuple[str, str], float] = {}
    for (name, mode), rounds in found.items():
        latencies = [one for one, _ in rounds]
        p99[name, mode] = median(one.p99_us for one in latencies)
        figures = (
            median(one.p50_us for one in latencies),
            p99[name, mode],
            median(one.max_us for one in latencies),
            median(grown for _, grown in rounds),
        )
        result.rows.append([name, mode, *(f"{figure:.0f}" for figure in figures)])
    for mode in MODES:
        key = (SLUICE.name, mode)
        times = ratio(p99.get(key), p99.get((SLUICE.name, _QUIET)))
        result.goals.append(Goal(f"p99 beside {mode} / quiet", times, _ALLOWED, is_ceiling=True))
        grown = median(more for _, more in found[key]) if key in found else None
        result.goals.append(
            Goal(f"growth by {mode}", grown, _MEMORY_MIB, is_ceiling=True, unit=" MiB")
        )
