"""A store for Sluice over a storage with the four verbs of ratio: Add, Drop, Count and Flush.

ratio (github.com/smoya/ratio) keeps a sliding window of hits behind an interface of four verbs,
so that others can bring a storage of their own. `FourVerbStore` makes a store of any such
storage; `SqliteStorage` is one, in a file. It is registered for `sqlite://` in `pyproject.toml`.

The verbs are enough for `algorithm: sliding_window_log`, with queues and `count_refused`. What
they cannot do is take one hit out again: so a request that was given up stays counted until its
window has passed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self

from gateway.stores.extending import (
    NEVER,
    Ask,
    Clock,
    Decision,
    Limit,
    StoreError,
    StoreUnavailable,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    Verdict,
    check_options,
    combine,
    kept_in,
    read_parts,
    wall_us,
)

FOREVER_US = 2**62
LOCK_TIMEOUT_S = 5.0


class Storage(Protocol):
    """The four verbs; times are microseconds. What happens within a `with` happens at once."""

    def add(self, key: str, now_us: int, expire_in_us: int) -> None:
        """Remember a hit, for so long at least."""

    def drop(self, key: str, until_us: int) -> int:
        """Forget the hits before a moment; returns how many."""

    def count(self, key: str, until_us: int) -> int:
        """How many hits there were up to a moment, itself included."""

    def flush(self) -> None:
        """Forget everything."""

    def close(self) -> None:
        """Let go of it; ratio has added this verb later."""

    def __enter__(self) -> Self:
        """Begin what happens at once."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Keep what was done, or nothing of it after an error."""


