"""What scenarios share: the plan of a run, contestants brought up and tried, rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.check import verify
from bench.errors import BenchError
from bench.results import Result
from bench.rivals.base import Contestant, Rate, Rival, enter
from bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often.

    Attributes:
        seconds: length of one measurement.
        rounds: measurements per contestant; the median is told.
        say: where progress goes, a line at a time.
    """

    seconds: float
    rounds: int
    say: Callable[[str], None]


Run = Callable[[Plan, Stage], Iterator[Result]]
"""A scenario: measures, and tells one result after the other."""


@contextmanager
def running(
    rivals: Sequence[Rival], rate: Rate, stage: Stage, broken: list[str]
) -> Iterator[list[Contestant]]:
    """Start every rival that works; why one does not is added to `broken`.

    All stay up during the scenario: idle ones cost nothing measurable, and interleaved rounds
    need no restarts.
    """
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        for rival in rivals:
            try:
                contestant = enter(rival, stage, rate)
                stack.enter_context(contestant.server)
                verify(contestant, stage)
            except BenchError as error:
                broken.append(f"{rival.name}: {error}")
            else:
                contestants.append(contestant)
        yield contestants


def in_rounds(
    rounds: int, measurements: Mapping[str, Callable[[int], None]], broken: list[str]
) -> set[str]:
    """Take every measurement once a round, forwards and backwards in turn: A B, B A, A B.

    One that fails is told in `broken` and not taken again.

    Args:
        rounds: how many.
        measurements: by name; each is given the number of the round, from 1.
        broken: where failures are told.

    Returns:
        The names of those that never failed.
    """
    working = list(measurements)
    for number in range(1, rounds + 1):
        for name in list(working) if number % 2 else working[::-1]:
            try:
                measurements[name](number)
            except BenchError as error:
                broken.append(f"{name}, round {number}: {error}")
                working.remove(name)
    return set(working)


def forget_log(contestant: Contestant) -> None:
    """Empty the access log, which would otherwise grow by hundreds of megabytes."""
    os.truncate(contestant.log, 0)
