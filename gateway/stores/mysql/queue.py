"""What waits to be decided by a transaction, and which of it may travel together.

While one transaction is being flushed to disk, whatever comes in gathers for the next, so the
batches grow with the load. Two transactions of this gateway never want the same row: what needs
a key that is under way waits here, where it holds no connection and delays no other key. Asks
for one key stay in order.
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
"""Changes the states of an ask's keys at a time of the server, and answers."""

MAX_BATCH: Final = 256
"""Asks of one transaction; more would only hold locks for longer."""
MIN_SHARE: Final = 16
"""Fewer are not worth a second transaction."""
MAX_WAITING: Final = 16_384
"""Asks that wait; more would only pile up memory and be too late."""


class QueuedCall:
    """One call of the store: its asks, and the future that its caller waits for."""

    __slots__ = ("_left", "answers", "future", "not_after_us")

    def __init__(self, size: int, not_after_us: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers: list[Any] = [None] * size
        self.not_after_us = not_after_us
        self._left = size

    def answer(self, at: int, answer: Answer) -> None:
        """One of its entries was done."""
        self.answers[at] = answer
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: StoreError) -> None:
        """It cannot be answered as a whole; what is left of it need not be asked."""
        if not self.future.done():
            # A new one each time: an exception raised twice would grow its traceback.
            self.future.set_exception(type(error)(str(error), error.reason))


class QueuedAsk:
    """One ask of a call, and what is to be done with it.

    Attributes:
        call, at: whose it is, and the place of its answer there.
        ask: the ask.
        names: the rows of its keys, one for each limit.
        work: what is done while the rows are locked.
        attempts: how many transactions it was part of that came to nothing.
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
    """Entries in the order of asking, for any number of workers.

    Attributes:
        most: so many are taken at a time.
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
        """Add to the end.

        Raises:
            StoreUnavailable: too many wait already.
        """
        if len(self._waiting) + len(entries) > MAX_WAITING and self._waiting:
            raise StoreUnavailable("too many calls are unanswered", "backlog")
        self._waiting += entries
        self._wake.set()

    def put_back(self, entries: Sequence[QueuedAsk]) -> None:
        """Return what was taken and not done, to the front; its keys are yet to be freed."""
        self._waiting[:0] = entries

    async def take(self, within_s: float) -> list[QueuedAsk]:
        """Wait for entries whose keys are free and take them; none if none come in time."""
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
        """The keys of these are free again."""
        for entry in entries:
            self._busy.difference_update(entry.names)
        self._wake.set()

    def fail(self, error: StoreError) -> None:
        """No connection is left for what waits."""
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            entry.call.fail(error)

    def _take_now(self) -> list[QueuedAsk]:
        # With a free hand beside this one, it takes half: the server works on one half while
        # this process works on the other.
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
    """Whether no request waits for the answer any more; if so, its call fails."""
    call = entry.call
    if call.not_after_us and now_us > call.not_after_us:
        call.fail(StoreTimeout("the store got to it after its deadline", "late"))
    return call.future.done()
