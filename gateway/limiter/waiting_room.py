"""Requests that wait for their turn, first come, first served.

The store has reserved a turn for each request; they are held here until it comes. Requests with
the same key form one queue with one timer. A request that leaves before its turn passes the turn to
the next one, which passes its own on, and so on. So only the last turn is left over, and that one
can be given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.base.clock import US
from gateway.base.refusal_log import Refusals
from gateway.board.board import WAITING, Seat
from gateway.board.table import Spot
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask

log = logging.getLogger(__name__)

GRAIN_US = 1000
"""uvloop's time is in whole milliseconds, rounded down. A turn computed from the current time could
be this much too early, so it is added."""

RELEASED_AT_ONCE: Final = 32
"""Requests released in one turn of the loop; thousands may be due when a window begins."""

_Name = tuple[str, str, bool]
"""The scope and key of the limit that causes the wait, and whether this gateway decides alone."""


class _Turn(NamedTuple):
    """A reservation of the store for one request of a queue.

    Attributes:
        at_us: when the turn comes, by the loop's time.
        receipt: identifies the turn to the store.
    """

    at_us: int
    receipt: int


class _Waiter:
    __slots__ = ("ask", "earliest_us", "future", "has_left", "place", "run", "turn", "verdict")

    def __init__(
        self, ask: Ask, verdict: Verdict, now_us: int, has_left: Callable[[], bool]
    ) -> None:
        waits = [decision.wait_us for decision in verdict.decisions]
        self.ask = ask
        self.has_left = has_left
        self.verdict = verdict
        self.place = waits.index(verdict.wait_us)
        receipt = verdict.decisions[self.place].receipt
        self.turn = _Turn(now_us + verdict.wait_us, receipt)
        others = (wait for place, wait in enumerate(waits) if place != self.place)
        self.earliest_us = now_us + max(others, default=0)
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run: _Run | None = None

    @property
    def left_over(self) -> Verdict:
        """The verdict as if the waiter's current turn had been its turn from the beginning."""
        decisions = list(self.verdict.decisions)
        decisions[self.place] = decisions[self.place]._replace(receipt=self.turn.receipt)
        return self.verdict._replace(decisions=tuple(decisions))


class _Run:
    """Neighbours in a queue whose turns are interchangeable.

    They cost the same, and no other limit delays any of them beyond the first of their turns. So
    turns are not tied to waiters: the first in line has the first turn, and when a waiter leaves,
    the turn left over is the last. That moves all waiters behind it up, whether they are ten or
    ten thousand.

    Attributes:
        cost: the cost of each.
        waiters: in order; as many as there are turns.
        turns: ascending.
        earliest_us: when the last of them may pass under their other limits.
        after: the run that follows.
        before: the run in front.
    """

    __slots__ = ("after", "before", "cost", "earliest_us", "turns", "waiters")

    def __init__(self, cost: int, before: _Run | None) -> None:
        self.cost = cost
        self.waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self.turns: deque[_Turn] = deque()
        self.earliest_us = 0
        self.before = before
        self.after: _Run | None = None


class _Queue:
    """The requests that wait for one key of one limit, in order, as runs of neighbours.

    No operation visits each waiter: an arrival or a departure costs the same in a long queue.

    Attributes:
        count: how many wait.
        timer: the timer of the first turn.
        rings_us: the turn that the timer was set for.
        spot: where other workers see how many wait; None if there are no others.
        shown: how many they see.
    """

    __slots__ = ("_first", "_last", "count", "rings_us", "shown", "spot", "timer")

    def __init__(self, spot: Spot | None) -> None:
        self.spot = spot
        self.shown = 0
        self._first: _Run | None = None
        self._last: _Run | None = None
        self.count = 0
        self.timer: asyncio.TimerHandle | None = None
        self.rings_us: int | None = None

    @property
    def next_us(self) -> int | None:
        """When the first turn comes; None if no request waits."""
        return None if self._first is None else self._first.turns[0].at_us

    def insert(self, waiter: _Waiter) -> None:
        """Insert a waiter by its turn: a store's answers can overtake each other."""
        overtaken = []
        while self._last is not None and self._last.turns[-1].at_us > waiter.turn.at_us:
            overtaken.append(self._pop_last(self._last))
        self._append(waiter)
        for behind in reversed(overtaken):
            self._append(behind)

    def pop(self) -> _Waiter | None:
        """Remove and return the first in line, who has the first turn; None if it has left."""
        run = self._first
        assert run is not None
        waiter = next(iter(run.waiters))
        if waiter.has_left():
            self.leave(waiter)
            return None
        del run.waiters[waiter]
        waiter.turn = run.turns.popleft()
        self._removed(waiter, run)
        return waiter

    def leave(self, waiter: _Waiter) -> None:
        """Remove a waiter; all behind it move up by one turn, as far as that is possible.

        The turn left over is assigned to the removed waiter.
        """
        run = waiter.run
        assert run is not None
        del run.waiters[waiter]
        left = run.turns.pop()
        follower = run.after
        while (
            follower is not None
            and follower.cost == run.cost
            and follower.earliest_us <= left.at_us
        ):
            # This ends soon: a run was begun because the first turn of the one in front was too
            # early for it. So it never receives more turns than that one had then.
            follower.turns.appendleft(left)
            left = follower.turns.pop()
            follower = follower.after
        waiter.turn = left
        self._removed(waiter, run)

    def _append(self, waiter: _Waiter) -> None:
        cost = waiter.ask.each_cost[waiter.place]
        run = self._last
        if run is None or run.cost != cost or waiter.earliest_us > run.turns[0].at_us:
            run = _Run(cost, run)
            if run.before is None:
                self._first = run
            else:
                run.before.after = run
            self._last = run
        run.waiters[waiter] = None
        run.turns.append(waiter.turn)
        run.earliest_us = max(run.earliest_us, waiter.earliest_us)
        waiter.run = run
        self.count += 1

    def _pop_last(self, run: _Run) -> _Waiter:
        waiter, _ = run.waiters.popitem()
        waiter.turn = run.turns.pop()
        self._removed(waiter, run)
        return waiter

    def _removed(self, waiter: _Waiter, run: _Run) -> None:
        waiter.run = None
        self.count -= 1
        if run.waiters:
            return
        if run.before is None:
            self._first = run.after
        else:
            run.before.after = run.after
        if run.after is None:
            self._last = run.before
        else:
            run.after.before = run.before


