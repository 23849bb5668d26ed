"""A library is asked for exactly the keys, as often and as many at a time as was ordered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from bench.limiter.drive import CHUNK, in_disorder, many_in_flight, one_at_a_time
from bench.limiter.job import Job, Order, Quota, Sample

KEYS = 2 * CHUNK + 7
EVEN = {key for number, key in enumerate(sorted(in_disorder(KEYS, 0))) if number % 2 == 0}


class Library:
    """Lets every other key through, and remembers who asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.under_way = 0
        self.most_under_way = 0

    def burst(self, keys: Iterable[str]) -> int:
        """At once, as a synchronous library does."""
        passed = 0
        for key in keys:
            self.asked[key] += 1
            passed += key in EVEN
        return passed

    async def slow_burst(self, keys: Iterable[str]) -> int:
        """In two turns of the loop for each key, as one that asks a server."""
        passed = 0
        for key in keys:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            await asyncio.sleep(0)
            self.under_way -= 1
            passed += self.burst([key])
        return passed


def _expect_passes(library: Library, sample: Sample, passes: int) -> None:
    assert len(library.asked) == KEYS
    assert set(library.asked.values()) == {passes}
    assert sample.decisions == passes * KEYS
    assert sample.passed == passes * len(EVEN)
    assert sample.refused_share == pytest.approx(1 - len(EVEN) / KEYS)


@pytest.mark.parametrize("is_async", [False, True])
async def test_passes_one_at_a_time(is_async: bool) -> None:
    """Every key is asked for so many times, none before the one before it was answered."""
    library = Library()
    burst = library.slow_burst if is_async else library.burst
    sample = await one_at_a_time(burst, in_disorder(KEYS, 1), Order("q", passes=3))
    _expect_passes(library, sample, 3)
    assert library.most_under_way == (1 if is_async else 0)


async def test_passes_with_many_in_flight() -> None:
    """The same with as many loops as were asked for, all of which are busy together."""
    library = Library()
    keys = in_disorder(KEYS, 1)
    sample = await many_in_flight(library.slow_burst, keys, Order("q", passes=3), 64)
    _expect_passes(library, sample, 3)
    assert library.most_under_way == 64
    assert 0 < sample.median_ms <= sample.p99_ms


@pytest.mark.parametrize("in_flight", [1, 8])
async def test_seconds(in_flight: int) -> None:
    """An order of seconds ends when they are over, however few keys there are."""
    library = Library()
    order = Order("q", seconds=0.05)
    if in_flight == 1:
        sample = await one_at_a_time(library.burst, ["a"], order)
    else:
        sample = await many_in_flight(library.slow_burst, ["a"], order, in_flight)
    assert sample.seconds >= 0.05
    assert sample.decisions == library.asked["a"] > in_flight


def test_disorder() -> None:
    """All keys are different, and each seed always gives the same order."""
    first = in_disorder(1000, 1)
    assert len(set(first)) == 1000
    assert first == in_disorder(1000, 1)
    assert first != in_disorder(1000, 2)
    assert set(first) == set(in_disorder(1000, 2))


def test_what_is_said_between_processes() -> None:
    """A job, an order and a sample are read as they were written."""
    job = Job("sluice", "token_bucket", "memory://", 10, 1, (Quota("a", 1, 2), Quota("b", 3, 4)))
    order = Order("a", 0.5, 3, 4)
    sample = Sample(10, 9, 2.0, 1.0, 0.25, 0.5)
    assert Job.from_text(job.as_text()) == job
    assert Order.from_text(order.as_text()) == order
    assert Sample.from_text(sample.as_text()) == sample
    assert (sample.per_second, sample.per_cpu_second) == (5.0, 10.0)
