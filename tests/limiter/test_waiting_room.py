"""Waiting for a turn: in order, never early, and no turn is wasted when somebody leaves."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import closing
from itertools import combinations, pairwise
from operator import itemgetter
from typing import Any

import uvloop
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock, monotonic_us
from gateway.board.board import Board, Seat
from gateway.limiter.waiting_room import RELEASED_AT_ONCE, WaitingRoom
from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore
from tests.virtual_time import clock, run

SECOND_US = 1_000_000
FOREVER_US = 2**62
TENTH = Limit(10, SECOND_US, 1, max_wait_us=1000 * SECOND_US, scope="p/ip")
"""Ten in a second, one at a time."""
LATE_US = 2_000
"""How late a turn may be noticed: the loop's timers count milliseconds."""


class Queue:
    """A store, a waiting room, and those who came."""

    def __init__(self, capacity: int = 1000, seat: Seat | None = None) -> None:
        self.store = MemoryStore(clock=clock())
        self.room = WaitingRoom(capacity, seat)
        self.served: list[tuple[int, int]] = []  # who, when
        self.left: list[tuple[Ask, Verdict]] = []
        self.leaving: set[int] = set()
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def come(
        self, who: int, *, limits: tuple[Limit, ...] = (TENTH,), key: str = "k", cost: int = 1
    ) -> Verdict:
        """Ask, and begin to wait if that is the answer."""
        ask = Ask(limits, (key,) * len(limits), cost, FOREVER_US)
        verdict = self.store.decide_now(ask)
        assert verdict.allowed
        self.tasks[who] = asyncio.create_task(self._wait(who, ask, verdict))
        return verdict

    async def _wait(self, who: int, ask: Ask, verdict: Verdict) -> None:
        if verdict.wait_us:
            await self.room.wait(
                *(ask, verdict, self._give_back), has_left=lambda: who in self.leaving
            )
        self.served.append((who, clock()()))

    def _give_back(self, ask: Ask, verdict: Verdict) -> None:
        self.left.append((ask, verdict))
        self.store.give_back_now(ask, verdict)

    async def leave(self, who: int) -> bool:
        """Stop waiting; false if it was too late."""
        self.tasks[who].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[who]
        return self.tasks[who].cancelled()

    async def end(self) -> None:
        """Wait until everybody who stayed is served; nothing is left then."""
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert len(self.room) == 0
        assert "0 queues" in repr(self.room)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 120),  # milliseconds that pass
        st.one_of(st.just(None), st.integers(0, 30)),  # somebody comes, or this one leaves
    ),
    max_size=40,
)


@given(EVENTS, st.integers(1, 4))
@example([(0, None)] * 6 + [(50, 2), (10, 1), (0, None), (0, 5)], 1)
@settings(max_examples=200)
def test_turns_are_in_order_never_early_and_never_wasted(
    events: list[tuple[int, int | None]], burst: int
) -> None:
    """With any arrivals and departures, the rest are served as if the others had not come."""

    async def story() -> None:
        limit = Limit(10, SECOND_US, burst, max_wait_us=1000 * SECOND_US, scope="p/ip")
        queue = Queue()
        came: dict[int, int] = {}
        is_exact = True
        for passed_ms, leaves in events:
            await asyncio.sleep(passed_ms / 1000)
            if leaves is None:
                came[len(queue.tasks)] = clock()()
                queue.come(len(queue.tasks), limits=(limit,))
                await asyncio.sleep(0)
            elif leaves in queue.tasks and not queue.tasks[leaves].done():
                # Between the turn and its notice, what is left over cannot be sold again.
                is_exact = is_exact and not any(
                    inner.next_us is not None and inner.next_us <= clock()()
                    for inner in queue.room._queues.values()
                )
                if await queue.leave(leaves):
                    del came[leaves]
        await queue.end()
        order = [who for who, _ in queue.served]
        assert order == sorted(came)
        times = [when for _, when in queue.served]
        for first, last in combinations(range(len(times)), 2):
            passed_us = times[last] - times[first] + LATE_US
            assert last - first + 1 <= burst + passed_us * 1000 // limit.interval_ns
        here = queue.store.decide_now(Ask((limit,), ("k",), 0, 0)).decisions[0]
        assert not here.allowed or here.reset_us >= without_the_others(limit, came)
        if is_exact:
            assert here.reset_us == without_the_others(limit, came)

    def without_the_others(limit: Limit, came: dict[int, int]) -> int:
        alone = ManualClock()
        store = MemoryStore(clock=alone)
        for when in came.values():
            alone.now_us = when
            store.decide_now(Ask((limit,), ("k",), 1, FOREVER_US))
        alone.now_us = clock()()
        return store.decide_now(Ask((limit,), ("k",), 0, 0)).decisions[0].reset_us

    run(story())


