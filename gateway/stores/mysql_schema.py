"""The tables, and how a database comes to have them.

The first three are those of ThrottleX's design, word for word; a database that its service made
is taken as it is. What an exact limiter needs besides is added beside: columns that ThrottleX
neither reads nor writes, and tables of our own. Each step is applied once, is harmless if it is
applied again, and is noted in `sluice_schema`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.errors import StoreUnavailable
from gateway.stores.mysql_driver import Link

LOCK: Final = "sluice_schema"
PATIENCE_S: Final = 60
"""How long one gateway waits while another changes the tables; with millions of rows in them
that takes a while."""


class Column(NamedTuple):
    """A column that a table is to have."""

    table: str
    name: str
    definition: str


class Index(NamedTuple):
    """An index that a table is to have."""

    table: str
    name: str
    definition: str


Step = str | Column | Index

# A binary collation, so that ThrottleX's own keys do not fall together if it is let in later.
_TABLE: Final = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"

_USAGE: Final = f"""CREATE TABLE IF NOT EXISTS throttlex_usage (
  id          BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id      VARCHAR(255) NOT NULL,
  tokens      BIGINT       NOT NULL,
  last_refill BIGINT       NOT NULL,
  UNIQUE INDEX idx_usage_key_id (key_id),
  INDEX idx_usage_last_refill (last_refill)
) {_TABLE}"""

_LOG: Final = f"""CREATE TABLE IF NOT EXISTS throttlex_sw_log (
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id       VARCHAR(255) NOT NULL,
  request_time BIGINT       NOT NULL,
  INDEX idx_sw_key_time (key_id, request_time)
) {_TABLE}"""

_POLICY: Final = f"""CREATE TABLE IF NOT EXISTS throttlex_policy (
  id             BIGINT AUTO_INCREMENT PRIMARY KEY,
  policy_key     VARCHAR(255) NOT NULL,
  type           VARCHAR(50)  NOT NULL,
  capacity       BIGINT       NOT NULL,
  refill_rate    BIGINT       NOT NULL,
  window_seconds BIGINT       NOT NULL,
  UNIQUE INDEX idx_policy_key (policy_key)
) {_TABLE}"""

_GATEWAYS: Final = """CREATE TABLE IF NOT EXISTS sluice_gateways (
  domain  VARBINARY(255) NOT NULL,
  id      BINARY(8)      NOT NULL,
  seen_us BIGINT         NOT NULL,
  PRIMARY KEY (domain, id)
) ENGINE=InnoDB"""

_VERSIONS: Final = """CREATE TABLE IF NOT EXISTS sluice_schema (
  version    INT          PRIMARY KEY,
  name       VARCHAR(100) NOT NULL,
  applied_at TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE=InnoDB"""

_KEY_INDEX: Final = Index(
    "throttlex_usage", "idx_usage_key_id", "UNIQUE INDEX idx_usage_key_id (key_id)"
)
_TIME_INDEX: Final = Index(
    "throttlex_sw_log", "idx_sw_key_time", "INDEX idx_sw_key_time (key_id, request_time)"
)
_EXPIRY_INDEX: Final = Index(
    "throttlex_usage", "idx_sluice_expires", "INDEX idx_sluice_expires (sluice_expires)"
)
_STATE: Final = Column(
    "throttlex_usage", "sluice_state", "MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NULL"
)
_EXPIRES: Final = Column("throttlex_usage", "sluice_expires", "BIGINT NULL")
_MICROSECONDS: Final = Column("throttlex_sw_log", "sluice_us", "SMALLINT NULL")

MIGRATIONS: Final[tuple[tuple[str, tuple[Step, ...]], ...]] = (
    ("tables of ThrottleX", (_USAGE, _LOG, _POLICY, _KEY_INDEX, _TIME_INDEX)),
    ("exact states beside them", (_STATE, _EXPIRES, _EXPIRY_INDEX, _MICROSECONDS)),
    ("gateways count each other", (_GATEWAYS,)),
)
"""What each version adds, by its name; never changed once released, only added to."""


async def migrate(link: Link) -> None:
    """Bring the database to the version that this code needs; quick if it has it.

    Raises:
        StoreError: not allowed to, somebody else is at it, or the connection was lost.
    """
    if await _version(link) >= len(MIGRATIONS):
        return
    # Statements that change tables end transactions, so a lock of another kind keeps others out.
    ((got,),) = (await link.run(f"SELECT GET_LOCK('{LOCK}', {PATIENCE_S})", PATIENCE_S + 1))[0]
    if got != 1:
        raise StoreUnavailable("another gateway is changing the tables", "schema")
    try:
        await link.run(_VERSIONS)
        for number in range(await _version(link), len(MIGRATIONS)):
            name, steps = MIGRATIONS[number]
            for step in steps:
                await _apply(link, step)
            await link.run(
                f"INSERT INTO sluice_schema (version, name) VALUES ({number + 1}, '{name}');COMMIT"
            )
    finally:
        if link.is_open:
            await link.run(f"SELECT RELEASE_LOCK('{LOCK}')")


async def folds_keys(link: Link, table: str, column: str) -> bool:
    """Whether a column of keys takes capitals for small letters.

    Raises:
        StoreError: the connection was lost.
    """
    query = (
        "SELECT collation_name FROM information_schema.columns WHERE table_schema=DATABASE()"
        f" AND table_name='{table}' AND column_name='{column}'; COMMIT"
    )
    rows = (await link.run(query))[0]
    return any(str(collation).lower().endswith("_ci") for (collation,) in rows)


async def _version(link: Link) -> int:
    """The version of the database; 0 if we have never been here."""
    if not await _exists(link, "tables", "sluice_schema", ""):
        return 0
    ((version,),) = (await link.run("SELECT COALESCE(MAX(version), 0) FROM sluice_schema"))[0]
    await link.run("COMMIT")
    return int(version)


async def _apply(link: Link, step: Step) -> None:
    if isinstance(step, str):
        # Notes that a table is there already are no news.
        await link.run(f"SET sql_notes=0; {step}; SET sql_notes=1", PATIENCE_S)
    elif isinstance(step, Column):
        if not await _exists(link, "columns", step.table, f"column_name='{step.name}'"):
            change = f"ALTER TABLE {step.table} ADD COLUMN {step.name} {step.definition}"
            await link.run(change, PATIENCE_S)
    elif not await _exists(link, "statistics", step.table, f"index_name='{step.name}'"):
        await link.run(f"ALTER TABLE {step.table} ADD {step.definition}", PATIENCE_S)


async def _exists(link: Link, view: str, table: str, condition: str) -> bool:
    also = f" AND {condition}" if condition else ""
    query = (
        f"SELECT COUNT(*) FROM information_schema.{view}"
        f" WHERE table_schema=DATABASE() AND table_name='{table}'{also}"
    )
    ((count,),) = (await link.run(query))[0]
    return bool(count)
