"""What the memory store costs: bytes for each key, and decisions each second.

Run as `python -m bench.micro.memory`. Decisions are timed for 1,000 to 1,000,000 keys, asked for at
random, and for limits of 10 to 10,000,000. Neither may make a decision dearer, but for the cache of
the processor, which a million keys do not fit into. Seconds are those of the processor, and every
request is admitted, so that figures can be set beside each other. Bytes are those that the process
has grown by, keys included; each figure has a process of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import resource
import time
from pathlib import Path
from typing import Final

from gateway.base.clock import ManualClock
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore

KEYS: Final = (1_000, 10_000, 100_000, 1_000_000)
COUNTS: Final = (10, 1_000, 100_000, 10_000_000)
CONSTANT: Final = ("token_bucket", "sliding_window_counter", "fixed_window")
DECISIONS: Final = 50_000
ROUNDS: Final = 5
DAY_US: Final = 86_400_000_000
START_US: Final = 10**15


def address(number: int) -> str:
    """A client's address."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def limit_of(algorithm: str, count: int) -> Limit:
    """So many a day: nothing expires while something is measured."""
    return Limit(count, DAY_US, count, algorithm, scope="bench")


def filled(algorithm: str, keys: int, count: int = 10) -> tuple[MemoryStore, ManualClock]:
    """A store in which each key was asked for once."""
    clock = ManualClock(START_US)
    store = MemoryStore(2 * keys, clock, clock)
    limits = (limit_of(algorithm, count),)
    for number in range(keys):
        clock.now_us += 1
        store.decide_now(Ask(limits, (address(number),), 1, 0))
    return store, clock


def bytes_per_key(algorithm: str, keys: int) -> float:
    """How much the process grows by, after each key was asked for about three times."""
    gc.collect()
    before = resident_bytes()
    store, clock = filled(algorithm, keys)
    limits = (limit_of(algorithm, 10),)
    dice = random.Random(1)
    for _ in range(2 * keys):
        clock.now_us += 1
        store.decide_now(Ask(limits, (address(dice.randrange(keys)),), 1, 0))
    return (resident_bytes() - before) / len(store)


def resident_bytes() -> int:
    """Return the memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def decisions_per_second(algorithm: str, keys: int, count: int) -> float:
    """The best of some rounds, with asks that are ready made."""
    store, clock = filled(algorithm, keys, count)
    limits = (limit_of(algorithm, count),)
    dice = random.Random(1)
    asks = [Ask(limits, (address(dice.randrange(keys)),), 1, 0) for _ in range(DECISIONS)]
    decide = store.decide_now
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        for ask in asks:
            clock.now_us += DAY_US
            decide(ask)
        best = min(best, time.process_time() - begin)
    return DECISIONS / best


def main() -> None:
    """Print both tables."""
    spawn = multiprocessing.get_context("spawn")
    print("bytes for each of 1,000,000 keys")
    for algorithm in CONSTANT:
        with spawn.Pool(1) as pool:
            print(f"  {algorithm:<30}{pool.apply(bytes_per_key, (algorithm, 10**6)):>12.0f}")
    for algorithm in CONSTANT:
        print(f"{algorithm}, decisions each second")
        cases = [*((keys, 10) for keys in KEYS), *((1_000, count) for count in COUNTS[1:])]
        for keys, count in cases:
            with spawn.Pool(1) as pool:
                rate = pool.apply(decisions_per_second, (algorithm, keys, count))
            print(f"  {keys:>9,} keys, {count:>10,} a day {rate:>12,.0f}")


if __name__ == "__main__":
    main()
