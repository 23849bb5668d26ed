"""What a decision costs with more keys, and with a higher limit.

With more keys: every key was asked for before, and is asked for again in changing order, so that
all of them are in use. With a higher limit: so many keys that each of them stays below the lowest
limit, and the same asks at each limit. Nothing expires and nobody is refused meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import redis

from bench.errors import BenchError
from bench.limiter.contestants import sluice
from bench.limiter.job import Job, Order, Quota, Sample
from bench.limiter.mariadb import mariadb
from bench.limiter.match import started
from bench.limiter.process import Process
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.stage import Stage

KEYS = (1_000, 10_000, 100_000, 1_000_000)
KEYS_BOUND = 1.6
LIMITS = (10, 1_000, 100_000, 10_000_000)
LIMITS_BOUND = 1.3
LOG_LIMITS = (10, 100, 1_000, 10_000)
CONSTANT = ("token_bucket", "fixed_window", "sliding_window_counter")
LOG = "sliding_window_log"
IN_FLIGHT = 64
_YEAR_S = 365 * 86_400
"""So long that no token bucket is full again before it is asked the next time."""
_ROOMY = Quota("roomy", 1_000_000, _YEAR_S)
_POOL = "1G"
"""What MariaDB has in memory: a million rows are not in the 128 MiB that are its default."""
_PASSES = LIMITS[0] - 1
"""How often a key is asked for at each limit, after the first time."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where counts are kept.

    Attributes:
        name: in the tables.
        url: of the database with a number, from 0.
        in_flight: decisions under way at a time.
        asks: how many of them are enough for one figure, at each limit.
    """

    name: str
    url: Callable[[int], str]
    in_flight: int
    asks: int

    def cost_us(self, sample: Sample) -> float:
        """Microseconds of the processor in memory, and of the clock on the wall elsewhere."""
        spent = sample.cpu_seconds if self.in_flight == 1 else sample.seconds
        return spent / sample.decisions * 1e6


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """First more keys, then higher limits."""
    memory = Kept("memory", lambda _: "memory://", 1, 200_000)
    port = stage.redis_port
    on_redis = Kept("Redis", lambda number: f"redis://127.0.0.1:{port}/{number}", IN_FLIGHT, 50_000)
    yield _more_keys(memory, on_redis, plan, stage)
    yield _higher_limits((memory, on_redis), plan, stage)


def _more_keys(memory: Kept, on_redis: Kept, plan: Plan, stage: Stage) -> Result:
    result = Result("Cost of a decision with more keys, in microseconds", _header("keys", KEYS))
    for kept in (memory, on_redis):
        for algorithm in CONSTANT:
            _forget(stage)
            _compare_keys(kept, algorithm, plan, stage, result)
    _forget(stage)
    try:
        with mariadb(stage, f"--innodb-buffer-pool-size={_POOL}") as server:
            on_mariadb = Kept("MariaDB", lambda _: server.url, IN_FLIGHT, 0)
            _compare_keys(on_mariadb, "token_bucket", plan, stage, result)
    except BenchError as error:
        result.broken.append(str(error))
    result.remarks.append(
        "In memory, time is that of the processor. A decision reads and writes what is kept of its "
        "key, some hundred bytes in several places; with a million keys these have left the caches "
        f"of the processor. Redis and MariaDB have {IN_FLIGHT} decisions in flight, and time is "
        f"that of the wall; MariaDB has a buffer pool of {_POOL}iB, which holds all rows."
    )
    return result


def _compare_keys(kept: Kept, algorithm: str, plan: Plan, stage: Stage, result: Result) -> None:
    ours = sluice(algorithm)
    entries = {
        f"{kept.name}, {algorithm}, {keys:,} keys": (
            ours,
            Job(ours.module, ours.kind, kept.url(number), keys, kept.in_flight, (_ROOMY,)),
        )
        for number, keys in enumerate(KEYS)
    }
    costs: dict[str, list[float]] = {name: [] for name in entries}

    def fill(process: Process, _: int) -> None:
        process.obey(Order(_ROOMY.name, passes=1))

    def take(name: str, process: Process, number: int) -> None:
        sample = _passing(process, Order(_ROOMY.name, plan.seconds / 2, seed=number))
        costs[name].append(kept.cost_us(sample))
        plan.say(f"  round {number}: {name} {costs[name][-1]:.2f} us")

    with started(entries, stage, result.broken) as processes:
        fills = {name: partial(fill, process) for name, process in processes.items()}
        filled = in_rounds(1, fills, result.broken)
        takes = {name: partial(take, name, processes[name]) for name in entries if name in filled}
        working = in_rounds(plan.rounds, takes, result.broken)
    _tell(result, kept, algorithm, [costs[n] if n in working else [] for n in entries], KEYS_BOUND)


def _higher_limits(stores: Sequence[Kept], plan: Plan, stage: Stage) -> Result:
    title = "Cost of a decision with a higher limit, in microseconds"
    result = Result(title, _header("limit", LIMITS))
    for kept in stores:
        for algorithm in CONSTANT:
            keys = kept.asks // _PASSES
            jobs = [
                _Asks(Quota(f"{limit}-a-year", limit, _YEAR_S), keys, 1, _PASSES)
                for limit in LIMITS
            ]
            costs = _compare_limits(kept, algorithm, jobs, plan, stage, result)
            _tell(result, kept, algorithm, costs, LIMITS_BOUND)
    for kept in stores:
        jobs = [
            _Asks(Quota(f"{n}-a-year", n, _YEAR_S), kept.asks // n, n // 2, n // 2)
            for n in LOG_LIMITS
        ]
        costs = _compare_limits(kept, LOG, jobs, plan, stage, result)
        _tell(result, kept, f"{LOG}, from {LOG_LIMITS[0]} to {LOG_LIMITS[-1]:,}", costs, None)
    result.remarks.append(
        f"The log keeps each request of the window, so its cost may grow, and has no goal; its "
        f"columns are {', '.join(f'{limit:,}' for limit in LOG_LIMITS)}, with a log that is half "
        "full before. Time as above."
    )
    return result


@dataclass(frozen=True, slots=True)
class _Asks:
    """Under one limit: how many keys, and how often each is asked for before and measured."""

    quota: Quota
    keys: int
    before: int
    passes: int


def _compare_limits(
    kept: Kept, algorithm: str, jobs: Sequence[_Asks], plan: Plan, stage: Stage, result: Result
) -> list[list[float]]:
    """The costs under each limit; every measurement is of a process and keys of its own."""
    ours = sluice(algorithm)
    costs: dict[str, list[float]] = {job.quota.name: [] for job in jobs}

    def take(asks: _Asks, number: int) -> None:
        _forget(stage)
        job = Job(ours.module, ours.kind, kept.url(0), asks.keys, kept.in_flight, (asks.quota,))
        name = asks.quota.name
        errors = stage.new_directory("cost") / "stderr.log"
        with Process(ours, job, stage.cpus.proxy, errors) as process:
            process.obey(Order(name, passes=asks.before))
            sample = _passing(process, Order(name, passes=asks.passes, seed=number))
        costs[name].append(kept.cost_us(sample))
        plan.say(f"  round {number}: {kept.name}, {algorithm}, {name} {costs[name][-1]:.2f} us")

    working = in_rounds(
        plan.rounds, {asks.quota.name: partial(take, asks) for asks in jobs}, result.broken
    )
    return [found if name in working else [] for name, found in costs.items()]


def _passing(process: Process, order: Order) -> Sample:
    sample = process.obey(order)
    if sample.passed < sample.decisions:
        raise BenchError(f"{sample.decisions - sample.passed:,} were refused within the limit")
    return sample


def _header(what: str, values: Sequence[int]) -> list[str]:
    return ["counts in", "algorithm", *(f"{what}: {value:,}" for value in values), "growth"]


def _tell(
    result: Result, kept: Kept, algorithm: str, costs: list[list[float]], bound: float | None
) -> None:
    """One row, and the goal if there is a bound: the last figure is so many times the first."""
    medians = [median(found) if found else None for found in costs]
    growth = ratio(medians[-1], medians[0])
    result.rows.append(
        [
            kept.name,
            algorithm,
            *("" if found is None else f"{found:.2f}" for found in medians),
            "" if growth is None else f"{growth:.2f}",
        ]
    )
    if bound is not None:
        title = f"{result.title.partition(', in')[0]}: {kept.name}, {algorithm}"
        result.goals.append(Goal(title, growth, bound, is_ceiling=True))


def _forget(stage: Stage) -> None:
    with redis.Redis(port=stage.redis_port) as client:
        client.flushall()
