"""The settings of a session, independent of the server's defaults.

A server copies its global variables to each new connection, and `init_connect` may change them
again. Some silently change the result of a statement (`sql_select_limit` truncates a log) or the
effect of a commit (`completion_type`). So every such variable is set when a connection is opened,
in one packet; variables that only some servers have are set in a second one, if they differ. A
variable that cannot be set is detected and reported.

This module has no connection, only the text of the statements and the reading of their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.base.errors import StoreUnavailable

LOCK_WAIT_S: Final = 1
"""The shortest time that InnoDB can wait for a lock, in whole seconds."""
SILENCE_S: Final = 10
"""The server ends a connection that is idle for this long, and frees its locks."""
CHANGE_WAIT_S: Final = 60
"""How long a statement waits for a table that is being changed, if the gateway waits that long."""
SMALLEST_PACKET: Final = 4096
"""The least packet size: a smaller one is too short for these statements or a table definition."""
CLOCK_S: Final = 3
"""The most that the session's time may differ from the server's; both are in whole seconds."""

_SQL_MODE: Final = (
    # MySQL warns if strict mode is set without all of its parts.
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)

_ALWAYS: Final = ", ".join(
    (
        "autocommit=0",
        "time_zone='+00:00'",
        f"sql_select_limit={2**64 - 1}",
        "sql_big_selects=1",
        "sql_safe_updates=0",
        # Without these checks, InnoDB may create two rows with one key.
        "unique_checks=1",
        "foreign_key_checks=1",
        # Tables that another gateway has created must not cause a warning.
        "sql_notes=0",
        f"innodb_lock_wait_timeout={LOCK_WAIT_S}",
        f"lock_wait_timeout={CHANGE_WAIT_S}",
        # A gateway that stops during a transaction must not hold its locks for long. MySQL can
        # only end idle connections; those of the gateway are never idle for that long.
        f"wait_timeout={SILENCE_S}",
    )
)
_ALWAYS_IN_MARIADB: Final = ", ".join(
    (
        f"idle_transaction_timeout={LOCK_WAIT_S}",
        # A long list of keys would become a table, and rows would be locked in the order of a join.
        "in_predicate_conversion_threshold=0",
        # Results about tables and variables pass through such a table.
        f"tmp_disk_table_size={2**64 - 1}",
    )
)
_WHERE_KNOWN: Final[Mapping[str, str]] = {
    # The gateway has its own deadline; the server's would interrupt a batch.
    "max_statement_time": "0",
    "max_execution_time": "0",
    # With too little memory for a list of keys, the server would scan and lock the whole table.
    "range_optimizer_max_mem_size": "8388608",
    "optimizer_max_sel_arg_weight": "32000",
    "optimizer_max_sel_args": "16000",
    # These would take precedence over `idle_transaction_timeout`.
    "idle_readonly_transaction_timeout": "0",
    "idle_write_transaction_timeout": "0",
    # Some of the possible defaults cannot add an index.
    "alter_algorithm": "'DEFAULT'",
    # Results must come from the tables.
    "query_cache_type": "OFF",
    "use_secondary_engine": "OFF",
}
"""Variables that not every server has, and their required values."""

_LOOKED_AT: Final = ("log_bin", "sql_log_bin", "binlog_format", "max_allowed_packet")
_NAMES: Final = ",".join(f"'{name}'" for name in (*_WHERE_KNOWN, *_LOOKED_AT))

SESSION: Final = ";".join(
    (
        # Alone and first: it determines how the following statements are parsed, and allows them.
        f"SET SESSION sql_mode='{_SQL_MODE}' /*M!100300 , max_session_mem_used={2**63 - 1} */",
        # A transaction of `init_connect` is rolled back; with another `completion_type`, that could
        # end the connection.
        "SET SESSION completion_type=NO_CHAIN",
        "ROLLBACK",
        # Each statement sees all earlier commits, and gaps are not locked.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
        # A server may be configured to ignore the character set of the handshake.
        "SET NAMES utf8mb4",
        f"SET SESSION {_ALWAYS} /*M!100300 , {_ALWAYS_IN_MARIADB} */",
        f"SHOW SESSION VARIABLES WHERE variable_name IN ({_NAMES})",
        # Unlike the first, SYSDATE() ignores a time that is set for the session.
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), SYSDATE())",
    )
)
"""The first packet of a connection; its last two results are for `read_session`."""


class Session(NamedTuple):
    """The result of setting up a session.

    Attributes:
        max_packet: how many bytes the server accepts at a time.
        pins: the statement to run next; empty for none.
    """

    max_packet: int
    pins: str


def read_session(variables: Mapping[str, str], ahead_s: int) -> Session:
    """Read the server's answer.

    Args:
        variables: the requested variables that the server has.
        ahead_s: how far the server's clock is ahead of the session's.

    Raises:
        StoreUnavailable: with these settings, counts would be wrong or could not be written.
    """
    if (
        variables.get("log_bin", "OFF").upper() == "ON"
        and variables.get("sql_log_bin", "ON").upper() == "ON"
        and variables.get("binlog_format", "").upper() == "STATEMENT"
    ):
        raise setting_error(
            "binlog_format is STATEMENT, and rows can only be logged as MIXED or ROW"
        )
    max_packet = int(variables.get("max_allowed_packet", SMALLEST_PACKET))
    if max_packet < SMALLEST_PACKET:
        raise setting_error(
            f"max_allowed_packet is {max_packet}, and must be at least {SMALLEST_PACKET}"
        )
    if abs(ahead_s) > CLOCK_S:
        raise setting_error("its time is fixed, for example by `timestamp` in init_connect")
    wrong = [
        f"{name}={wanted}"
        for name, wanted in _WHERE_KNOWN.items()
        if name in variables and not _is_same(variables[name], wanted)
    ]
    return Session(max_packet, f"SET SESSION {', '.join(wrong)}" if wrong else "")


def setting_error(why: str) -> StoreUnavailable:
    """Return the error that names the setting to change."""
    return StoreUnavailable(f"the store is not set up for exact counts: {why}", "settings")


def _is_same(found: str, wanted: str) -> bool:
    # A time is shown as `0.000000`.
    return found.upper() == wanted.strip("'") or (wanted == "0" and not found.strip("0."))
