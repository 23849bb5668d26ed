"""One gateway's decider in a process of its own: asks at random, notes what passed and when.

    python -m tests.limiter.local.worker URL TERMS SEED SECONDS FILE

Each request that was let through adds two whole numbers of eight bytes to the file: when it was
asked for and when that was known, in microseconds of the machine's monotonic clock. The file is
written without a buffer, so a process that is killed has noted all it let through.
"""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from pathlib import Path
from typing import Final

from gateway.base.clock import monotonic_us
from gateway.limiter.decider import Decider, Outcome
from gateway.limits.consistency_mode import Eventual, Leased, Terms
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask
from gateway.stores.redis.store import RedisStore
from tests.limiter.local.bench import FOREVER_US, rule

US: Final = 1_000_000
RECORD: Final = struct.Struct("qq")
BUCKET: Final = Limit(200, US, 100, scope="bucket/all")
LOG: Final = Limit(60, US // 2, 60, "sliding_window_log", scope="log/all")
LIMITS: Final = (BUCKET, LOG)
TERMS: Final[dict[str, Terms]] = {
    "leased": Leased(12, 0, 200_000),
    "eventual": Eventual(50_000),
}


def read(path: Path) -> list[tuple[int, int]]:
    """What a worker has noted; a record that was not wholly written is none."""
    data = path.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    return list(RECORD.iter_unpack(data[:whole]))


async def _work(url: str, terms: Terms, seed: int, seconds: float, files: list[Path]) -> None:
    dice = random.Random(seed)
    store = RedisStore(url, domain="consistency", deadline_us=500_000)
    decider = Decider(
        store, deadline_us=500_000, share=1, max_waiting=1, metrics=StoreMetrics(), terms=[terms]
    )
    await decider.start()
    while not store.is_ready:  # noqa: ASYNC110 - the server is another process
        await asyncio.sleep(0.005)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    end_us = monotonic_us() + round(seconds * US)
    with files[0].open("wb", 0) as first, files[1].open("wb", 0) as second:

        async def ask(number: int) -> None:
            the_rule = rule(LIMITS[number], terms)
            asked_us = monotonic_us()
            outcome = decider.decide(Ask((the_rule.limit,), ("all",), 1, FOREVER_US), (the_rule,))
            if not isinstance(outcome, Outcome):
                outcome = await outcome
            if outcome.verdict.allowed:
                assert not outcome.alone
                (first, second)[number].write(RECORD.pack(asked_us, monotonic_us()))

        while monotonic_us() < end_us:
            number = dice.randrange(2)
            await asyncio.gather(*(ask(number) for _ in range(dice.choice((1, 1, 2, 8, 30)))))
            await asyncio.sleep(dice.choice((0, 0, 0.001, 0.005, 0.02)))
    await decider.aclose()


if __name__ == "__main__":
    _url, _terms, _seed, _seconds, _file = sys.argv[1:]
    _files = [Path(f"{_file}.{number}") for number in range(len(LIMITS))]
    asyncio.run(_work(_url, TERMS[_terms], int(_seed), float(_seconds), _files))
