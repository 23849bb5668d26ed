"""Keeps a library busy, and times it.

One decision at a time is timed a thousand at a time. Where many are under way, each is timed as
the pause between two keys that its loop takes.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Iterator
from inspect import isawaitable
from itertools import cycle, repeat
from typing import TypeVar

from bench.limiter.job import Burst, Order, Sample

T = TypeVar("T")

CHUNK = 1_000


def key_names(count: int) -> list[str]:
    """Addresses of clients; made anew for each measurement, as a request's key is."""
    return [f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in range(count)]


def in_disorder(count: int, seed: int) -> list[str]:
    """The keys in the order in which they are asked for."""
    keys = key_names(count)
    random.Random(seed).shuffle(keys)
    return keys


async def one_at_a_time(burst: Burst, keys: list[str], order: Order) -> Sample:
    """Ask for all keys again and again, until the time is over or the passes are made."""
    chunks = [keys[first : first + CHUNK] for first in range(0, len(keys), CHUNK)]
    decisions = passed = 0
    cpu, begun = time.process_time(), time.perf_counter()
    end = begun + order.seconds if order.seconds else math.inf
    for chunk in _again(chunks, order):
        said = burst(chunk)
        passed += await said if isawaitable(said) else said
        decisions += len(chunk)
        if time.perf_counter() >= end:
            break
    seconds = time.perf_counter() - begun
    return Sample(decisions, passed, seconds, time.process_time() - cpu)


async def many_in_flight(burst: Burst, keys: list[str], order: Order, in_flight: int) -> Sample:
    """The same with several loops at a time, each of which takes the next key."""
    took: list[float] = []
    source = _again(keys, order)
    cpu, begun = time.process_time(), time.perf_counter()
    end = begun + order.seconds if order.seconds else math.inf

    async def work() -> int:
        said = burst(_timed(source, end, took))
        return await said if isawaitable(said) else said

    passed = sum(await asyncio.gather(*(work() for _ in range(in_flight))))
    seconds = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    took.sort()
    count = len(took)
    median_ms, p99_ms = took[count // 2] * 1e3, took[count * 99 // 100] * 1e3
    return Sample(count, passed, seconds, cpu, median_ms, p99_ms)


def _again(items: list[T], order: Order) -> Iterator[T]:
    rounds = cycle([items]) if order.seconds else repeat(items, order.passes)
    return (item for one in rounds for item in one)


def _timed(source: Iterator[str], end: float, took: list[float]) -> Iterator[str]:
    """Keys for one loop; it comes back for the next one when a decision was made."""
    clock = time.perf_counter
    begin = clock()
    for key in source:
        if begin >= end:
            return
        yield key
        now = clock()
        took.append(now - begin)
        begin = now
