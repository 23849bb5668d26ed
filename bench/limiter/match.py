"""Brings libraries up for a match, and tells how each of them did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

from bench.errors import BenchError
from bench.limiter.contestants import Library
from bench.limiter.job import Job, Order, Quota, Sample
from bench.limiter.process import Process
from bench.stage import Stage

PASSING = Quota("passing", 1_000, 1)
"""So high that every request passes."""

REFUSED = Quota("refused", 10, 3_600)
"""So low that of requests that come as fast as they can nearly all are refused; and so long that
hardly a measurement sees a new window begin."""

MANY_REFUSED = 0.5
"""The share of refusals under `REFUSED` without which a library does not limit at all."""


@dataclass(slots=True)
class Record:
    """What one contestant did, by the name of the quota."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, order: Order, sample: Sample) -> Sample:
        """Note a sample. Raises `BenchError` if it shows that the limit is not kept."""
        if order.quota == PASSING.name and sample.passed < sample.decisions:
            raise BenchError(f"{sample.decisions - sample.passed:,} were refused within the limit")
        if order.quota == REFUSED.name and sample.refused_share < MANY_REFUSED:
            raise BenchError(f"only {sample.refused_share:.0%} were refused over the limit")
        self.samples.setdefault(order.quota, []).append(sample)
        return sample


@contextmanager
def started(
    entries: Mapping[str, tuple[Library, Job]], stage: Stage, broken: list[str]
) -> Iterator[dict[str, Process]]:
    """Start a process for each entry; why one does not start is added to `broken`.

    All stay up during the match, and wait for their turn without work.
    """
    with ExitStack() as stack:
        processes: dict[str, Process] = {}
        for name, (library, job) in entries.items():
            errors = stage.new_directory(re.sub(r"\W+", "-", name)) / "stderr.log"
            try:
                process = stack.enter_context(Process(library, job, stage.cpus.proxy, errors))
            except BenchError as error:
                broken.append(f"{name}: {error}")
            else:
                processes[name] = process
        yield processes


def middle(values: list[float], places: int = 0) -> str:
    """The median for a table."""
    return f"{median(values):,.{places}f}"


def ends(values: list[float]) -> str:
    """The lowest and the highest for a table."""
    return f"{min(values):,.0f} to {max(values):,.0f}"
