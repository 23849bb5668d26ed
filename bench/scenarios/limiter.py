"""The limiter beside other libraries, for the same algorithm: in memory, and on Redis.

In memory a library decides on one request after the other, and is timed by the processor's
clock. On Redis 64 decisions are under way at a time in one event loop, and time is that of the
wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import redis

from bench import proc
from bench.limiter.contestants import FIELDS, OURS, Library
from bench.limiter.job import Job, Order, Sample
from bench.limiter.match import PASSING, REFUSED, Record, ends, middle, started
from bench.limiter.process import Process
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.stage import Stage

KEYS = 1_000
IN_FLIGHT = 64
MEMORY_GOAL = 1.5
REDIS_GOAL = 5.0
_QUOTAS = (PASSING, REFUSED)
_WARM_UP_SECONDS = 0.5
_HEADER = (
    "library",
    "asked by",
    "all pass, decisions/s",
    "x",
    "lowest to highest",
    "most refused, decisions/s",
    "x",
    "lowest to highest",
    "refused",
    "others",
)
_LOAD = (
    f'{KEYS:,} keys in changing order. "all pass": {PASSING.count:,} a second for each; "most '
    f'refused": {REFUSED.count} an hour for each, all spent before. "x": the multiple of '
    'Sluice\'s figure. "others": what other processes took of its CPU at worst; next to nothing '
    "on a quiet machine."
)
_IN_MEMORY = (
    "One decision after the other, in seconds of the processor; each library by the quickest of "
    "its calls, which is the synchronous one where there is one."
)
_ON_REDIS = (
    f"{IN_FLIGHT} decisions in flight in one event loop, that of uvloop for all; redis-py has "
    "hiredis. The columns on the right are of the load that passes. Redis has the other CPU to "
    "itself."
)

Figure = Callable[[Sample], float]


def memory(plan: Plan, stage: Stage) -> Iterator[Result]:
    """One result for each algorithm, with counts in the process."""
    for field in FIELDS:
        result = Result(f"Limiter in memory: {field.algorithm}", list(_HEADER))
        entries = {
            library.name: (library, _job(library, "memory://", 1)) for library in field.in_memory
        }
        records, around = _measure(entries, plan, stage, result)
        _fill(result, field.in_memory, records, around, _per_cpu_second)
        _set_goals(result, records, MEMORY_GOAL, _per_cpu_second)
        result.remarks += [_IN_MEMORY, _LOAD]
        yield result


def on_redis(plan: Plan, stage: Stage) -> Iterator[Result]:
    """One result for each algorithm, with counts in Redis."""
    for field in FIELDS:
        header = [*_HEADER, "its CPU", "Redis's CPU", "p99 ms"]
        result = Result(f"Limiter on Redis: {field.algorithm}", header)
        with redis.Redis(port=stage.redis_port) as client:
            client.flushall()
        # Everybody has a database of his own: two clients of one library would share counts.
        entries = {
            library.name: (
                library,
                _job(library, f"redis://127.0.0.1:{stage.redis_port}/{number}", IN_FLIGHT),
            )
            for number, library in enumerate(field.on_redis)
        }
        records, around = _measure(entries, plan, stage, result)
        _fill(result, field.on_redis, records, around, _per_second)
        for row in result.rows:
            samples = records[row[0]].samples[PASSING.name]
            share = median(sample.cpu_share for sample in samples)
            row += [f"{share:.0%}", f"{median(one.server for one in around[row[0]]):.0%}"]
            row.append(middle([sample.p99_ms for sample in samples], 1))
        _set_goals(result, records, REDIS_GOAL, _per_second)
        result.remarks += [_ON_REDIS, _LOAD]
        yield result


def _job(library: Library, store: str, in_flight: int) -> Job:
    return Job(library.module, library.kind, store, KEYS, in_flight, _QUOTAS)


@dataclass(frozen=True, slots=True)
class _Around:
    """What else was going on while all requests passed; 1.0 is all of a CPU.

    Attributes:
        others: of what the library's CPU did, that which the library did not.
        server: how busy the other CPU was.
    """

    others: float
    server: float


def _measure(
    entries: dict[str, tuple[Library, Job]], plan: Plan, stage: Stage, result: Result
) -> tuple[dict[str, Record], dict[str, list[_Around]]]:
    """All rounds, of those that failed in none."""
    records = {name: Record() for name in entries}
    around: dict[str, list[_Around]] = {name: [] for name in entries}

    def take(name: str, process: Process, number: int) -> None:
        if number == 1:
            process.obey(Order(PASSING.name, seconds=_WARM_UP_SECONDS))
        process.obey(Order(REFUSED.name, passes=REFUSED.count))
        busy = _busy(stage)
        order = Order(PASSING.name, plan.seconds / len(_QUOTAS), seed=number)
        passing = records[name].add(order, process.obey(order))
        own, server = (after - before for before, after in zip(busy, _busy(stage), strict=True))
        others = max(0.0, own - passing.cpu_seconds)
        around[name].append(_Around(others / passing.seconds, server / passing.seconds))
        order = Order(REFUSED.name, plan.seconds / len(_QUOTAS), seed=number)
        refused = records[name].add(order, process.obey(order))
        plan.say(
            f"  round {number}: {name} {passing.per_second:,.0f}/s when all pass, "
            f"{refused.per_second:,.0f}/s when most are refused"
        )

    with started(entries, stage, result.broken) as processes:
        measurements = {name: partial(take, name, process) for name, process in processes.items()}
        working = in_rounds(plan.rounds, measurements, result.broken)
    return {name: record for name, record in records.items() if name in working}, around


def _busy(stage: Stage) -> tuple[float, float]:
    """Seconds that the library's CPU has worked until now, and the other one."""
    return proc.cpu_seconds_of_all(stage.cpus.proxy), proc.cpu_seconds_of_all(stage.cpus.load)