def test_nobody_goes_before_his_turn() -> None:
    """Each is let go at the promised moment or up to a millisecond after it."""

    async def story() -> None:
        queue = Queue()
        start = clock()()
        promised = [queue.come(number).wait_us for number in range(5)]
        await queue.end()
        assert promised == [0, 100_000, 200_000, 300_000, 400_000]
        for (_, when), wait_us in zip(queue.served, promised, strict=True):
            assert 0 <= when - start - wait_us <= LATE_US

    run(story())


def test_answers_of_a_store_may_overtake_each_other() -> None:
    """The turn counts, not the moment at which the wait began."""

    async def story() -> None:
        queue = Queue()
        ask = Ask((TENTH,), ("k",), 1, FOREVER_US)
        verdicts = [queue.store.decide_now(ask) for _ in range(4)]
        tasks = [
            asyncio.create_task(queue._wait(number, ask, verdicts[number])) for number in (3, 1, 2)
        ]
        await asyncio.gather(*tasks)
        assert [who for who, _ in queue.served] == [1, 2, 3]

    run(story())


def test_keys_wait_apart() -> None:
    """A long queue of one key delays no request of another."""

    async def story() -> None:
        queue = Queue()
        for number in range(10):
            queue.come(number, key="crowd")
        queue.come(10, key="k")
        queue.come(11, key="k")
        await queue.end()
        order = [who for who, _ in queue.served]
        assert order.index(11) < order.index(2)

    run(story())


def test_the_room_is_bounded() -> None:
    """In total and per key; a place becomes free when a request is served or leaves."""

    async def story() -> None:
        queue = Queue(capacity=3)
        ask, other = (Ask((TENTH,), (key,), 1, FOREVER_US) for key in "ko")
        verdict = queue.store.decide_now(other)
        for number in range(3):  # the first passes at once
            queue.come(number)
        await asyncio.sleep(0)
        waiting = queue.store.decide_now(ask)
        assert queue.room.has_room(ask, waiting, queue_max=3)
        assert not queue.room.has_room(ask, waiting, queue_max=2)
        assert queue.room.has_room(other, verdict, queue_max=1)
        queue.come(3)
        await asyncio.sleep(0)
        assert repr(queue.room) == "<WaitingRoom 3 of 3, 1 queues>"
        assert not queue.room.has_room(other, verdict, queue_max=1)
        assert await queue.leave(3)
        assert queue.room.has_room(other, verdict, queue_max=1)
        await queue.end()

    run(story())


def test_the_rooms_of_all_workers_are_bounded_together() -> None:
    """In all and for one key; who leaves or is served makes room in every worker."""

    async def story(board: Board) -> None:
        queues = [Queue(4, board.seat(board.take())) for _ in range(3)]
        first, second, third = queues
        ask = Ask((TENTH,), ("k",), 1, FOREVER_US)
        other = ask._replace(keys=("other",))
        for queue in (first, second):
            queue.store.decide_now(ask)
        third.store.decide_now(ask._replace(keys=("else",)))
        for queue in (first, second):
            queue.come(1)
        third.come(1, key="else")
        third.come(2, key="else")
        await asyncio.sleep(0)
        waiting = first.store.decide_now(ask)
        for queue in queues:
            assert queue.room.has_room(ask, waiting, queue_max=3) is False, "four wait in all"
            queue.room.reconfigure(5)
            assert queue.room.has_room(ask, waiting, queue_max=3)
            assert not queue.room.has_room(ask, waiting, queue_max=2)
            assert queue.room.has_room(other, waiting, queue_max=1)
        assert await first.leave(1)
        assert third.room.has_room(ask, waiting, queue_max=2)
        await second.end()
        assert third.room.has_room(ask, waiting, queue_max=1)
        first.room.reconfigure(1)
        assert not first.room.has_room(ask, waiting, queue_max=1)
        await third.end()
        assert first.room.has_room(ask, waiting, queue_max=1)

    with closing(Board(2)) as board:
        run(story(board))


