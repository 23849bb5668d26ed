"""One gateway's decider in a process of its own: asks at random and notes what became of it.

    python -m tests.model.worker URL SEED ON_STORE_ERROR FILE

It says `ready` when its store is, asks until it is sent SIGTERM, sees through what is under way
and ends. What passes, waits, is given back, kept or cancelled is the dice's choice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from gateway.base.clock import monotonic_us, wall_us
from gateway.base.errors import StoreError
from gateway.library.asking import Asker
from gateway.limiter.decider import Decider, Outcome, slowest_rule
from gateway.limiter.lease_keeper import leases_of
from gateway.limiter.plan import UNBOUNDED_WAIT_US, Rule
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask
from gateway.stores.opening import open_store
from tests.limiter.local.bench import rule
from tests.model.history import (
    CANCELLED,
    PASSED,
    REFUSED,
    RETURNED,
    Asked,
    Kept,
    Span,
    line,
)
from tests.model.limits import GATEWAYS, LEASE_US, LIMITS, US, Question, draw

DEADLINE_US: Final = 500_000
MOST_AT_ONCE: Final = 40
TICK_S: Final = 0.005


class Lateness:
    """For how long this process has been kept from running: stopped, or waiting for a core."""

    def __init__(self) -> None:
        self._total_us = 0
        self._due_us = monotonic_us()
        self._tick()

    def _tick(self) -> None:
        # One look at the clock for both: between two of them this process may be stopped as well.
        now_us = monotonic_us()
        self._total_us += max(now_us - self._due_us, 0)
        self._due_us = now_us + round(TICK_S * US)
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def __call__(self) -> int:
        """Microseconds since the beginning."""
        return self._total_us + max(monotonic_us() - self._due_us, 0)


class Worker:
    """Asks at random.

    Args:
        decider: what is asked.
        on_store_error: of all policies.
        dice: the choices.
        note: where notes go.
    """

    def __init__(
        self,
        decider: Decider,
        on_store_error: str,
        dice: random.Random,
        note: Callable[[Asked | Kept], None],
    ) -> None:
        self._decider = decider
        self._asker = Asker(decider)
        self._dice = dice
        self._note = note
        self._rules = {
            scope: rule(limit, None, 20, on_store_error) for scope, limit in LIMITS.items()
        }
        self._late = Lateness()
        self._number = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Ask one question; the rest is a task."""
        self._number += 1
        task = asyncio.get_running_loop().create_task(self._ask(self._number, draw(self._dice)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if self._dice.random() < 0.08:
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.1), task.cancel)

    async def _ask(self, number: int, question: Question) -> None:
        limits, keys, cost = question
        rules: list[Rule] = [self._rules[limit.scope] for limit in limits]
        # In this order: what this process is stopped for in between counts for the longer bound.
        late, sent, wall = self._late(), monotonic_us(), wall_us()
        wall_after = wall
        outcome: Outcome | None = None
        received, kind = 0, CANCELLED
        try:
            outcome = await self._asker.decide(Ask(limits, keys, cost, UNBOUNDED_WAIT_US), rules)
            received, wall_after = monotonic_us(), wall_us()
            kind = REFUSED
            if outcome.verdict.allowed:
                kind = RETURNED
                if self._dice.random() < 0.1 and not outcome.verdict.wait_us:
                    self._asker.give_back(outcome)
                elif (await self._asker.settle(outcome)).verdict.allowed:
                    kind = PASSED
        except asyncio.CancelledError:
            # Of the dice's doing: an ask whose caller has left.
            if outcome is None:
                received = monotonic_us()
        ended = monotonic_us()
        waits, slowest, alone = (0,) * len(limits), 0, False
        if outcome is not None:
            alone = outcome.alone
            if outcome.verdict.allowed and outcome.verdict.decisions:
                waits = tuple(decision.wait_us for decision in outcome.verdict.decisions)
                slowest = list(outcome.rules).index(slowest_rule(outcome))
        names = tuple((limit.scope, key) for limit, key in zip(limits, keys, strict=True))
        late = self._late() - late
        self._note(
            Asked(
                *(number, sent, received, names, cost, kind, alone),
                *(waits, slowest, ended, late, Span(wall, wall_after)),
            )
        )
        if kind == PASSED and outcome is not None:
            await self._hold(number, outcome)

    async def _hold(self, number: int, outcome: Outcome) -> None:
        """Keep its lease for a while, if it has one."""
        leases = leases_of(outcome)
        if leases is None:
            return
        try:
            for _ in range(self._dice.choice((0, 0, 0, 1, 4))):
                await asyncio.sleep(LEASE_US / US / 3)
                sent = monotonic_us()
                try:
                    held = await self._decider.renew(leases)
                except StoreError:
                    # Nobody knows; it may be tried again.
                    continue
                self._note(Kept(number, sent, monotonic_us(), held, False))
            await asyncio.sleep(self._dice.uniform(0, 0.2))
        finally:
            now = monotonic_us()
            self._note(Kept(number, now, now, True, True))
            self._asker.give_back(leases)


async def _work(url: str, seed: int, on_store_error: str, file: Path) -> None:
    dice = random.Random(seed)
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    store = open_store(url, domain="model", deadline_us=DEADLINE_US)
    decider = Decider(
        store, deadline_us=DEADLINE_US, share=GATEWAYS, max_waiting=100, metrics=StoreMetrics()
    )
    await decider.start()
    while not store.is_ready and not ending.is_set():  # noqa: ASYNC110 - as in the other worker
        await asyncio.sleep(0.005)
    notes = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    worker = Worker(decider, on_store_error, dice, lambda note: _write(notes, note))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not ending.is_set():
        for _ in range(dice.choice((1, 1, 2, 8))):
            if len(worker.tasks) < MOST_AT_ONCE:
                worker.begin()
        await asyncio.sleep(dice.uniform(0, 0.06))
    # A decision that nobody ends would show here: the process would not end.
    while worker.tasks:
        await asyncio.wait(worker.tasks)
    await decider.aclose()
    os.close(notes)


def _write(file: int, note: Asked | Kept) -> None:
    os.write(file, line(note))


if __name__ == "__main__":
    _url, _seed, _on_store_error, _file = sys.argv[1:]
    uvloop.run(_work(_url, int(_seed), _on_store_error, Path(_file)))
