"""Asks that wait for a transaction, and which of them may share one.

While one transaction is being flushed to disk, new asks gather for the next, so the batches grow
with the load. Two transactions of this gateway never want the same row: an ask for a key that is in
use waits here, where it holds no connection and delays no other key. Asks for one key stay in
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.base.errors import StoreError, StoreTimeout, StoreUnavailable
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.mysql.rows import RowSlot

Answer = Verdict | bool
Work = Callable[[Ask, Sequence[RowSlot], int], Answer]
"""Changes the states of an ask's keys at a time of the server, and returns the answer."""

MAX_BATCH: Final = 256
"""Asks of one transaction; more would only hold locks for longer."""
MIN_SHARE: Final = 16
"""Fewer asks are not worth a second transaction."""
MAX_WAITING: Final = 16_384
"""Asks that wait; more would only accumulate in memory and be too late."""


class QueuedCall:
    """One call of the store: its asks, and the future that its caller waits for."""

    __slots__ = ("_left", "answers", "future", "not_after_us")

    def __init__(self, size: int, not_after_us: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers: list[Any] = [None] * size
        self.not_after_us = not_after_us
        self._left = size

    def answer(self, at: int, answer: Answer) -> None:
        """Record the answer to one of its entries."""
        self.answers[at] = answer
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: StoreError) -> None:
        """Fail the whole call; the rest of it need not be asked."""
        if not self.future.done():
            # A new one each time: an exception raised twice would grow its traceback.
            self.future.set_exception(type(error)(str(error), error.reason))


class QueuedAsk:
    """One ask of a call, and the work to do with it.

    Attributes:
        call, at: the call, and the position of the answer in it.
        ask: the ask.
        names: the rows of its keys, one for each limit.
        work: done while the rows are locked.
        attempts: how many transactions with this ask have failed.
    """

    __slots__ = ("ask", "at", "attempts", "call", "names", "work")

    def __init__(
        self, call: QueuedCall, at: int, ask: Ask, names: tuple[str, ...], work: Work
    ) -> None:
        self.call = call
        self.at = at
        self.ask = ask
        self.names = names
        self.work = work
        self.attempts = 0


class AskQueue:
    """Entries in order of arrival, for any number of workers.

    Attributes:
        most: the most entries to take at a time.
    """

    def __init__(self) -> None:
        self.most = MAX_BATCH
        self._waiting: list[QueuedAsk] = []
        self._busy: set[str] = set()
        self._wake = asyncio.Event()
        self._takers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, entries: Sequence[QueuedAsk]) -> None:
        """Add entries to the end.

        Raises:
            StoreUnavailable: too many wait already.
        """
        if len(self._waiting) + len(entries) > MAX_WAITING and self._waiting:
            raise StoreUnavailable("too many calls are unanswered", "backlog")
        self._waiting += entries
        self._wake.set()

    def put_back(self, entries: Sequence[QueuedAsk]) -> None:
        """Return entries that were taken and not done to the front; their keys are freed later."""
        self._waiting[:0] = entries

    async def take(self, within_s: float) -> list[QueuedAsk]:
        """Wait for entries whose keys are free and take them; return none if none come in time."""
        self._takers += 1
        try:
            async with asyncio.timeout(within_s):
                while not (taken := self._take_now()):
                    self._wake.clear()
                    await self._wake.wait()
                return taken
        except TimeoutError:
            return []
        finally:
            self._takers -= 1

    def done(self, entries: Sequence[QueuedAsk]) -> None:
        """Free the keys of these entries."""
        for entry in entries:
            self._busy.difference_update(entry.names)
        self._wake.set()

    def fail(self, error: StoreError) -> None:
        """Fail everything that waits, since no connection is left."""
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            entry.call.fail(error)

    def _take_now(self) -> list[QueuedAsk]:
        # If another worker is idle, take half: the server works on one half while this process
        # works on the other.
        most = min(max(-(-len(self._waiting) // self._takers), MIN_SHARE), self.most)
        taken: list[QueuedAsk] = []
        left: list[QueuedAsk] = []
        blocked = set(self._busy)
        names: set[str] = set()
        for at, entry in enumerate(self._waiting):
            if len(taken) == most:
                left += self._waiting[at:]
                break
            if entry.call.future.done():
                continue
            if blocked.isdisjoint(entry.names):
                taken.append(entry)
                names.update(entry.names)
            else:
                # Those behind it must not overtake it at any of its keys.
                blocked.update(entry.names)
                left.append(entry)
        self._waiting = left
        self._busy |= names
        return taken


def is_late(entry: QueuedAsk, now_us: int) -> bool:
    """Return whether no request waits for the answer any more; if so, fail the call."""
    call = entry.call
    if call.not_after_us and now_us > call.not_after_us:
        call.fail(StoreTimeout("the store got to it after its deadline", "late"))
    return call.future.done()
