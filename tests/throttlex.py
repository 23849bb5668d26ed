"""ThrottleX for the tests: its two limiters in memory, and its service on a real database.

Written from its low-level design and the arithmetic of its limiters: whole tokens, whole
milliseconds, floors where it has floors.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from tests.mariadb import MariaDB

TABLES: Final = """
create table throttlex_policy (id bigint not null auto_increment, capacity bigint not null,
  policy_key varchar(255) not null, refill_rate bigint not null, type varchar(50) not null,
  window_seconds bigint not null, primary key (id)) engine=InnoDB;
create table throttlex_sw_log (id bigint not null auto_increment, key_id varchar(255) not null,
  request_time bigint not null, primary key (id)) engine=InnoDB;
create table throttlex_usage (id bigint not null auto_increment, key_id varchar(255) not null,
  last_refill bigint not null, tokens bigint not null, primary key (id)) engine=InnoDB;
alter table throttlex_policy add constraint idx_policy_key unique (policy_key);
create index idx_sw_key_time on throttlex_sw_log (key_id, request_time);
create index idx_usage_last_refill on throttlex_usage (last_refill);
alter table throttlex_usage add constraint idx_usage_key_id unique (key_id);
"""
"""As Hibernate makes them from its entities: columns by the alphabet, indexes afterwards."""


class Bucket:
    """Its token bucket, of one key.

    Args:
        capacity: of the bucket, which is full when it is made.
        rate: tokens a second.
        now_ms: when it is made.
    """

    def __init__(self, capacity: int, rate: int, now_ms: int) -> None:
        self._capacity = capacity
        self._rate = rate
        self.tokens = capacity
        self.last_refill = now_ms
        self.was_full = False

    def allow(self, now_ms: int) -> bool:
        """Whether one more may pass."""
        add = int((now_ms - self.last_refill) / 1000.0 * self._rate)
        if add > 0:
            self.was_full = self.was_full or self.tokens + add >= self._capacity
            self.tokens = min(self._capacity, self.tokens + add)
            self.last_refill += add * 1000 // self._rate
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Window:
    """Its sliding window, of one key."""

    def __init__(self, capacity: int, seconds: int) -> None:
        self._capacity = capacity
        self._window_ms = seconds * 1000
        self._times: list[int] = []

    def allow(self, now_ms: int) -> bool:
        """Whether one more may pass."""
        start = now_ms - self._window_ms
        self._times = [one for one in self._times if one >= start]
        if len(self._times) >= self._capacity:
            return False
        self._times.append(now_ms)
        return True


class Answer(NamedTuple):
    """What the service made of one request, and what its row says then."""

    allowed: bool
    tokens: int
    last_refill: int


class Service:
    """The service on a database that it has made."""

    def __init__(self, server: MariaDB) -> None:
        self._server = server

    def make_tables(self) -> None:
        """An empty database, as the service leaves it when it is started."""
        self._server.sql("DROP DATABASE sluice; CREATE DATABASE sluice; USE sluice;" + TABLES)

    def put_policy(
        self, key: str, kind: str, capacity: int, rate: int = 0, window_s: int = 60
    ) -> None:
        """What its admin API does to create or change a policy."""
        self._server.sql(
            "INSERT INTO throttlex_policy (policy_key, type, capacity, refill_rate, window_seconds)"
            f" VALUES ('{key}', '{kind}', {capacity}, {rate}, {window_s})"
            " ON DUPLICATE KEY UPDATE type=VALUES(type), capacity=VALUES(capacity),"
            " refill_rate=VALUES(refill_rate), window_seconds=VALUES(window_seconds)"
        )

    def delete_policy(self, key: str) -> None:
        """What its admin API does to delete one."""
        self._server.sql(f"DELETE FROM throttlex_policy WHERE policy_key='{key}'")

    def check(self, key: str) -> Answer:
        """One request, in one transaction that locks the row of its key."""
        found = self._server.sql(
            "SELECT type, capacity, refill_rate, window_seconds FROM throttlex_policy"
            f" WHERE policy_key='{key}'"
        )
        kind, *numbers = found[0] if found else ("TOKEN_BUCKET", "100", "10", "60")
        capacity, rate, window_s = map(int, numbers)
        step = self._bucket(rate) if kind == "TOKEN_BUCKET" else self._window(key, window_s)
        rows = self._server.sql(
            f"SET @now={time.time_ns() // 1_000_000}, @capacity={capacity};"
            "INSERT IGNORE INTO throttlex_usage (key_id, tokens, last_refill)"
            f" VALUES ('{key}', @capacity, @now); BEGIN;"
            "SELECT id, tokens, last_refill INTO @id, @tokens, @last FROM throttlex_usage"
            f" WHERE key_id='{key}' FOR UPDATE;"
            f"{step}"
            "UPDATE throttlex_usage SET tokens=@tokens, last_refill=@last WHERE id=@id; COMMIT;"
            "SELECT @allowed, @tokens, @last"
        )
        allowed, tokens, last = map(int, rows[0])
        return Answer(bool(allowed), tokens, last)

    @staticmethod
    def _bucket(rate: int) -> str:
        return (
            f"SET @add=FLOOR(GREATEST(@now - @last, 0) / 1000e0 * {rate});"
            "SET @tokens=IF(@add > 0, LEAST(@capacity, @tokens + @add), @tokens),"
            f" @last=IF(@add > 0, @last + @add * 1000 DIV {max(rate, 1)}, @last);"
            "SET @allowed=@tokens >= 1; SET @tokens=@tokens - @allowed;"
        )

    @staticmethod
    def _window(key: str, seconds: int) -> str:
        return (
            f"SET @start=@now - {seconds} * 1000;"
            f"DELETE FROM throttlex_sw_log WHERE key_id='{key}' AND request_time < @start;"
            "SELECT COUNT(*) < @capacity INTO @allowed FROM throttlex_sw_log"
            f" WHERE key_id='{key}' AND request_time >= @start;"
            "INSERT INTO throttlex_sw_log (key_id, request_time)"
            f" SELECT '{key}', @now FROM DUAL WHERE @allowed;"
        )
