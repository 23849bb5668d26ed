"""The MySQL store in a database that ThrottleX's service made, and beside that service.

The service is played by its own statements: those of its design, in its order, by its arithmetic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.mysql.store import MySQLStore
from tests.mariadb import MariaDB
from tests.servers import until
from tests.stores.contract import DAY_US, decide

TABLES = """
CREATE TABLE throttlex_usage (
  id          BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id      VARCHAR(255) NOT NULL,
  tokens      BIGINT       NOT NULL,
  last_refill BIGINT       NOT NULL,
  UNIQUE INDEX idx_usage_key_id    (key_id),
         INDEX idx_usage_last_refill (last_refill)
) ENGINE=InnoDB;
CREATE TABLE throttlex_sw_log (
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id       VARCHAR(255) NOT NULL,
  request_time BIGINT       NOT NULL,
  INDEX idx_sw_key_time (key_id, request_time)
) ENGINE=InnoDB;
CREATE TABLE throttlex_policy (
  id             BIGINT AUTO_INCREMENT PRIMARY KEY,
  policy_key     VARCHAR(255) NOT NULL,
  type           VARCHAR(50)  NOT NULL,
  capacity       BIGINT       NOT NULL,
  refill_rate    BIGINT       NOT NULL,
  window_seconds BIGINT       NOT NULL,
  UNIQUE INDEX idx_policy_key (policy_key)
) ENGINE=InnoDB;
"""
ADDRESS = "203.0.113.7"
# 100 at once and one more every 100 s: nothing refills while a test runs.
BUCKET = Limit(864, DAY_US, 100, scope="api/ip")
LOG = Limit(10, DAY_US, 10, "sliding_window_log", scope="api/ip")


class ThrottleX:
    """What the service does to its tables."""

    def __init__(self, mariadb: MariaDB) -> None:
        self._server = mariadb

    def bucket(self, key: str, capacity: int = 100) -> bool:
        """Let one request through if there is a token for it; the rate is 0 here."""
        now_ms = int(time.time() * 1000)
        rows = self._server.sql(
            f"INSERT IGNORE INTO throttlex_usage (key_id, tokens, last_refill)"
            f" VALUES ('{key}', {capacity}, {now_ms});"
            f"SELECT tokens FROM throttlex_usage WHERE key_id='{key}'"
        )
        tokens = int(rows[0][0])
        if tokens < 1:
            return False
        self._server.sql(f"UPDATE throttlex_usage SET tokens={tokens - 1} WHERE key_id='{key}'")
        return True

    def window(self, key: str, capacity: int) -> bool:
        """Let one request through if the log of the last day has room for it."""
        now_ms = int(time.time() * 1000)
        start_ms = now_ms - DAY_US // 1000
        rows = self._server.sql(
            f"DELETE FROM throttlex_sw_log WHERE key_id='{key}' AND request_time<{start_ms};"
            "SELECT COUNT(*) FROM throttlex_sw_log"
            f" WHERE key_id='{key}' AND request_time>={start_ms}"
        )
        if int(rows[0][0]) >= capacity:
            return False
        self._server.sql(
            f"INSERT INTO throttlex_sw_log (key_id, request_time) VALUES ('{key}', {now_ms})"
        )
        return True

    def metrics(self, key: str) -> int:
        """The tokens that its admin API shows."""
        ((tokens,),) = self._server.sql(f"SELECT tokens FROM throttlex_usage WHERE key_id='{key}'")
        return int(tokens)

    def reset(self, key: str, capacity: int) -> None:
        """What its admin API does on request."""
        now_ms = int(time.time() * 1000)
        self._server.sql(
            f"UPDATE throttlex_usage SET tokens={capacity}, last_refill={now_ms}"
            f" WHERE key_id='{key}'"
        )


@pytest.fixture
def throttlex(mariadb: MariaDB) -> ThrottleX:
    """The service, in a database that it has just made."""
    mariadb.sql("DROP DATABASE sluice; CREATE DATABASE sluice; USE sluice;" + TABLES)
    return ThrottleX(mariadb)


@pytest.fixture
async def store(mariadb: MariaDB, throttlex: ThrottleX) -> AsyncIterator[MySQLStore]:
    """A store that shares the keys of one scope with the service."""
    store = MySQLStore(f"{mariadb.url}?throttlex=api/ip", domain="x", deadline_us=5_000_000)
    await store.start()
    await until(lambda: store.is_ready)
    yield store
    await store.aclose()


def ask(limit: Limit, key: str = ADDRESS, cost: int = 1) -> Ask:
    """A question about one key."""
    return Ask((limit,), (key,), cost, 0)


async def test_a_bucket_in_turns(store: MySQLStore, throttlex: ThrottleX) -> None:
    """Both take from one bucket: together they let as many through as either would alone."""
    taken = 0
    for _ in range(15):
        taken += await asyncio.to_thread(throttlex.bucket, ADDRESS)
        verdicts = await decide(store, *[ask(BUCKET)] * 6)
        taken += sum(verdict.allowed for verdict in verdicts)
    assert taken == 100
    assert throttlex.metrics(ADDRESS) == 0


async def test_a_bucket_that_the_service_left(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """Its tokens are ours, with what has been refilled since; and ours are its."""
    refilled_ms = int(time.time() * 1000) - 250_000
    mariadb.sql(f"INSERT INTO throttlex_usage VALUES (NULL,'{ADDRESS}',40,{refilled_ms},NULL,NULL)")
    (verdict,) = await decide(store, ask(BUCKET, cost=10))
    assert verdict.decisions[0].remaining == 32
    ((tokens, refill),) = mariadb.sql("SELECT tokens, last_refill FROM throttlex_usage")
    assert (int(tokens), int(refill)) == (32, refilled_ms + 200_000)


async def test_a_log_in_turns(store: MySQLStore, throttlex: ThrottleX) -> None:
    """Each sees the other's requests, one row for each."""
    for _ in range(3):
        assert await asyncio.to_thread(throttlex.window, ADDRESS, 10)
        assert all(verdict.allowed for verdict in await decide(store, *[ask(LOG)] * 2))
    assert await asyncio.to_thread(throttlex.window, ADDRESS, 10)
    assert not (await decide(store, ask(LOG)))[0].allowed
    assert not await asyncio.to_thread(throttlex.window, ADDRESS, 10)


