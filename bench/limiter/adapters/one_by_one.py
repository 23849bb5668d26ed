"""One decision in one transaction on MariaDB, the way of ThrottleX's design.

Lock the row, work out, update, commit: a token bucket, on as many connections as there are
decisions in flight, by the driver that Sluice has. Rows are there before they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from asyncmy.connection import Connection, connect

from bench.limiter.job import Burst, Job, Quota


def table(keys: int) -> str:
    """SQL that makes the table, and a full bucket for each key of `bench.limiter.drive`."""
    return (
        "CREATE OR REPLACE TABLE one_by_one (id BIGINT AUTO_INCREMENT PRIMARY KEY,"
        " key_id VARCHAR(255) NOT NULL, tokens BIGINT NOT NULL,"
        " last_refill BIGINT NOT NULL, UNIQUE (key_id), INDEX (last_refill));"
        "INSERT INTO one_by_one (key_id, tokens, last_refill) SELECT CONCAT('10.', seq >> 16 & 255,"
        " '.', seq >> 8 & 255, '.', seq & 255), 1000000000, 0"
        f" FROM seq_0_to_{keys - 1}"
    )


@asynccontextmanager
async def opened(job: Job, _: Quota) -> AsyncIterator[Burst]:
    """Each loop of the burst has a connection to itself."""
    url = urlsplit(job.store)
    connections = [
        await connect(
            host=url.hostname,
            port=url.port,
            user=url.username,
            password=unquote(url.password or ""),
            database=url.path.strip("/"),
        )
        for _ in range(job.in_flight)
    ]

    async def burst(keys: Iterable[str]) -> int:
        connection = connections.pop()
        passed = 0
        for key in keys:
            if await _decide(connection, key):
                passed += 1
        connections.append(connection)
        return passed

    yield burst
    for connection in connections:
        await connection.ensure_closed()


async def _decide(connection: Connection, key: str) -> bool:
    cursor = connection.cursor()
    await cursor.execute(
        f"SELECT tokens, last_refill FROM one_by_one WHERE key_id='{key}' FOR UPDATE"
    )
    ((tokens, _),) = await cursor.fetchall()
    now_ms = time.time_ns() // 1_000_000
    if tokens > 0:
        await cursor.execute(
            f"UPDATE one_by_one SET tokens={tokens - 1}, last_refill={now_ms} WHERE key_id='{key}'"
        )
    await connection.commit()
    return bool(tokens > 0)
