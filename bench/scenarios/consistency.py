"""What a gateway costs that shares its limits loosely, beside one that shares nothing.

The same proxy, load and limit with counts in memory, in Redis for each request, leased from
Redis, and told to Redis now and then: with one key far below its limit, and with many.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.load import flood
from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.sluice import EVENTUAL, LEASED, SLUICE, rivals
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage

LEAST = 0.9
CLIENTS = (1, 100, 1_000)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """One client, then more; leased and eventual are compared with memory."""
    for clients in CLIENTS:
        whom = "one client" if clients == 1 else f"{clients:,} clients"
        result, medians = measure(
            f"Consistency: {whom}, every request within the limit",
            rivals("ip" if clients == 1 else "header:X-Client"),
            WITHIN,
            lambda f: f.ok_per_second,
            plan,
            stage,
            load=partial(flood, clients=clients),
        )
        for rival in (LEASED, EVENTUAL):
            found = ratio(medians.get(rival.name), medians.get(SLUICE.name))
            result.goals.append(Goal(f"{whom}: {rival.name} / {SLUICE.name}", found, LEAST))
        yield result
