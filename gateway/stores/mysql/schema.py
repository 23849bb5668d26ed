"""The tables, and the steps that create them in a database.

The first three tables are exactly those of ThrottleX's design; a database created by its service is
used as it is. An exact limiter needs more, which is added: columns that ThrottleX neither reads nor
writes, and further tables. Each step is applied once, is harmless if it is repeated, and is
recorded in `sluice_schema`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from gateway.base.errors import StoreUnavailable
from gateway.stores.mysql.driver import Link
from gateway.stores.mysql.session import setting_error

LOCK: Final = "sluice_schema"
PATIENCE_S: Final = 60
"""How long one gateway waits while another changes the tables, which takes a while if they have
millions of rows."""


class TableSchema(NamedTuple):
    """A table that must exist.

    Attributes:
        place: where to look up whether it exists.
        change: the statement that creates it.
    """

    name: str
    definition: str

    @property
    def place(self) -> str:
        """See above."""
        return f"tables WHERE table_name='{self.name}'"

    @property
    def change(self) -> str:
        """See above."""
        return f"CREATE TABLE IF NOT EXISTS {self.name} {self.definition}"


class Column(NamedTuple):
    """A column that a table must have; see `TableSchema`."""

    table: str
    name: str
    definition: str

    @property
    def place(self) -> str:
        """See `TableSchema`."""
        return f"columns WHERE table_name='{self.table}' AND column_name='{self.name}'"

    @property
    def change(self) -> str:
        """See `TableSchema`."""
        return f"ALTER TABLE {self.table} ADD COLUMN {self.name} {self.definition}"


class Index(NamedTuple):
    """An index that a table must have; see `TableSchema`."""

    table: str
    name: str
    definition: str

    @property
    def place(self) -> str:
        """See `TableSchema`."""
        return f"statistics WHERE table_name='{self.table}' AND index_name='{self.name}'"

    @property
    def change(self) -> str:
        """See `TableSchema`."""
        return f"ALTER TABLE {self.table} ADD {self.definition}"


Step = TableSchema | Column | Index

# These do not depend on the defaults of a server or a database: a binary collation, so that
# ThrottleX's keys stay distinct if it uses the tables later, and a row format in which keys of 255
# characters can be indexed.
_ROWS: Final = "ROW_FORMAT=DYNAMIC"
_KIND: Final = f"ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin {_ROWS}"

_USAGE: Final = TableSchema(
    "throttlex_usage",
    f"""(
  id          BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id      VARCHAR(255) NOT NULL,
  tokens      BIGINT       NOT NULL,
  last_refill BIGINT       NOT NULL,
  UNIQUE INDEX idx_usage_key_id (key_id),
  INDEX idx_usage_last_refill (last_refill)
) {_KIND}""",
)

_LOG: Final = TableSchema(
    "throttlex_sw_log",
    f"""(
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  key_id       VARCHAR(255) NOT NULL,
  request_time BIGINT       NOT NULL,
  INDEX idx_sw_key_time (key_id, request_time)
) {_KIND}""",
)

_POLICY: Final = TableSchema(
    "throttlex_policy",
    f"""(
  id             BIGINT AUTO_INCREMENT PRIMARY KEY,
  policy_key     VARCHAR(255) NOT NULL,
  type           VARCHAR(50)  NOT NULL,
  capacity       BIGINT       NOT NULL,
  refill_rate    BIGINT       NOT NULL,
  window_seconds BIGINT       NOT NULL,
  UNIQUE INDEX idx_policy_key (policy_key)
) {_KIND}""",
)

_GATEWAYS: Final = TableSchema(
    "sluice_gateways",
    f"""(
  domain  VARBINARY(255) NOT NULL,
  id      BINARY(8)      NOT NULL,
  seen_us BIGINT         NOT NULL,
  PRIMARY KEY (domain, id)
) {_KIND}""",
)

_VERSIONS: Final = TableSchema(
    "sluice_schema",
    f"""(
  version    INT          PRIMARY KEY,
  name       VARCHAR(100) NOT NULL,
  applied_at TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
) {_KIND}""",
)

_KEY_INDEX: Final = Index(
    "throttlex_usage", "idx_usage_key_id", f"UNIQUE INDEX idx_usage_key_id (key_id), {_ROWS}"
)
_TIME_INDEX: Final = Index(
    "throttlex_sw_log", "idx_sw_key_time", f"INDEX idx_sw_key_time (key_id, request_time), {_ROWS}"
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
"""The steps of each version. Released ones never change; new ones are added."""


async def migrate(link: Link, *, is_stale: bool = False) -> None:
    """Bring the database to the version of this code; quick if it has it already.

    Args:
        link: a connection to it.
        is_stale: whether something was missing, so that the recorded version is not trusted. For
            example, restoring a dump of ThrottleX's tables drops the added columns.

    Raises:
        StoreError: no permission, another gateway is migrating, the connection was lost, or the
            existing tables cannot enforce a limit.
    """
    if is_stale or await _version(link) < len(MIGRATIONS):
        await _change(link, is_stale=is_stale)
    await _check(link)


async def _change(link: Link, *, is_stale: bool) -> None:
    # Statements that change tables end transactions, so a named lock keeps other gateways out.
    ((got,),) = (await link.run(f"SELECT GET_LOCK('{LOCK}', {PATIENCE_S})", PATIENCE_S + 1))[0]
    if got != 1:
        raise StoreUnavailable("another gateway is changing the tables", "schema")
    try:
        await _apply(link, _VERSIONS)
        for number in range(0 if is_stale else await _version(link), len(MIGRATIONS)):
            name, steps = MIGRATIONS[number]
            for step in steps:
                await _apply(link, step)
            await link.run(
                f"INSERT INTO sluice_schema (version, name) VALUES ({number + 1}, '{name}')"
                " ON DUPLICATE KEY UPDATE name=VALUES(name); COMMIT"
            )
    finally:
        if link.is_open:
            await link.run(f"SELECT RELEASE_LOCK('{LOCK}')")


async def _check(link: Link) -> None:
    """Check that the tables can enforce limits, however they were created.

    A table restored into another engine has no row locks and no rollback. Without the unique index,
    two gateways with the same new key create two rows. Neither raises an error.
    """
    names = ",".join(f"'{table.name}'" for table in (_USAGE, _LOG, _POLICY, _GATEWAYS, _VERSIONS))
    kinds, unique, _ = await link.run(
        "SELECT table_name, COALESCE(engine, table_type) FROM information_schema.tables"
        f" WHERE table_schema=DATABASE() AND table_name IN ({names});"
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
        f" WHERE table_schema=DATABASE() AND table_name='{_USAGE.name}' AND non_unique=0;"
        "COMMIT"
    )
    for name, kind in kinds:
        if str(kind).lower() != "innodb":
            raise setting_error(f"the table {name} is of the kind {kind}, and must be of InnoDB")
    columns = Counter(index for index, _, _ in unique)
    if not any((*row[1:], columns[row[0]]) == ("key_id", None, 1) for row in unique):
        raise setting_error(f"{_USAGE.name} has no unique index on key_id alone")


async def folds_keys(link: Link, table: str, column: str) -> bool:
    """Return whether a column of keys ignores case.

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
    """Return the version of the database; 0 if it has none."""
    if not await _is_there(link, _VERSIONS):
        return 0
    ((version,),) = (await link.run("SELECT COALESCE(MAX(version), 0) FROM sluice_schema"))[0]
    await link.run("COMMIT")
    return int(version)


async def _apply(link: Link, step: Step) -> None:
    # Existing tables are not created again: not every user may create tables.
    if not await _is_there(link, step):
        await link.run(step.change, PATIENCE_S)


async def _is_there(link: Link, step: Step) -> bool:
    query = f"SELECT COUNT(*) FROM information_schema.{step.place} AND table_schema=DATABASE()"
    ((count,),) = (await link.run(query))[0]
    return bool(count)
