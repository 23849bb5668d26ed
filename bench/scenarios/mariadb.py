"""The limiter on MariaDB with default durability, beside one decision in each transaction.

A decision is on disk when it is answered, on both sides. The targets that ThrottleX's design
sets itself stand beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.errors import BenchError
from bench.limiter.adapters.one_by_one import table
from bench.limiter.contestants import OURS, Library, sluice
from bench.limiter.job import Job, Order, Quota
from bench.limiter.mariadb import mariadb
from bench.limiter.match import Record, ends, middle, started
from bench.limiter.process import Process
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.stage import Stage

IN_FLIGHT = 64
KEYS = (1, 1_000, 10_000)
LEAST = 5.0
ROOMY = Quota("roomy", 1_000_000, 1)
"""Nobody is refused, not even where all ask for one key."""
ONE_BY_ONE = Library(
    "one per transaction", "SELECT FOR UPDATE, UPDATE, COMMIT", "one_by_one", "", is_rival=False
)
_TARGETS = ["", "ThrottleX's own targets", "", "10,000", "", "", "", "1 to 3 added", ""]


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Both ways, for one key and for many."""
    result = Result(
        f"Limiter on MariaDB: {IN_FLIGHT} in flight, default durability",
        [
            "keys",
            "way",
            "by",
            "decisions/s",
            "x",
            "lowest to highest",
            "its CPU",
            "median ms",
            "p99 ms",
        ],
    )
    try:
        with mariadb(stage) as server:
            for keys in KEYS:
                server.sql(table(keys))
                records = _measure(server.url, keys, plan, stage, result)
                _fill(result, keys, records)
    except BenchError as error:
        result.broken.append(str(error))
    result.rows.append(_TARGETS)
    result.remarks.append(
        "The same driver and the same server for both, which has the other CPU to itself; one "
        f"per transaction has {IN_FLIGHT} connections. Every request is within its limit."
    )
    yield result


def _measure(url: str, keys: int, plan: Plan, stage: Stage, result: Result) -> dict[str, Record]:
    libraries = (sluice("token_bucket"), ONE_BY_ONE)
    entries = {
        library.name: (library, Job(library.module, library.kind, url, keys, IN_FLIGHT, (ROOMY,)))
        for library in libraries
    }
    records = {name: Record() for name in entries}

    def take(name: str, process: Process, number: int) -> None:
        if number == 1:
            process.obey(Order(ROOMY.name, passes=1))
        order = Order(ROOMY.name, plan.seconds, seed=number)
        sample = records[name].add(order, process.obey(order))
        plan.say(f"  round {number}: {keys:,} keys, {name} {sample.per_second:,.0f}/s")

    with started(entries, stage, result.broken) as processes:
        measurements = {name: partial(take, name, process) for name, process in processes.items()}
        working = in_rounds(plan.rounds, measurements, result.broken)
    return {name: records[name] for name in entries if name in working}


def _fill(result: Result, keys: int, records: dict[str, Record]) -> None:
    speed: dict[str, float] = {}
    for name, record in records.items():
        samples = record.samples[ROOMY.name]
        values = [sample.per_second for sample in samples]
        speed[name] = median(values)
        multiple = ratio(speed[name], speed.get(OURS))
        result.rows.append(
            [
                f"{keys:,}",
                name,
                f"`{_CALLS[name]}`",
                middle(values),
                f"{multiple:.2f}" if multiple else "",
                ends(values),
                f"{median(sample.cpu_share for sample in samples):.0%}",
                middle([sample.median_ms for sample in samples], 2),
                middle([sample.p99_ms for sample in samples], 2),
            ]
        )
    found = ratio(speed.get(OURS), speed.get(ONE_BY_ONE.name))
    title = f"{result.title}, {keys:,} keys: {OURS} / {ONE_BY_ONE.name}"
    result.goals.append(Goal(title, found, LEAST))


_CALLS = {library.name: library.call for library in (sluice(""), ONE_BY_ONE)}