class WaitingRoom:
    """Holds requests until their turn.

    Args:
        capacity: how many requests may wait in total.
        seat: the place of this worker among several; None if it is the only one.
    """

    def __init__(self, capacity: int, seat: Seat | None = None) -> None:
        self._seat = seat
        self._queues: dict[_Name, _Queue] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._capacity = capacity
        self._refusals = self._count_refusals()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<WaitingRoom {self._count} of {self._capacity}, {len(self._queues)} queues>"

    def _count_refusals(self) -> Refusals:
        reason = f"max_waiting ({self._capacity}) is reached"
        return Refusals(log, f"requests that would wait are refused: {reason}")

    def reconfigure(self, capacity: int) -> None:
        """Let another number of requests wait; those that wait already keep their turns."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._refusals.stop()
            self._refusals = self._count_refusals()

    def has_room(
        self, ask: Ask, verdict: Verdict, queue_max: int, *, is_alone: bool = False
    ) -> bool:
        """Return whether one more may wait, in total and for the key that causes the wait."""
        seat = self._seat
        count = self._count if seat is None else seat.total(WAITING)
        if count >= self._capacity:
            self._refusals.note()
            return False
        name = (*_name(ask, verdict), is_alone)
        queue = self._queues.get(name)
        count = 0 if queue is None else queue.count
        if seat is not None and count < queue_max:
            spot = queue.spot if queue is not None else None
            count += sum(seat.others(spot or _spot(seat, name)))
        return count < queue_max

    async def wait(
        self,
        ask: Ask,
        verdict: Verdict,
        give_back: Callable[[Ask, Verdict], None],
        *,
        is_alone: bool = False,
        has_left: Callable[[], bool] = lambda: False,
    ) -> None:
        """Return when the turn has come, never before it.

        If the caller is cancelled, `give_back` receives the turn that is left over. Turns that this
        gateway reserved alone (`is_alone`) and turns of the store have separate queues: a turn that
        moved between them would be given back to the wrong one. `has_left` returns whether the
        caller is about to be cancelled.
        """
        name = (*_name(ask, verdict), is_alone)
        queue = self._queues.get(name)
        if queue is None:
            spot = None if self._seat is None else _spot(self._seat, name)
            queue = self._queues[name] = _Queue(spot)
        waiter = _Waiter(ask, verdict, self._now_us() + GRAIN_US, has_left)
        queue.insert(waiter)
        self._count += 1
        if self._seat is not None:
            self._seat.add(WAITING, 1)
            _show(self._seat, queue)
        self._arm(name, queue)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.run is not None:
                queue.leave(waiter)
                if self._seat is not None:
                    _show(self._seat, queue)
                self._arm(name, queue)
            give_back(waiter.ask, waiter.left_over)
            raise
        finally:
            self._count -= 1
            if self._seat is not None:
                self._seat.add(WAITING, -1)

    def close(self) -> None:
        """Admit no more requests to the queues."""
        self._refusals.stop()

    def _now_us(self) -> int:
        return int(self._loop.time() * US)

    def _arm(self, name: _Name, queue: _Queue) -> None:
        """Set the timer to the first turn."""
        next_us = queue.next_us
        if next_us == queue.rings_us:
            return
        queue.rings_us = next_us
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if next_us is None:
            self._queues.pop(name, None)
            return
        delay = max(next_us - self._now_us(), 0) / US
        # The loop's timers count whole milliseconds and may fire early by part of one.
        queue.timer = self._loop.call_later(delay + 0.0005, self._release, name, queue)

    def _release(self, name: _Name, queue: _Queue) -> None:
        queue.timer = None
        queue.rings_us = None
        now_us = self._now_us()
        for _ in range(RELEASED_AT_ONCE):
            if queue.next_us is None or queue.next_us > now_us:
                break
            waiter = queue.pop()
            if waiter is not None and not waiter.future.done():
                waiter.future.set_result(None)
        if self._seat is not None:
            _show(self._seat, queue)
        if queue.next_us is None:
            self._queues.pop(name, None)
        else:
            self._arm(name, queue)


def _spot(seat: Seat, name: _Name) -> Spot:
    """Return where workers count the requests of a queue."""
    return seat.spot(f"queue {name}")


def _show(seat: Seat, queue: _Queue) -> None:
    """Let other workers see how many requests a queue has."""
    change, queue.shown = queue.count - queue.shown, queue.count
    if change and queue.spot is not None:
        seat.add_to(queue.spot, change)


def _name(ask: Ask, verdict: Verdict) -> tuple[str, str]:
    """Return the name of the queue of this request: that of the limit with the longest wait."""
    for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
        if decision.wait_us == verdict.wait_us:
            return limit.scope, key
    raise AssertionError("a verdict waits as long as one of its decisions")