async def test_rows_of_the_log_that_left_the_window_are_removed(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """Whichever program wrote them; those that still count stay as they are."""
    old_ms = int(time.time() * 1000) - DAY_US // 1000 - 5_000
    rows = ",".join(f"(NULL,'{ADDRESS}',{old_ms + n * 1000},NULL)" for n in range(10))
    mariadb.sql(f"INSERT INTO throttlex_sw_log VALUES {rows}")
    (verdict,) = await decide(store, ask(LOG))
    assert 4 <= verdict.decisions[0].remaining <= 5
    left = mariadb.sql("SELECT COUNT(*), COUNT(sluice_us) FROM throttlex_sw_log")
    assert left == [(str(10 - verdict.decisions[0].remaining), "1")]


async def test_its_reset_reaches_us(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """Its admin API frees a key that we refuse: of a bucket, and of what it knows nothing of."""
    window = replace(LOG, algorithm="fixed_window", scope="other")
    await decide(store, ask(BUCKET, cost=100), ask(window, cost=10))
    for limit in (BUCKET, window):
        assert not (await decide(store, ask(limit)))[0].allowed
    for (key,) in mariadb.sql("SELECT key_id FROM throttlex_usage"):
        throttlex.reset(key, 100)
    for limit in (BUCKET, window):
        (verdict,) = await decide(store, ask(limit))
        assert verdict.decisions[0].remaining == limit.burst - 1


async def test_its_metrics_show_our_keys(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """Keys of other scopes are in its tables as well, readable, with what is left of them."""
    other = replace(BUCKET, scope="pay/header:x-api-key")
    await decide(store, ask(other, "Ünïque", cost=30))
    ((key, tokens),) = mariadb.sql("SELECT key_id, tokens FROM throttlex_usage")
    assert key.startswith("pay/header:x-api-key:_n_que#")
    assert int(tokens) == 70


async def test_keys_that_its_collation_takes_for_one(
    store: MySQLStore, throttlex: ThrottleX
) -> None:
    """A value that is not a plain address has another name, so no keys collide."""
    keys = ("abc", "ABC", "abc ", "àbc", "a" * 300, "a" * 301, "abc#1", "abc'", "abc\\")
    await decide(store, *[ask(BUCKET, key, cost=100) for key in keys])
    for limit in (BUCKET, replace(BUCKET, scope="other")):
        for key in keys:
            (verdict,) = await decide(store, ask(limit, key + "?"))
            assert verdict.decisions[0].remaining == 99, key
    verdicts = await decide(store, *[ask(BUCKET, key) for key in keys])
    assert not any(verdict.allowed for verdict in verdicts)


async def test_a_key_that_the_service_wrote_in_capitals(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """To its tables that is the same key, so it is to us."""
    mariadb.sql(
        "INSERT INTO throttlex_usage"
        " VALUES (NULL, '2001:DB8::7', 5, UNIX_TIMESTAMP() * 1000, NULL, NULL)"
    )
    (verdict,) = await decide(store, ask(BUCKET, "2001:db8::7", cost=5))
    assert verdict.allowed
    assert not (await decide(store, ask(BUCKET, "2001:db8::7")))[0].allowed
    assert await asyncio.to_thread(throttlex.metrics, "2001:db8::7") == 0


async def test_what_the_service_has_changed_is_not_tidied_away(
    mariadb: MariaDB, store: MySQLStore, throttlex: ThrottleX
) -> None:
    """A row that it wrote after us is its own again, and so are its rows of the log."""
    await decide(store, ask(BUCKET))
    throttlex.bucket(ADDRESS)
    throttlex.window(ADDRESS, 10)
    mariadb.sql("UPDATE throttlex_usage SET sluice_expires=1")
    tidy = MySQLStore(mariadb.url, domain="x", heartbeat_s=0.02, tidy_every_s=0.02)
    await tidy.start()
    try:
        given_up = "SELECT COUNT(*) FROM throttlex_usage WHERE sluice_expires IS NULL"
        await until(lambda: mariadb.sql(given_up) == [("1",)])
    finally:
        await tidy.aclose()
    assert throttlex.metrics(ADDRESS) == 98
    assert len(mariadb.sql("SELECT * FROM throttlex_sw_log")) == 1
