"""Decisions per second on MariaDB: batches beside one decision per transaction.

Run as `python -m bench.limiter.mariadb [SECONDS]`. Both sides use the same driver and the same
server, with default durability: a decision is on disk when it is answered. One decision per
transaction is the way of ThrottleX's design (lock the row, work out, update, commit), with as
many connections as there are decisions in flight. ThrottleX's own targets stand beside them.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import uvloop
from asyncmy.connection import Connection, connect

from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.mysql import MySQLStore
from tests.mariadb import DATABASE, PASSWORD, USER, MariaDB
from tests.servers import until

IN_FLIGHT: Final = 64
KEYS: Final = (1, 1_000, 10_000)
ROUNDS: Final = 3
MIN_RATIO: Final = 5.0
THROTTLEX_PER_S: Final = 10_000
THROTTLEX_MS: Final = 3
LIMIT: Final = Limit(1_000_000, 1_000_000, 1_000_000, scope="bench/ip")

Decide = Callable[[str], Awaitable[object]]


class Figure(NamedTuple):
    """What was measured: decisions per second, and how long one took in milliseconds."""

    per_s: float
    median_ms: float
    p99_ms: float

    def __str__(self) -> str:
        return f"{self.per_s:>9,.0f}/s {self.median_ms:>8.2f} {self.p99_ms:>8.2f}"


async def measure(deciders: list[Decide], keys: int, seconds: float) -> Figure:
    """Keep every one of these busy with one decision after the other."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def work(decide: Decide) -> None:
        while (begin := time.perf_counter()) < end:
            await decide(f"203.0.113.{random.randrange(keys)}")
            took.append(time.perf_counter() - begin)

    await asyncio.gather(*map(work, deciders))
    took.sort()
    count = len(took)
    return Figure(count / seconds, took[count // 2] * 1e3, took[count * 99 // 100] * 1e3)


async def one_by_one(connection: Connection, key: str) -> None:
    """One decision of a token bucket as ThrottleX makes it."""
    cursor = connection.cursor()
    await cursor.execute(
        f"SELECT tokens, last_refill FROM one_by_one WHERE key_id='{key}' FOR UPDATE"
    )
    rows = await cursor.fetchall()
    tokens, _ = rows[0]
    now_ms = time.time_ns() // 1_000_000
    await cursor.execute(
        f"UPDATE one_by_one SET tokens={tokens - 1}, last_refill={now_ms} WHERE key_id='{key}'"
    )
    await connection.commit()


async def compare(server: MariaDB, keys: int, seconds: float) -> tuple[Figure, Figure]:
    """Batches and one by one, in turn; the best round of each."""
    store = MySQLStore(server.url, domain="bench", deadline_us=10_000_000)
    await store.start()
    await until(lambda: store.is_ready)
    port = urlsplit(server.url).port or 0
    connections = [
        await connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, database=DATABASE)
        for _ in range(IN_FLIGHT)
    ]
    limits = (LIMIT,)
    batched: list[Decide] = [lambda key: store.decide([Ask(limits, (key,), 1, 0)])] * IN_FLIGHT
    single: list[Decide] = [lambda key, c=c: one_by_one(c, key) for c in connections]  # type: ignore[misc]
    for first in range(0, keys, 100):
        # Both sides know all keys before they are measured.
        await store.decide(
            [Ask(limits, (f"203.0.113.{n}",), 1, 0) for n in range(first, min(first + 100, keys))]
        )
    best = [Figure(0, 0, 0)] * 2
    for _ in range(ROUNDS):
        for side, deciders in enumerate((batched, single)):
            best[side] = max(best[side], await measure(deciders, keys, seconds))
    for connection in connections:
        await connection.ensure_closed()
    await store.aclose()
    return best[0], best[1]


def main() -> None:
    """Measure and print; fails if the ratio is missed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        server = MariaDB(Path(folder))
        server.start()
        try:
            server.sql(
                "CREATE TABLE one_by_one (id BIGINT AUTO_INCREMENT PRIMARY KEY,"
                " key_id VARCHAR(255) NOT NULL, tokens BIGINT NOT NULL,"
                " last_refill BIGINT NOT NULL, UNIQUE (key_id), INDEX (last_refill));"
                "INSERT INTO one_by_one (key_id, tokens, last_refill)"
                f" SELECT CONCAT('203.0.113.', seq), 1000000000, 0 FROM seq_0_to_{max(KEYS)}"
            )
            print(f"{IN_FLIGHT} in flight, default durability   decisions  median      p99 ms")
            for keys in KEYS:
                batched, single = uvloop.run(compare(server, keys, seconds))
                ratios.append(batched.per_s / single.per_s)
                print(f"{keys:>7,} keys  batches              {batched}   {ratios[-1]:.1f} x")
                print(f"{'':13}one per transaction  {single}")
        finally:
            server.stop()
    print(f"ThrottleX's own targets: {THROTTLEX_PER_S:,}/s, at most {THROTTLEX_MS} ms added")
    if min(ratios) < MIN_RATIO:
        sys.exit(f"a ratio is below {MIN_RATIO}")


if __name__ == "__main__":
    main()
