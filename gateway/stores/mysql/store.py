"""Counts in MySQL or MariaDB, shared by every gateway that uses the same domain.

A batch is one transaction: it locks the rows of its keys in order, runs the algorithms by the
server's clock, writes, and commits. `mysql_queue` gathers what comes in while others are being
flushed, `rows` knows the tables, `driver` the connection. A call is never bound to a
connection: if its caller leaves, the transaction goes on without it or is rolled back by the
worker that began it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, Unpack

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.limits import ALGORITHMS
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.mysql import work as mysql_work
from gateway.stores.mysql.address import parse_mysql_url
from gateway.stores.mysql.driver import Conflict, Link
from gateway.stores.mysql.maintenance import Maintenance
from gateway.stores.mysql.queue import AskQueue, QueuedAsk, QueuedCall, Work, is_late
from gateway.stores.mysql.rows import KeyNames, RowSlot, load, owners_sql, read_sql, write_sql
from gateway.stores.mysql.schema import folds_keys, migrate
from gateway.stores.mysql.session import setting_error
from gateway.stores.settings import StoreOptions, StoreSettings

log = logging.getLogger(__name__)

TIDY_EVERY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
START_WAIT_S: Final = 1.0
STEADY_US: Final = 1_000_000
"""A connection that lasted this long is replaced immediately when lost; others after a pause."""
STALLED_US: Final = 1_000_000
"""After this long without an answer the server counts as stalled."""
GIVE_UP_S: Final = 2.0
"""A transaction that takes longer, although no lock wait lasts that long, is given up."""
MAX_ATTEMPTS: Final = 10
"""How many failed transactions one ask may be part of."""
RETRY_PAUSE_S: Final = 0.002


class _Lane:
    """One connection and its current work."""

    __slots__ = ("link", "since_us")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.since_us = 0


class MySQLStore:
    """A `Store` in one MySQL or MariaDB database.

    Args:
        url: `mysql://user:password@host:port/database`; see `mysql.url` for its options.
        domain: see `StoreSettings`.
        tidy_every_s: seconds between two looks for rows that have expired.
        options: likewise.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str,
        tidy_every_s: float = TIDY_EVERY_S,
        **options: Unpack[StoreOptions],
    ) -> None:
        settings = StoreSettings(domain, **options)
        self.counts_debits = True
        self._address = parse_mysql_url(url)
        self._names = KeyNames(domain, self._address.throttlex)
        self._maintenance = Maintenance(domain, settings.heartbeat_s, tidy_every_s)
        self._deadline_us = settings.deadline_us
        self._heartbeat_s = settings.heartbeat_s
        self._clock = settings.clock
        self._queue = AskQueue()
        self._lanes = [_Lane() for _ in range(self._address.connections)]
        self._tasks: list[asyncio.Task[None]] = []
        self._schema = asyncio.Lock()
        self._is_tried = asyncio.Event()
        self._why = StoreUnavailable("the store is not connected yet", "not_connected")

    def __repr__(self) -> str:
        is_open = any(lane.link is not None for lane in self._lanes)
        return f"<MySQLStore {self._address} {'open' if is_open else f'down ({self._why.reason})'}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        stalled_us = self._clock() - STALLED_US
        return any(
            lane.link is not None and not 0 < lane.since_us < stalled_us for lane in self._lanes
        )

    @property
    def gateways(self) -> int:
        """How many gateways share this store, as last seen; at least 1."""
        return self._maintenance.gateways

    async def start(self) -> None:
        """Connect in the background.

        A server that is there is waited for: what came before the connection stood would be
        counted by this gateway alone.
        """
        if not self._tasks:
            loop = asyncio.get_running_loop()
            lanes = [loop.create_task(self._serve_lane(lane)) for lane in self._lanes]
            self._tasks = [*lanes, loop.create_task(self._keep_open(self._maintenance.keep))]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_WAIT_S):
                    await self._is_tried.wait()

    async def aclose(self) -> None:
        """Sign off and close; nothing may be asked afterwards."""
        self._why = StoreUnavailable("the store is closed", "closed")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._queue.fail(self._why)

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch; its asks may be in several transactions.

        Raises:
            StoreUnavailable: not connected, or the server cannot serve; immediately.
            StoreTimeout: the server did not get to it in time.
            StoreReplyError: the answer cannot be understood.
        """
        if not asks:
            return ()
        return await self._ask([(ask, mysql_work.decide) for ask in asks])

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`; if that fails the ask stays spent: too little may pass, never more.

        Raises:
            StoreError: as `decide`.
        """
        if verdict.allowed and ask.cost and ask.limits:
            await self._ask([(ask, partial(mysql_work.give_back, verdict=verdict))])

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed ask holds; see `Store.renew`."""
        if not verdict.allowed:
            return False
        held = any(ALGORITHMS[limit.algorithm].renew is not None for limit in ask.limits)
        if not ask.cost or not held:
            return True
        (all_held,) = await self._ask([(ask, partial(mysql_work.renew, verdict=verdict))])
        return bool(all_held)

    async def _ask(self, work: Sequence[tuple[Ask, Work]]) -> list[Any]:
        """Queue work, and return the answers."""
        if all(lane.link is None for lane in self._lanes):
            raise type(self._why)(str(self._why), self._why.reason)
        not_after_us = self._clock() + self._deadline_us if self._deadline_us else 0
        call = QueuedCall(len(work), not_after_us)
        name = self._names.name
        self._queue.put(
            [
                QueuedAsk(call, at, ask, tuple(map(name, ask.limits, ask.keys)), what)
                for at, (ask, what) in enumerate(work)
            ]
        )
        await call.future
        return call.answers

    # Connections.

    async def _connected(self) -> Link:
        """Return a new connection to a database that has the gateway's tables."""
        link = await Link.open(self._address)
        try:
            async with self._schema:
                await migrate(link, is_stale=self._why.reason == "schema")
                self._names.folds = await folds_keys(link, "throttlex_usage", "key_id")
        except BaseException:
            link.drop()
            raise
        return link

    async def _keep_open(self, use: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
        """Open a connection, use it until it fails, and repeat; with growing pauses."""
        pause_s = FIRST_PAUSE_S
        while True:
            link = None
            since_us = self._clock()
            try:
                link = await self._connected()
                await use(link)
            except StoreError as error:
                self._why = StoreUnavailable(str(error), error.reason)
            except Exception:
                log.exception("A connection to the store failed in a way that it must not")
            finally:
                if link is not None:
                    link.drop()
            self._is_tried.set()
            if all(lane.link is None for lane in self._lanes):
                self._queue.fail(self._why)
            if link is not None and self._clock() - since_us > STEADY_US:
                pause_s = FIRST_PAUSE_S
                continue
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - jitter
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _serve_lane(self, lane: _Lane) -> None:
        """Decide on what waits, transaction by transaction."""

        async def serve(link: Link) -> None:
            lane.link = link
            self._is_tried.set()
            try:
                while True:
                    entries = await self._queue.take(self._heartbeat_s)
                    lane.since_us = self._clock()
                    if entries:
                        await self._transact(link, entries)
                    else:
                        # Finds out whether the connection still works.
                        await link.run("SELECT 1", GIVE_UP_S)
                    lane.since_us = 0
            finally:
                lane.link = None
                lane.since_us = 0

        await self._keep_open(serve)

    # Transactions.

    async def _transact(self, link: Link, entries: list[QueuedAsk]) -> None:
        """Run one transaction for all of these.

        Raises:
            StoreError: the connection cannot be used any more.
        """
        is_written = False
        taken = entries
        entries, slots = self._slots_of(taken)
        try:
            now_us = await self._read(link, entries, slots)
            answers = [
                (entry, entry.work(entry.ask, [slots[name] for name in entry.names], now_us))
                for entry in entries
                if not is_late(entry, self._clock())
            ]
            packet = write_sql(slots.values(), now_us) or "ROLLBACK"
            self._fit(link, entries, packet)
            is_written = packet != "ROLLBACK"
            await link.run(packet, GIVE_UP_S)
            for entry, answer in answers:
                entry.call.answer(entry.at, answer)
        except Conflict as conflict:
            await self._roll_back(link, entries, conflict)
        except StoreError as error:
            # What was never sent to be written may be asked again, elsewhere; what was may have
            # been written.
            self._again(entries, error, 1 if is_written else 2)
            raise
        except BaseException:
            for entry in entries:
                entry.call.fail(StoreUnavailable("the connection was given up", "connection_lost"))
            raise
        finally:
            self._queue.done(taken)

    def _slots_of(self, entries: list[QueuedAsk]) -> tuple[list[QueuedAsk], dict[str, RowSlot]]:
        """Return the kept entries and their slots by name; put back those that conflict on a limit.

        Two policies in ThrottleX's notation may have one row, and its numbers may have changed
        between two asks. Each write uses the numbers of one of them.
        """
        slots: dict[str, RowSlot] = {}
        kept: list[QueuedAsk] = []
        others: list[QueuedAsk] = []
        for entry in entries:
            limits = entry.ask.limits
            for name, limit in zip(entry.names, limits, strict=True):
                known = slots.get(name)
                if known is not None and known.limit is not limit and known.limit != limit:
                    others.append(entry)
                    break
            else:
                kept.append(entry)
                for name, limit in zip(entry.names, limits, strict=True):
                    if name not in slots:
                        slots[name] = RowSlot(name, limit)
        self._queue.put_back(others)
        return kept, slots

    async def _read(self, link: Link, entries: list[QueuedAsk], slots: dict[str, RowSlot]) -> int:
        """Lock and read the rows; return the server's time."""
        packet = read_sql(slots.values())
        self._fit(link, entries, packet)
        usage, *logs, now = await link.run(packet, GIVE_UP_S)
        now_us = int(now[0][0])
        log_rows = logs[0] if logs else ()
        question = owners_sql(slots, usage, log_rows)
        self._fit(link, entries, question)
        answers = await link.run(question, GIVE_UP_S) if question else ()
        load(slots, usage, log_rows, now_us, chain.from_iterable(answers))
        return now_us

    def _fit(self, link: Link, entries: list[QueuedAsk], packet: str) -> None:
        """Make batches smaller from now on if this one is too long to be sent.

        Raises:
            Conflict: it is too long; a single request that does not fit has failed.
        """
        if len(packet) < link.max_packet:
            return
        if len(entries) > 1:
            self._queue.most = min(self._queue.most, -(-len(entries) // 2))
        else:
            why = f"max_allowed_packet is {link.max_packet}, which is too little for this request"
            entries[0].call.fail(setting_error(why))
        raise Conflict("a batch was longer than max_allowed_packet", "settings")

    async def _roll_back(self, link: Link, entries: list[QueuedAsk], conflict: Conflict) -> None:
        """Roll back, and retry the entries as long as requests wait for them."""
        try:
            # Some errors roll back the statement only, and leave the locks.
            await link.run("ROLLBACK", GIVE_UP_S)
            await asyncio.sleep(RETRY_PAUSE_S * random.random())  # noqa: S311 - jitter
        finally:
            self._again(entries, conflict, MAX_ATTEMPTS)

    def _again(self, entries: list[QueuedAsk], error: StoreError, max_attempts: int) -> None:
        """Put entries back into the queue, or fail those that were tried often enough."""
        left = []
        for entry in entries:
            entry.attempts += 1
            if entry.attempts >= max_attempts:
                entry.call.fail(error)
            elif not is_late(entry, self._clock()):
                left.append(entry)
        self._queue.put_back(left)
