"""A server whose administrator has set it up for something else: limits hold, or one is told.

Each variable that a session inherits, or that a table is made by, is tried with a value that would
change an answer, a commit or a table; and each is set globally, as it would be in a server's file.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import Limit
from gateway.limits.throttlex import Numbers
from gateway.routing.keys import identity
from gateway.stores.base import Ask
from gateway.stores.mysql.address import parse_mysql_url
from gateway.stores.mysql.driver import Link
from gateway.stores.mysql.policies import PolicyReader
from gateway.stores.mysql.session import SESSION, read_session
from gateway.stores.mysql.store import MySQLStore
from tests.mariadb import MYSQLD, MariaDB
from tests.servers import until
from tests.stores.contract import BUCKET, DAY_US, LOG, ask, remaining
from tests.stores.making import making, ready

MakeStore = Callable[..., MySQLStore]

MODES: Final = (
    *("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH", "PIPES_AS_CONCAT"),
    *("IGNORE_SPACE", "HIGH_NOT_PRECEDENCE", "NO_UNSIGNED_SUBTRACTION", "TRADITIONAL", "ANSI", ""),
    *("NO_AUTO_VALUE_ON_ZERO", "ONLY_FULL_GROUP_BY", "ALLOW_INVALID_DATES", "REAL_AS_FLOAT"),
)
MODES_OF_MARIADB: Final = (
    *("ORACLE", "MSSQL", "DB2", "POSTGRESQL", "MAXDB", "MYSQL40", "EMPTY_STRING_IS_NULL"),
    *("SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL"),
)
HOSTILE: Final = (
    *(f"sql_mode='{mode}'" for mode in MODES),
    *(f"sql_select_limit={count}" for count in (0, 1, 100)),
    "completion_type=1",
    "completion_type=2",
    "max_join_size=1",
    "sql_big_selects=0, GLOBAL max_join_size=1",
    "autocommit=0",
    "unique_checks=0",
    "foreign_key_checks=0",
    "big_tables=1",
    "tmp_table_size=16384",
    "max_heap_table_size=16384",
    "max_sort_length=64",
    "group_concat_max_len=4",
    "div_precision_increment=0",
    "low_priority_updates=1",
    "sql_auto_is_null=1",
    "sort_buffer_size=1024",
    "sql_buffer_result=1",
    "sql_safe_updates=1",
    "auto_increment_increment=65535, GLOBAL auto_increment_offset=65535",
    "innodb_lock_wait_timeout=1",
    "lock_wait_timeout=1",
    "wait_timeout=1",
    "net_write_timeout=1",
    "default_storage_engine=MyISAM",
    "default_storage_engine=MEMORY",
    "innodb_default_row_format=compact",
    "innodb_default_row_format=redundant",
    "innodb_file_per_table=0",
    "innodb_strict_mode=0",
    "innodb_deadlock_detect=0",
    "innodb_change_buffering=all, GLOBAL unique_checks=0",
    "explicit_defaults_for_timestamp=0",
    "optimizer_switch='index_condition_pushdown=off,mrr=on,index_merge=off'",
    "eq_range_index_dive_limit=1",
    "max_seeks_for_key=1",
    "max_prepared_stmt_count=0",
    "time_zone='-11:59'",
    "lc_time_names='de_DE'",
    "default_week_format=7",
    "character_set_server=ucs2",
    "character_set_server=latin1, GLOBAL collation_server=latin1_general_cs",
    "old_mode=''",
)
HOSTILE_OF_MARIADB: Final = (
    *(f"sql_mode='{mode}'" for mode in MODES_OF_MARIADB),
    *(f"tx_isolation='{level}'" for level in ("SERIALIZABLE", "READ-UNCOMMITTED")),
    "tx_read_only=1",
    "max_statement_time=0.000001",
    "max_session_mem_used=8192",
    "in_predicate_conversion_threshold=2",
    "optimizer_max_sel_arg_weight=1",
    "optimizer_max_sel_args=1",
    "idle_transaction_timeout=1",
    "idle_readonly_transaction_timeout=30",
    "idle_write_transaction_timeout=30",
    "alter_algorithm=INSTANT",
    "alter_algorithm=COPY",
    "innodb_force_primary_key=1",
    "innodb_compression_default=1",
    "innodb_snapshot_isolation=1",
    "query_cache_type=1, GLOBAL query_cache_size=1048576",
    "tmp_disk_table_size=1024",
    "tmp_memory_table_size=0",
    "sql_if_exists=1",
    "system_versioning_alter_history=KEEP",
    "use_stat_tables=NEVER",
    "standard_compliant_cte=0",
    "old_mode='NO_PROGRESS_INFO,ZERO_DATE_TIME_CAST'",
    "join_cache_level=8",
    "net_buffer_length=1024",
)
HOSTILE_OF_MYSQL: Final = (
    "transaction_isolation='SERIALIZABLE'",
    "transaction_read_only=1",
    "max_execution_time=1",
    "range_optimizer_max_mem_size=1",
    "sql_generate_invisible_primary_key=1",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server for all tests of this module; each leaves it as it was."""
    running = MariaDB(tmp_path_factory.mktemp("mariadb"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def make_store() -> AsyncIterator[MakeStore]:
    """Makes stores that are closed when the test is over."""
    async with making(MySQLStore, domain="settings", deadline_us=20_000_000) as make:
        yield make


@contextlib.asynccontextmanager
async def set_globally(server: MariaDB, settings: str) -> AsyncIterator[None]:
    """Those that the server has are set for all sessions to come, and set back."""
    every = settings.split(", GLOBAL ")
    names = [each.partition("=")[0].strip() for each in every]
    words = ",".join(f"'{name}'" for name in names)
    # Of before, so that nothing of it is in the way of setting it back.
    root = await Link.open(
        parse_mysql_url(f"mysql://root@localhost/mysql?unix_socket={server.socket}")
    )
    try:
        await root.run("SET SESSION wait_timeout=3600")
        (known,) = await root.run(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({words})")
        there = {name for name, _ in known}
        kept = [each for each, name in zip(every, names, strict=True) if name in there]
        is_number = re.compile(r"\d+(\.\d+)?").fullmatch
        before = {name: value if is_number(value) else f"'{value}'" for name, value in known}
        if kept:
            await root.run(f"SET GLOBAL {', GLOBAL '.join(kept)}")
        try:
            yield
        finally:
            # In the other order: some are bounded by others. To some nothing cannot be said.
            left = [f"{name}={before[name]}" for name in reversed(names) if name in before]
            if left:
                back = ", GLOBAL ".join(left)
                await root.run(f"SET GLOBAL {back}".replace("=''", "=DEFAULT"))
    finally:
        await root.aclose()


async def policies(server: MariaDB) -> KeyOverrides:
    """What a gateway reads of the table of policies."""
    book = KeyOverrides(identity)
    reader = PolicyReader(server.url, book)
    await reader.start()
    await until(lambda: len(book) > 0)
    await reader.aclose()
    return book


def begin_anew(server: MariaDB) -> None:
    """A database without tables."""
    server.sql("DROP DATABASE sluice; CREATE DATABASE sluice", "")


async def holds(server: MariaDB, make_store: MakeStore) -> None:
    """Two gateways make the tables, and let through what each limit says, to the last request.

    A server ends a transaction in which nothing comes for a second, as it may on a busy machine.
    Then it is tried again; what is wrong with a setting would be wrong each time.
    """
    for _ in range(2):
        with contextlib.suppress(StoreUnavailable):
            return await _holds_at_once(server, make_store)
        begin_anew(server)
    return await _holds_at_once(server, make_store)


async def _holds_at_once(server: MariaDB, make_store: MakeStore) -> None:
    stores = [await ready(make_store(server.url, heartbeat_s=0.2)) for _ in range(2)]
    names = ("token_bucket", "sliding_window_log", "sliding_window_counter")
    for name in (*names, "fixed_window", "paced_history", "concurrency"):
        limit = Limit(150, 30 * DAY_US, 150, name, scope=f"settings/{name}")
        batches = await asyncio.gather(
            *(store.decide([ask(limit)] * 20) for store in stores for _ in range(5))
        )
        assert sum(verdict.allowed for batch in batches for verdict in batch) == 150, name
        assert await remaining(stores[0], limit) == 0
    both = Ask((BUCKET, LOG), ("k", "k"), 2, 0)
    (verdict,) = await stores[0].decide([both])
    await stores[1].give_back(both, verdict)
    assert await remaining(stores[0], LOG) == 5
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize(
    "settings", [*HOSTILE, *(HOSTILE_OF_MYSQL if MYSQLD else HOSTILE_OF_MARIADB)]
)
async def test_limits_hold_whatever_sessions_inherit(
    server: MariaDB, make_store: MakeStore, settings: str
) -> None:
    """No default of a server changes an answer, a commit or a table."""
    begin_anew(server)
    async with set_globally(server, settings):
        await holds(server, make_store)


@pytest.mark.parametrize(
    "statement",
    [
        "SET sql_select_limit=1",
        "SET completion_type=2; BEGIN",
        "SET autocommit=0; SELECT COUNT(*) FROM information_schema.engines",
        "START TRANSACTION READ ONLY",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET NAMES latin1",
        "SET character_set_results=NULL",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SET character_set_connection=ucs2",
        "SET insert_id=7, last_insert_id=7",
        "SET sql_mode='NO_BACKSLASH_ESCAPES,ANSI'",
        "SET time_zone='+13:00'",
        "SET unique_checks=0, foreign_key_checks=0",
    ],
)
async def test_limits_hold_whatever_sessions_begin_with(
    server: MariaDB, make_store: MakeStore, statement: str
) -> None:
    """What `init_connect` does is undone."""
    begin_anew(server)
    quoted = statement.replace("'", "''")
    server.sql(f"SET GLOBAL init_connect='{quoted}'", "")
    try:
        await holds(server, make_store)
    finally:
        server.sql("SET GLOBAL init_connect=''", "")


async def test_limits_hold_on_a_server_that_was_started_for_something_else(
    tmp_path: Path, make_store: MakeStore
) -> None:
    """Options of the command line only: of handshakes, names, rollbacks and engines."""
    options = (
        *("--ansi", "--character-set-server=utf32", "--collation-server=utf32_unicode_ci"),
        *(
            "--lower-case-table-names=1",
            "--innodb-rollback-on-timeout",
            "--completion-type=RELEASE",
        ),
        *("--innodb-default-row-format=redundant", "--default-storage-engine=MyISAM"),
        *("--autocommit=0", "--innodb-autoinc-lock-mode=0", "--innodb-page-size=4k"),
        *(("--skip-character-set-client-handshake",) if not MYSQLD else ()),
    )
    folder = tmp_path / "server"
    server = MariaDB(folder, options)
    server.start()
    try:
        await holds(server, make_store)
    finally:
        server.stop()


async def test_keys_beyond_ascii_are_read_whatever_the_server_speaks(tmp_path: Path) -> None:
    """A server that ignores the handshake's character set is told again."""
    ignoring = () if MYSQLD else ("--skip-character-set-client-handshake",)
    server = MariaDB(tmp_path / "server", ("--character-set-server=latin1", *ignoring))
    server.start()
    try:
        async with making(MySQLStore, domain="settings") as make:
            await ready(make(server.url))
        server.sql(
            "SET NAMES utf8mb4; INSERT INTO throttlex_policy"
            " (policy_key, type, capacity, refill_rate, window_seconds)"
            " VALUES ('zażółć', 'TOKEN_BUCKET', 3, 1, 1)"
        )
        book = await policies(server)
        assert book.find(identity("zażółć")) == Numbers("TOKEN_BUCKET", 3, Fraction(1), 1)
    finally:
        server.stop()


async def test_all_policies_are_read_whatever_the_limit_on_selects(server: MariaDB) -> None:
    """The table is read in pieces, and none of them is cut off."""
    async with making(MySQLStore, domain="settings") as make:
        begin_anew(server)
        await ready(make(server.url))
    rows = ",".join(f"('k{number}', 'TOKEN_BUCKET', 3, 1, 1)" for number in range(250))
    columns = "policy_key, type, capacity, refill_rate, window_seconds"
    server.sql(f"INSERT INTO throttlex_policy ({columns}) VALUES {rows}")
    async with set_globally(server, "sql_select_limit=100"):
        assert len(await policies(server)) == 250


MADE_FOR_OTHERS: Final = {
    "ALTER TABLE throttlex_usage ENGINE=MyISAM": "throttlex_usage is of the kind MyISAM",
    "ALTER TABLE throttlex_sw_log DROP INDEX idx_sw_key_time,"
    " ADD INDEX idx_sw_key_time (key_id(100), request_time),"
    " ENGINE=MyISAM": "throttlex_sw_log is of the kind MyISAM",
    "ALTER TABLE sluice_gateways ENGINE=MEMORY": "sluice_gateways is of the kind MEMORY",
    "RENAME TABLE throttlex_sw_log TO log; CREATE VIEW throttlex_sw_log AS SELECT * FROM log": (
        "throttlex_sw_log is of the kind VIEW"
    ),
    "ALTER TABLE throttlex_usage DROP INDEX idx_usage_key_id,"
    " ADD INDEX idx_usage_key_id (key_id)": "no unique index on key_id",
    "ALTER TABLE throttlex_usage DROP INDEX idx_usage_key_id,"
    " ADD UNIQUE INDEX idx_usage_key_id (key_id, id)": "no unique index on key_id",
}


async def refused(make_store: MakeStore, url: str) -> str:
    """Why a gateway does not count on this server, as it says when it is asked."""
    store = make_store(url)
    await store.start()
    await until(lambda: "down (settings)" in repr(store))
    assert not store.is_ready
    with pytest.raises(StoreUnavailable) as caught:
        await store.decide([ask(BUCKET)])
    assert caught.value.reason == "settings"
    return str(caught.value)


@pytest.mark.parametrize("change", MADE_FOR_OTHERS)
async def test_tables_that_hold_no_limit_are_found_out(
    server: MariaDB, make_store: MakeStore, change: str
) -> None:
    """Rows that cannot be locked, or are duplicated, would silently admit more."""
    begin_anew(server)
    store = await ready(make_store(server.url))
    await store.aclose()
    server.sql(change)
    try:
        assert MADE_FOR_OTHERS[change] in await refused(make_store, server.url)
    finally:
        begin_anew(server)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("max_allowed_packet=1024", "max_allowed_packet is 1024"),
        ("init_connect='SET timestamp=1'", "its time is fixed"),
        ("enforce_storage_engine=MyISAM", "NO_ENGINE_SUBSTITUTION"),
    ],
)
async def test_what_cannot_be_set_is_found_out(
    server: MariaDB, make_store: MakeStore, settings: str, why: str
) -> None:
    """The error has the setting to change, and nothing is miscounted."""
    begin_anew(server)
    async with set_globally(server, settings):
        assert why in await refused(make_store, server.url)


async def test_a_log_by_statement_is_found_out(tmp_path: Path, make_store: MakeStore) -> None:
    """Such a server refuses every write of a session without gap locks: this is reported early."""
    options = ("--log-bin", "--server-id=1", "--binlog-format=STATEMENT")
    server = MariaDB(tmp_path / "server", options)
    server.start()
    try:
        assert "binlog_format is STATEMENT" in await refused(make_store, server.url)
        server.sql("SET GLOBAL binlog_format=MIXED", "")
        await holds(server, make_store)
    finally:
        server.stop()


async def test_batches_are_as_long_as_the_server_takes_them(
    server: MariaDB, make_store: MakeStore
) -> None:
    """With packets of 4 kB, all of many asks are answered, and one that never fits fails."""
    begin_anew(server)
    async with set_globally(server, "max_allowed_packet=4096"):
        store = await ready(make_store(server.url, tidy_every_s=0.05))
        asks = [Ask((BUCKET, LOG), (f"{n:0>150}",) * 2, 1, 0) for n in range(300)]
        verdicts = await store.decide(asks)
        assert [verdict.allowed for verdict in verdicts] == [True] * 300
        wide = Limit(1000, DAY_US, 1000, "sliding_window_log", scope="settings/wide")
        with pytest.raises(StoreUnavailable, match="max_allowed_packet is 4096") as caught:
            await store.decide([ask(wide, cost=1000)])
        assert caught.value.reason == "settings"
        assert await remaining(store, wide) == 1000
        # What is over is tidied away in pieces that fit as well.
        server.sql("UPDATE throttlex_usage SET sluice_expires=1")
        await until(lambda: server.sql("SELECT COUNT(*) FROM throttlex_usage") == [("0",)])


def test_what_a_server_says_of_its_session_is_read() -> None:
    """What is not as it should be is set; what cannot be is refused."""
    well = {"max_allowed_packet": "16777216", "max_statement_time": "0.000000"}
    assert read_session(well, 0) == (16_777_216, "")
    timed = {**well, "max_statement_time": "0.500000", "query_cache_type": "ON"}
    assert read_session(timed, 0).pins == "SET SESSION max_statement_time=0, query_cache_type=OFF"
    with pytest.raises(StoreUnavailable, match="STATEMENT"):
        read_session({**well, "log_bin": "ON", "binlog_format": "STATEMENT"}, 0)
    assert read_session({**well, "log_bin": "OFF", "binlog_format": "STATEMENT"}, 0).pins == ""
    with pytest.raises(StoreUnavailable, match="time"):
        read_session(well, -5000)


async def test_a_session_is_set_up_by_one_packet(server: MariaDB) -> None:
    """Where nothing is unusual one round trip is all that it takes, as ever."""
    link = await Link.open(parse_mysql_url(server.url))
    try:
        asked = await link.run("SHOW SESSION STATUS LIKE 'Com_set_option'")
        assert int(asked[0][0][1]) == SESSION.count("SET ")
    finally:
        await link.aclose()