class FourVerbStore:
    """A store of any storage with four verbs.

    Args:
        open_storage: called when the first question comes, and anew while it fails. The storage
            is used from one thread only, which is not the event loop's, so it may block.
        domain: the namespace of counts.
        clock: the time that all who share the storage go by.
    """

    def __init__(
        self, open_storage: Callable[[], Storage], domain: str, clock: Clock = wall_us
    ) -> None:
        self._open_storage = open_storage
        self._opened: Storage | None = None
        self._domain = domain
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "four-verbs")
        self._is_closed = False

    async def start(self) -> None:
        """Nothing to connect to before there is something to decide."""

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch, in one transaction."""
        if self._is_closed:
            raise StoreUnavailable("closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._decide, asks)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Nothing: no verb takes one hit out."""

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Nothing is held that would have to be renewed."""
        return True

    async def aclose(self) -> None:
        """Let what is under way end."""
        self._is_closed = True
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await asyncio.get_running_loop().run_in_executor(self._thread, opened.close)
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def is_ready(self) -> bool:
        """A file is always there."""
        return not self._is_closed

    @property
    def gateways(self) -> int:
        """Nobody signs on here, so nobody is counted."""
        return 1

    def _decide(self, asks: Sequence[Ask]) -> list[Verdict]:
        try:
            with self._storage:
                return [self._decide_one(ask) for ask in asks]
        except sqlite3.Error as error:
            raise StoreUnavailable(str(error)) from error

    @property
    def _storage(self) -> Storage:
        if self._opened is None:
            self._opened = self._open_storage()
        return self._opened

    def _decide_one(self, ask: Ask) -> Verdict:
        now_us = self._clock()
        names = [
            f"{self._domain}:{limit.scope}:{key}"
            for limit, key in zip(ask.limits, ask.keys, strict=True)
        ]
        verdict = combine(
            [
                self._look(name, limit, ask, now_us)
                for name, limit in zip(names, ask.limits, strict=True)
            ]
        )
        if verdict.allowed:
            for name, limit, decision in zip(names, ask.limits, verdict.decisions, strict=True):
                self._add(name, limit, ask.cost, decision.receipt)
        return verdict

    def _look(self, name: str, limit: Limit, ask: Ask, now_us: int) -> Decision:
        """What one limit says, by counting alone."""
        if limit.algorithm != "sliding_window_log":
            raise StoreError(f"this store has no {limit.algorithm}", "algorithm")
        window_us, cost = limit.period_us, ask.cost
        self._storage.drop(name, now_us - window_us)
        used = self._storage.count(name, FOREVER_US)
        last_us = self._time_of(used, name, limit, now_us) if used else 0
        turn_us = now_us
        surplus = used + cost - limit.count
        if cost and used:
            turn_us = max(turn_us, last_us)
        if cost > limit.count:
            wait_us = FOREVER_US
        elif cost and surplus > 0:
            free_us = self._time_of(surplus, name, limit, now_us) + window_us + 1
            wait_us = max(turn_us, free_us) - now_us
        else:
            wait_us = turn_us - now_us
        patience_us = min(limit.max_wait_us, ask.max_wait_us)
        if wait_us > patience_us:
            retry_after_us = NEVER if wait_us == FOREVER_US else wait_us - patience_us
            if limit.count_refused and retry_after_us != NEVER:
                # As in ratio: who does not stop asking stays refused.
                self._add(name, limit, cost, now_us)
                used, last_us = used + cost, now_us
                free_us = self._time_of(used + cost - limit.count, name, limit, now_us)
                retry_after_us = free_us + window_us + 1 - now_us
            return _decision(limit, used, last_us, now_us, retry_after_us=retry_after_us)
        if cost:
            last_us = now_us + wait_us
        return _decision(limit, used + cost, last_us, now_us, wait_us=wait_us)

    def _add(self, name: str, limit: Limit, cost: int, time_us: int) -> None:
        for _ in range(cost):
            self._storage.add(name, time_us, limit.period_us)

    def _time_of(self, nth: int, name: str, limit: Limit, now_us: int) -> int:
        """When the nth oldest hit was: the first moment up to which there are so many."""
        oldest_us = now_us - limit.period_us
        moments = range(oldest_us, now_us + limit.max_wait_us + 1)
        return oldest_us + bisect_left(
            moments, nth, key=lambda moment: self._storage.count(name, moment)
        )


def _decision(
    limit: Limit, used: int, last_us: int, now_us: int, *, wait_us: int = 0, retry_after_us: int = 0
) -> Decision:
    return Decision(
        allowed=not retry_after_us,
        wait_us=wait_us,
        retry_after_us=retry_after_us,
        limit=limit.count,
        remaining=max(limit.count - used, 0),
        reset_us=last_us + limit.period_us + 1 - now_us if last_us else 0,
        receipt=now_us + wait_us,
    )


class SqliteStorage:
    """Hits in a SQLite file, which several processes of one machine may share."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS hits (name, time, expires)")
        self._database.execute("CREATE INDEX IF NOT EXISTS by_time ON hits (name, time)")
        self._database.execute("CREATE INDEX IF NOT EXISTS by_expiry ON hits (expires)")

    def __enter__(self) -> Self:
        self._database.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._database.execute("COMMIT" if error is None else "ROLLBACK")

    def add(self, key: str, now_us: int, expire_in_us: int) -> None:
        """See `Storage.add`."""
        self._database.execute(
            "INSERT INTO hits VALUES (?, ?, ?)", (key, now_us, now_us + expire_in_us)
        )

    def drop(self, key: str, until_us: int) -> int:
        """Also forget what nobody has asked about since it expired."""
        self._database.execute("DELETE FROM hits WHERE expires < ?", (until_us,))
        done = self._database.execute(
            "DELETE FROM hits WHERE name = ? AND time < ?", (key, until_us)
        )
        return done.rowcount

    def count(self, key: str, until_us: int) -> int:
        """See `Storage.count`."""
        found = self._database.execute(
            "SELECT count(*) FROM hits WHERE name = ? AND time <= ?", (key, until_us)
        )
        return int(found.fetchone()[0])

    def flush(self) -> None:
        """See `Storage.flush`."""
        self._database.execute("DELETE FROM hits")

    def close(self) -> None:
        """See `Storage.close`."""
        self._database.close()


class SqliteUrls:
    """What `sluice check` knows of `sqlite:///path/to/file`."""

    secrets: frozenset[str] = frozenset()

    def read(self, url: UrlParts) -> StoreUrl:
        """Check a URL; what is wrong with it is a problem of the configuration."""
        if url.hosts or len(url.path) < 2:
            hint = "such as sqlite:///var/lib/counts.db"
            raise StoreUrlError("the URL of the store names no file", hint)
        check_options(url.options, {})
        return StoreUrl("sqlite", url.path, 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """Say for `sluice check --explain` where counts are kept."""
        return (kept_in(f"the SQLite file {url.place}", domain),)


class SqliteStore(FourVerbStore):
    """The store of `sqlite:///path/to/file`; the gateway keeps its deadline.

    Raises:
        ValueError: the URL cannot be used.
    """

    urls = SqliteUrls()

    def __init__(self, url: str, *, domain: str, deadline_us: int) -> None:
        path = self.urls.read(read_parts(url)).place
        super().__init__(lambda: SqliteStorage(path), domain)
