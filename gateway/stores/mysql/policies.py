"""The table of policies: read from time to time, so that no decision waits for it.

ThrottleX's design (section 6) gives a policy one to five seconds to take effect. Each look reads
one number that stands for all rows, and the rows are read only if it has changed. While the
database is unavailable the policies of the last look apply.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final, NamedTuple

from gateway.base.errors import StoreError
from gateway.base.tasks import Background
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.throttlex import Numbers, limit_of
from gateway.stores.mysql.address import parse_mysql_url
from gateway.stores.mysql.driver import Link
from gateway.stores.mysql.schema import folds_keys, migrate

log = logging.getLogger(__name__)

TABLE: Final = "throttlex_policy"
REFRESH_S: Final = 2.0
"""Seconds between two looks."""
LONGEST_PAUSE_S: Final = 5.0
START_WAIT_S: Final = 1.0
MAX_POLICIES: Final = 100_000
"""The most policies to keep in memory; those with greater ids are ignored."""
AT_ONCE: Final = 1_000
"""Rows of one answer: requests are served between two answers."""
MAX_LOGGED_ROWS: Final = 20
"""The most rows that one look names in the log, even if all of a table is wrong."""
LOOK_S: Final = 5.0
"""The server reads all rows for a look, which takes time if there are many."""

# A sum that is linear, as that of `CRC32` is, would not notice two policies that change places.
_SUM: Final = (
    "SELECT COUNT(*), COALESCE(BIT_XOR(CAST(CONV(LEFT(SHA2(CONCAT_WS(',', id, HEX(policy_key),"
    " type, capacity, refill_rate, window_seconds), 256), 16), 16, 10) AS UNSIGNED)), 0)"
    f" FROM {TABLE}"
)
# Where blanks at the end mean nothing to the table's collation, ThrottleX finds a key without them.
_KEY: Final = "IF(policy_key = RTRIM(policy_key), RTRIM(policy_key), policy_key)"
_ROWS: Final = (
    f"SELECT id, {_KEY}, type, capacity, refill_rate, window_seconds FROM {TABLE}"
    " WHERE id > {after} ORDER BY id LIMIT {at_once}"
)


class PolicyRow(NamedTuple):
    """A row of the table.

    Attributes:
        id: its number, by which logs name it: keys may be secrets.
        key: whose policy it is.
        numbers: what it says.
    """

    id: int
    key: str
    numbers: Numbers


def read_row(row: tuple[object, ...]) -> PolicyRow:
    """Read a row.

    Raises:
        ValueError: no limit is meant by it; the message says why.
    """
    row_id, key, kind, capacity, rate, window = row
    if not isinstance(key, str):
        raise ValueError("its key is not text")  # noqa: TRY004 - as for all rows
    try:
        numbers = Numbers(str(kind), int(str(capacity)), int(str(rate)), int(str(window)))
    except ValueError:
        raise ValueError("a number is missing or invalid") from None
    limit_of(numbers)
    return PolicyRow(int(str(row_id)), key, numbers)


class PolicyReader:
    """Keeps a book in step with the table.

    Args:
        url: the URL of the store that has the table; see `mysql.url`.
        book: the book to update.
        refresh_s: seconds between two looks.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(self, url: str, book: KeyOverrides, *, refresh_s: float = REFRESH_S) -> None:
        self.book = book
        self._address = parse_mysql_url(url)
        self._refresh_s = refresh_s
        self._task = Background(self._follow)
        self._is_tried = asyncio.Event()
        self._seen: tuple[object, ...] = ()
        self._refused: dict[tuple[object, str], None] = {}
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<PolicyReader of {self._address}, {self.book!r}>"

    async def start(self) -> None:
        """Start reading, after waiting for a database that is available."""
        self._task.start()
        try:
            async with asyncio.timeout(START_WAIT_S):
                await self._is_tried.wait()
        except TimeoutError:
            self._lost("it does not answer")

    async def aclose(self) -> None:
        """Stop reading; the book stays as it is."""
        await self._task.end()

    async def _follow(self) -> None:
        pause_s = 0.0
        is_stale = False
        while True:
            link = None
            try:
                link = await Link.open(self._address)
                await migrate(link, is_stale=is_stale)
                folds = await folds_keys(link, TABLE, "policy_key")
                # A restored database may have changes that the sum does not show.
                self._seen = ()
                while True:
                    await self._look(link, folds=folds)
                    pause_s = 0.0
                    self._is_tried.set()
                    await asyncio.sleep(self._refresh_s)
            except StoreError as error:
                is_stale = error.reason == "schema"
                self._lost(str(error))
            except Exception:
                log.exception("The table of policies was read in a way that must not fail so")
            finally:
                if link is not None:
                    link.drop()
            self._is_tried.set()
            pause_s = min(max(pause_s * 2, self._refresh_s / 4), LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - jitter

    def _lost(self, why: str) -> None:
        """Log once per outage that the table is unavailable."""
        if not self._is_lost:
            self._is_lost = True
            message = "%s cannot be read (%s); its last known rows still apply, to keys: %d"
            log.warning(message, TABLE, why, len(self.book))

    async def _look(self, link: Link, *, folds: bool) -> None:
        """Apply what has changed.

        Raises:
            StoreError: the connection cannot be used any more.
        """
        (seen,) = (await link.run(f"{_SUM}; COMMIT", LOOK_S))[0]
        if seen != self._seen:
            await self._read(link, folds=folds)
            self._seen = seen
        if self._is_lost:
            self._is_lost = False
            log.warning("%s is read again", TABLE)

    async def _read(self, link: Link, *, folds: bool) -> None:
        found: dict[str, Numbers] = {}
        refused: dict[tuple[object, str], None] = {}
        after, count = -1, 0
        while True:
            rows = (await link.run(_ROWS.format(after=after, at_once=AT_ONCE) + "; COMMIT"))[0]
            for row in rows:
                try:
                    policy = read_row(row)
                except ValueError as error:
                    refused[row[0], str(error)] = None
                else:
                    found[self.book.identity(policy.key, folds=folds)] = policy.numbers
            count += len(rows)
            if len(rows) < AT_ONCE:
                break
            after = int(rows[-1][0])
            if count >= MAX_POLICIES:
                log.error("%s has more than %d rows: the rest is ignored", TABLE, MAX_POLICIES)
                break
        self._log_ignored(refused)
        self.book.replace(found, folds=folds)
        log.info("keys with policies of their own in %s: %d", TABLE, len(found))

    def _log_ignored(self, refused: dict[tuple[object, str], None]) -> None:
        """Log the rows that are ignored now and were not before."""
        news = [each for each in refused if each not in self._refused]
        for row_id, why in news[:MAX_LOGGED_ROWS]:
            log.error("row %s of %s is ignored: %s", row_id, TABLE, why)
        if len(news) > MAX_LOGGED_ROWS:
            log.error("rows of %s that are ignored too: %d", TABLE, len(news) - MAX_LOGGED_ROWS)
        self._refused = refused