def _per_second(sample: Sample) -> float:
    return sample.per_second


def _per_cpu_second(sample: Sample) -> float:
    return sample.per_cpu_second


def _fill(
    result: Result,
    libraries: Sequence[Library],
    records: dict[str, Record],
    around: dict[str, list[_Around]],
    figure: Figure,
) -> None:
    def order(library: Library) -> float:
        return -median(map(figure, records[library.name].samples[PASSING.name]))

    for library in sorted((one for one in libraries if one.name in records), key=order):
        row = [library.name, f"`{library.call}`"]
        for quota in _QUOTAS:
            values = _values(records, library.name, quota.name, figure)
            multiple = ratio(median(values), _median(records, OURS, quota.name, figure))
            row += [middle(values), f"{multiple:.2f}" if multiple else "", ends(values)]
        refused = [one.refused_share for one in records[library.name].samples[REFUSED.name]]
        others = max(one.others for one in around[library.name])
        result.rows.append([*row, f"{median(refused):.0%}", f"{others:.0%}"])


def _set_goals(result: Result, records: dict[str, Record], bound: float, figure: Figure) -> None:
    for quota, load in ((PASSING, "all pass"), (REFUSED, "most refused")):
        theirs = {
            name: _median(records, name, quota.name, figure) or 0.0
            for name in records
            if name != OURS
        }
        best = max(theirs, key=lambda name: theirs[name], default="the fastest rival")
        found = ratio(_median(records, OURS, quota.name, figure), theirs.get(best))
        title = f"{result.title}, {load}: {OURS} / {best}"
        result.goals.append(Goal(title, found, bound))


def _values(records: dict[str, Record], name: str, quota: str, figure: Figure) -> list[float]:
    return [figure(sample) for sample in records[name].samples[quota]] if name in records else []


def _median(records: dict[str, Record], name: str, quota: str, figure: Figure) -> float | None:
    values = _values(records, name, quota, figure)
    return median(values) if values else None
