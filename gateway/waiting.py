"""Requests that wait for their turn, first come, first served.

The store has reserved a turn for each; here they are held until it comes. Those with the
same key form one queue with one timer. Who leaves before his turn hands it to the next, that
one to the next, and so on; what is left over is the last turn, and that can be given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.limits.decision import Decision, Verdict
from gateway.stores.base import Ask

US = 1_000_000
GRAIN_US = 1000
"""uvloop's time is in whole milliseconds, rounded down: so much more may have passed of it when a
turn is reckoned from the present, which would come too early by that."""

_Name = tuple[str, str, bool]
"""Scope and key of the limit that makes wait, and whether the turns are of this gateway alone."""


class _Waiter:
    __slots__ = ("ask", "earliest_us", "future", "place", "turn_us", "verdict")

    def __init__(self, ask: Ask, verdict: Verdict, now_us: int) -> None:
        waits = [decision.wait_us for decision in verdict.decisions]
        self.ask = ask
        self.verdict = verdict
        self.place = waits.index(verdict.wait_us)
        self.turn_us = now_us + verdict.wait_us
        others = (wait for place, wait in enumerate(waits) if place != self.place)
        self.earliest_us = now_us + max(others, default=0)
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def swap_turns(self, other: _Waiter) -> None:
        """Exchange places in the queue, with all that the store knows of them."""
        mine = self.verdict.decisions[self.place]
        theirs = other.verdict.decisions[other.place]
        self.turn_us, other.turn_us = other.turn_us, self.turn_us
        self._replace_receipt(theirs)
        other._replace_receipt(mine)

    def _replace_receipt(self, source: Decision) -> None:
        decisions = list(self.verdict.decisions)
        decisions[self.place] = decisions[self.place]._replace(receipt=source.receipt)
        self.verdict = self.verdict._replace(decisions=tuple(decisions))


class _Queue:
    __slots__ = ("timer", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[_Waiter] = deque()
        self.timer: asyncio.TimerHandle | None = None


class WaitingRoom:
    """Holds requests until their turn.

    Args:
        capacity: how many may wait in all.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queues: dict[_Name, _Queue] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<WaitingRoom {self._count} of {self._capacity}, {len(self._queues)} queues>"

    def has_room(
        self, ask: Ask, verdict: Verdict, queue_max: int, *, is_alone: bool = False
    ) -> bool:
        """Whether one more may wait, in all and for the key that makes it wait."""
        if self._count >= self._capacity:
            return False
        queue = self._queues.get((*_name(ask, verdict), is_alone))
        return queue is None or len(queue.waiters) < queue_max

    async def wait(
        self,
        ask: Ask,
        verdict: Verdict,
        give_back: Callable[[Ask, Verdict], None],
        *,
        is_alone: bool = False,
    ) -> None:
        """Return when the turn has come, never before it.

        If the caller is cancelled, `give_back` is told which turn is left over. Turns that this
        gateway gave alone (`is_alone`) and those of the store are in queues of their own: one
        that changed hands between them would be given back to whom it did not come from.
        """
        name = (*_name(ask, verdict), is_alone)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue()
        waiter = _Waiter(ask, verdict, self._now_us() + GRAIN_US)
        self._insert(queue, waiter)
        self._count += 1
        if queue.waiters[0] is waiter:
            self._arm(name, queue)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter in queue.waiters:
                self._leave(name, queue, waiter)
            give_back(waiter.ask, waiter.verdict)
            raise
        finally:
            self._count -= 1

    @staticmethod
    def _insert(queue: _Queue, waiter: _Waiter) -> None:
        """Keep the queue in order of turns: answers of a store can overtake each other."""
        waiters = queue.waiters
        position = len(waiters)
        while position and waiters[position - 1].turn_us > waiter.turn_us:
            position -= 1
        waiters.insert(position, waiter)

    def _leave(self, name: _Name, queue: _Queue, waiter: _Waiter) -> None:
        """Take one out; everybody behind moves up by one turn, as far as that is possible."""
        position = queue.waiters.index(waiter)
        del queue.waiters[position]
        for follower in list(queue.waiters)[position:]:
            if follower.ask.cost != waiter.ask.cost or follower.earliest_us > waiter.turn_us:
                break
            waiter.swap_turns(follower)
        self._arm(name, queue)

    def _now_us(self) -> int:
        return int(self._loop.time() * US)

    def _arm(self, name: _Name, queue: _Queue) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if not queue.waiters:
            self._queues.pop(name, None)
            return
        delay = max(queue.waiters[0].turn_us - self._now_us(), 0) / US
        # The loop's timers count whole milliseconds and may be early by part of one.
        queue.timer = self._loop.call_later(delay + 0.0005, self._release, name, queue)

    def _release(self, name: _Name, queue: _Queue) -> None:
        queue.timer = None
        now_us = self._now_us()
        while queue.waiters and queue.waiters[0].turn_us <= now_us:
            waiter = queue.waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(None)
        self._arm(name, queue)


def _name(ask: Ask, verdict: Verdict) -> tuple[str, str]:
    """The queue that this request stands in: that of the limit with the longest wait."""
    for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
        if decision.wait_us == verdict.wait_us:
            return limit.scope, key
    raise AssertionError("a verdict waits as long as one of its decisions")