def test_who_leaves_hands_his_turn_to_the_next() -> None:
    """All behind it move up by one, and the last turn is given back."""

    async def story() -> None:
        queue = Queue()
        verdicts = [queue.come(number) for number in range(4)]
        start = clock()()
        await asyncio.sleep(0)
        assert await queue.leave(1)
        (left,) = queue.left
        assert left[1].decisions[0].receipt == verdicts[3].decisions[0].receipt
        await queue.end()
        waits = [(when - start) // 100_000 for _, when in queue.served]
        assert waits == [0, 1, 2]
        # The turn that was given back is sold again.
        assert queue.come(4).wait_us <= 100_000
        await queue.end()

    run(story())


def test_nobody_takes_over_a_turn_that_costs_something_else() -> None:
    """Two tokens and one are different turns: those behind keep theirs."""

    async def story() -> None:
        queue = Queue()
        limit = Limit(10, SECOND_US, 2, max_wait_us=1000 * SECOND_US, scope="p/ip")
        start = clock()()
        for number, cost in enumerate((2, 1, 2, 1)):
            queue.come(number, limits=(limit,), cost=cost)
        await asyncio.sleep(0)
        assert await queue.leave(1)
        await queue.end()
        assert [who for who, _ in queue.served] == [0, 2, 3]
        assert [(when - start) // 100_000 for _, when in queue.served] == [0, 3, 4]

    run(story())


def test_nobody_moves_up_past_another_limit_of_his() -> None:
    """A turn may come earlier for one limit, but never before that of the second."""

    async def story() -> None:
        queue = Queue()
        second = Limit(10, 2 * SECOND_US, 1, max_wait_us=1000 * SECOND_US, scope="second")
        start = clock()()
        for number in range(3):
            queue.come(number)
        # This one owes the second limit 200 ms, and the first 300 ms.
        queue.store.decide_now(Ask((second,), ("k",), 1, 0))
        queue.come(3, limits=(TENTH, second))
        queue.come(4)
        await asyncio.sleep(0)
        assert await queue.leave(1)
        await queue.end()
        waits = {who: (when - start) // 100_000 for who, when in queue.served}
        assert waits[2] == 1
        assert waits[3] == 2
        assert await_all(queue) == [0, 2, 3, 4]

    def await_all(queue: Queue) -> list[int]:
        return [who for who, _ in queue.served]

    run(story())


def test_a_turn_that_comes_for_one_who_is_about_to_leave_is_for_the_next() -> None:
    """Between the leaving and the end of what waits, nothing is wasted."""

    async def story() -> None:
        queue = Queue()
        start = clock()()
        for number in range(4):
            queue.come(number)
        await asyncio.sleep(0)
        queue.leaving = {1}
        await asyncio.sleep(0.12)
        assert await queue.leave(1)
        await queue.end()
        assert [(who, (when - start) // 100_000) for who, when in queue.served] == [
            (0, 0),
            (2, 1),
            (3, 2),
        ]
        assert len(queue.left) == 1

    run(story())


def test_a_window_that_begins_lets_its_crowd_go_in_portions() -> None:
    """Hundreds whose turns come in one moment go on in several turns of the loop, in order."""

    async def story() -> None:
        room = WaitingRoom(1000)
        ask = Ask((TENTH,), ("k",), 1, FOREVER_US)
        verdict = Verdict(True, 20_000, 0, (Decision(True, 20_000, 0, 1, 0, 0, 1),))
        order: list[int] = []

        async def wait(number: int) -> None:
            await room.wait(ask, verdict, lambda *_: None)
            order.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(300)]
        await asyncio.sleep(0.01)
        clock().advance(us=50_000)
        lengths = [len(room)]
        while len(room):
            # Time that passes only while nothing is to be done must not stand still for this.
            await asyncio.sleep(0.0001)
            lengths.append(len(room))
        await asyncio.gather(*tasks)
        assert lengths[0] == 300
        assert order == list(range(300))
        assert max(before - after for before, after in pairwise(lengths)) <= RELEASED_AT_ONCE

    run(story())


MIXED = st.lists(
    st.tuples(
        st.integers(0, 60),  # milliseconds that pass
        st.one_of(
            st.tuples(st.integers(1, 2), st.booleans()),  # a cost, a second limit
            st.integers(0, 40),  # who leaves
        ),
    ),
    max_size=60,
)


@given(MIXED)
@settings(max_examples=200)
def test_whoever_moves_up_keeps_to_all_his_limits(
    events: list[tuple[int, tuple[int, bool] | int]],
) -> None:
    """With costs and limits of all kinds, none is early for any limit, or later than promised."""

    async def story() -> None:
        first = Limit(10, SECOND_US, 2, max_wait_us=1000 * SECOND_US, scope="first")
        second = Limit(9, SECOND_US, 3, max_wait_us=1000 * SECOND_US, scope="second")
        queue = Queue()
        promised: dict[int, tuple[int, int, int, bool]] = {}
        for passed_ms, event in events:
            await asyncio.sleep(passed_ms / 1000)
            if isinstance(event, int):
                # Nobody leaves twice.
                if event in promised and await queue.leave(event):
                    promised.pop(event)
                continue
            cost, has_second = event
            who, now_us = len(queue.tasks), clock()()
            limits = (first, second) if has_second else (first,)
            verdict = queue.come(who, limits=limits, cost=cost)
            waits = [decision.wait_us for decision in verdict.decisions]
            earliest_us = now_us + min(waits) * (len(waits) > 1)
            promised[who] = earliest_us, now_us + verdict.wait_us, cost, has_second
            await asyncio.sleep(0)
        await queue.end()
        assert sorted(who for who, _ in queue.served) == sorted(promised)
        for who, when in queue.served:
            assert promised[who][0] <= when <= promised[who][1] + 2 * LATE_US
        for limit in (first, second):
            passed = [
                (when, promised[who][2])
                for who, when in sorted(queue.served, key=itemgetter(1))
                if limit is first or promised[who][3]
            ]
            for start, stop in combinations(range(len(passed)), 2):
                cost = sum(cost for _, cost in passed[start : stop + 1])
                passed_us = passed[stop][0] - passed[start][0] + 2 * LATE_US
                assert cost <= limit.burst + passed_us * 1000 // limit.interval_ns

    run(story())


def test_leaving_in_the_very_moment_of_the_turn() -> None:
    """The turn was used up by waiting for it; it is given back once, as far as that goes."""

    async def story() -> None:
        queue = Queue()
        queue.come(0)
        queue.come(1)
        await asyncio.sleep(0)
        ((name, inner),) = queue.room._queues.items()
        clock().advance(us=150_000)
        queue.room._release(name, inner)
        queue.tasks[1].cancel()
        await asyncio.gather(queue.tasks[1], return_exceptions=True)
        assert [who for who, _ in queue.served] == [0]
        assert len(queue.left) == 1
        assert len(queue.room) == 0
        await queue.end()

    run(story())


def test_leaving_before_waiting_has_begun() -> None:
    """Nothing is left behind in the room; the caller that asked the store undoes it."""

    async def story() -> None:
        queue = Queue()
        queue.come(0)
        queue.come(1)
        queue.tasks[1].cancel()
        await queue.end()
        assert queue.left == []

    run(story())


def test_everybody_leaves() -> None:
    """Then it is as if none had come, and no timer is left running."""

    async def story() -> None:
        queue = Queue()
        for number in range(20):
            queue.come(number)
        await asyncio.sleep(0.05)
        for number in (5, 19, 1, *(n for n in range(2, 19) if n != 5)):
            assert await queue.leave(number)
        await queue.end()
        look: Any = queue.store.decide_now(Ask((TENTH,), ("k",), 0, 0)).decisions[0]
        assert look.reset_us <= 100_000

    run(story())


def test_a_turn_is_not_early_by_part_of_a_millisecond_either() -> None:
    """The time of uvloop is whole milliseconds, rounded down: less than has passed, at a turn."""

    async def told() -> int:
        room = WaitingRoom(1000)
        ask = Ask((TENTH,), ("k",), 1, FOREVER_US)
        decision = Decision(True, 20_000, 0, 1, 0, 0, 1)

        async def wait() -> int:
            begin_us = monotonic_us()
            await room.wait(ask, Verdict(True, 20_000, 0, (decision,)), lambda *_: None)
            return monotonic_us() - begin_us

        waits = []
        for _ in range(400):
            waits.append(asyncio.create_task(wait()))
            come_us = monotonic_us()
            while monotonic_us() < come_us + 130:  # noqa: ASYNC110 - the loop is to run on
                await asyncio.sleep(0)
        return min(await asyncio.gather(*waits))

    assert uvloop.run(told()) >= 20_000
