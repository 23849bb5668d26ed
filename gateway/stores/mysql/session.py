"""The settings of a session, whatever the defaults of the server's administrator.

A server copies its global variables to each new connection, and `init_connect` may change them once
more. Some change what a statement answers (`sql_select_limit` cuts off what a log has counted) or
what a commit does (`completion_type`), without any error. So each variable that could is set when a
connection is made, in one packet; those that only some servers have are set in a second one, if
they differ. A variable that cannot be set is detected and reported.

This module has no connection: only text, and the interpretation of the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.base.errors import StoreUnavailable

LOCK_WAIT_S: Final = 1
"""The least that InnoDB waits for another's lock, in whole seconds."""
SILENCE_S: Final = 10
"""The server ends a connection that is silent for this long, and frees its locks."""
CHANGE_WAIT_S: Final = 60
"""How long a statement waits for a table that is being changed, unless we give up before."""
SMALLEST_PACKET: Final = 4096
"""A server that accepts less per packet could not even receive this, or a table's definition."""
CLOCK_S: Final = 3
"""How far the session's time may be from the server's; both are rounded to whole seconds."""

_SQL_MODE: Final = (
    # MySQL warns about strictness that does not have all of its parts.
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
        # Without them InnoDB may let two rows have one key.
        "unique_checks=1",
        "foreign_key_checks=1",
        # Tables that another gateway made already are no reason for a warning.
        "sql_notes=0",
        f"innodb_lock_wait_timeout={LOCK_WAIT_S}",
        f"lock_wait_timeout={CHANGE_WAIT_S}",
        # A gateway that stops in the middle of a transaction must not hold its locks for long.
        # MySQL can only end silent connections; those of the gateway are never silent for so long.
        f"wait_timeout={SILENCE_S}",
    )
)
_ALWAYS_IN_MARIADB: Final = ", ".join(
    (
        f"idle_transaction_timeout={LOCK_WAIT_S}",
        # A long list of keys would be made a table, and rows locked in the order of a join.
        "in_predicate_conversion_threshold=0",
        # What a server says of its tables and variables passes through such a table.
        f"tmp_disk_table_size={2**64 - 1}",
    )
)
_WHERE_KNOWN: Final[Mapping[str, str]] = {
    # The gateway gives statements up itself; the server would do it in the middle of a batch.
    "max_statement_time": "0",
    "max_execution_time": "0",
    # With too little room for a list of keys the whole table is gone through, and locked.
    "range_optimizer_max_mem_size": "8388608",
    "optimizer_max_sel_arg_weight": "32000",
    "optimizer_max_sel_args": "16000",
    # These would go before the time after which silent transactions are ended.
    "idle_readonly_transaction_timeout": "0",
    "idle_write_transaction_timeout": "0",
    # An index cannot be added in every way that an administrator may prefer.
    "alter_algorithm": "'DEFAULT'",
    # Answers come from the tables.
    "query_cache_type": "OFF",
    "use_secondary_engine": "OFF",
}
"""Variables that not every server has, and their required values."""

_LOOKED_AT: Final = ("log_bin", "sql_log_bin", "binlog_format", "max_allowed_packet")
_NAMES: Final = ",".join(f"'{name}'" for name in (*_WHERE_KNOWN, *_LOOKED_AT))

SESSION: Final = ";".join(
    (
        # By itself, and first: it says how all that follows is read, and that it may be.
        f"SET SESSION sql_mode='{_SQL_MODE}' /*M!100300 , max_session_mem_used={2**63 - 1} */",
        # What `init_connect` may have begun is rolled back, which `completion_type` could make the
        # end of the connection.
        "SET SESSION completion_type=NO_CHAIN",
        "ROLLBACK",
        # Each statement sees what was committed before it began, and gaps are not locked.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
        # A server may be told not to listen to what the handshake says of this.
        "SET NAMES utf8mb4",
        f"SET SESSION {_ALWAYS} /*M!100300 , {_ALWAYS_IN_MARIADB} */",
        f"SHOW SESSION VARIABLES WHERE variable_name IN ({_NAMES})",
        # Unlike the other, this one does not believe what a session says of the time.
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), SYSDATE())",
    )
)
"""The first packet of a connection; its last two results are for `read_session`."""


class Session(NamedTuple):
    """What is known of a session that `SESSION` has set up.

    Attributes:
        max_packet: how many bytes the server accepts at a time.
        pins: what is still to be run; empty if nothing is.
    """

    max_packet: int
    pins: str


def read_session(variables: Mapping[str, str], ahead_s: int) -> Session:
    """Read what the server said.

    Args:
        variables: those that were asked for and that the server has.
        ahead_s: how far the server's clock is ahead of the session's.

    Raises:
        StoreUnavailable: counts would be wrong, or could not be written.
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
            f"max_allowed_packet is {max_packet}, and must be {SMALLEST_PACKET} at least"
        )
    if abs(ahead_s) > CLOCK_S:
        raise setting_error(
            "its time stands still or is set, by `timestamp` in init_connect for one"
        )
    wrong = [
        f"{name}={wanted}"
        for name, wanted in _WHERE_KNOWN.items()
        if name in variables and not _is_same(variables[name], wanted)
    ]
    return Session(max_packet, f"SET SESSION {', '.join(wrong)}" if wrong else "")


def setting_error(why: str) -> StoreUnavailable:
    """Return the error that says what an administrator has to change."""
    return StoreUnavailable(f"the store is not set up for exact counts: {why}", "settings")


def _is_same(found: str, wanted: str) -> bool:
    # A time is shown as `0.000000`.
    return found.upper() == wanted.strip("'") or (wanted == "0" and not found.strip("0."))
