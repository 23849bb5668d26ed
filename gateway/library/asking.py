"""Queries an open store: for an immediate decision, a turn in a queue, or one in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.base.clock import US
from gateway.library.lines import CallerDeadline, CallerLines
from gateway.library.questions import LimitQuestion
from gateway.library.slots import Slot
from gateway.limiter.decider import (
    Decider,
    Outcome,
    Pending,
    refusing_rule,
    slowest_rule,
)
from gateway.limiter.outcome import without_queue
from gateway.limiter.plan import Rule
from gateway.limits.decision import NEVER
from gateway.stores.base import Ask

TIMER_SLACK_US: Final = 500
"""Timers of the loop may fire early by part of a millisecond, and asking twice is expensive."""
LOOK_US: Final = 50_000
"""How often to check for a free slot: a release by another process sends no notification."""


class OverridesReader(Protocol):
    """Keeps the overrides by key up to date in the background."""

    async def start(self) -> None:
        """Start."""

    async def aclose(self) -> None:
        """Stop."""


class Asker:
    """The state of an open limiter.

    Args:
        decider: decides with the store; started and closed with this object.
        reader: keeps the overrides by key up to date, likewise; None if there are none.
    """

    def __init__(self, decider: Decider, reader: OverridesReader | None = None) -> None:
        self._decider = decider
        self._reader = reader
        self._lines = CallerLines()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_ready(self) -> bool:
        """Whether the store would probably reply now."""
        return self._decider.is_ready

    def is_in_this_loop(self) -> bool:
        """Return whether it was opened in the running loop; False if its own loop has ended.

        Raises:
            RuntimeError: it belongs to another loop that is still running.
        """
        if asyncio.get_running_loop() is self._loop:
            return True
        if self._loop.is_closed():
            return False
        raise RuntimeError("the limiter was opened in another event loop, and can be used there")

    async def start(self) -> None:
        """Connect to the store in the background."""
        await self._decider.start()
        if self._reader is not None:
            await self._reader.start()

    async def aclose(self) -> None:
        """Close the store; callers that wait in a line get an error instead of a turn."""
        self._is_closed = True
        self._lines.wake()
        if self._reader is not None:
            await self._reader.aclose()
        await self._decider.aclose()

    async def decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome:
        """Ask the store for a decision that the caller must settle."""
        outcome = self.begin(ask, rules)
        return outcome if isinstance(outcome, Outcome) else await outcome

    def begin(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        """Likewise, for callers that await a decision that is not immediate."""
        if asyncio.get_running_loop() is not self._loop and not self.is_in_this_loop():
            raise RuntimeError("the event loop of the limiter has ended: open it again")
        outcome = self._decider.decide(ask, rules)
        if isinstance(outcome, Pending):
            outcome.undo = self.give_back
        return outcome

    async def settle(self, outcome: Outcome) -> Outcome:
        """Wait for the turn, if there is one, and count the result.

        Returns a refusal if there is no room to wait in.
        """
        if outcome.verdict.wait_us:
            return await self._wait_turn(outcome)
        if outcome.ask.cost:
            count(outcome)
        return outcome

    async def wait(
        self, question: LimitQuestion, key: str, cost: int, max_wait: float | None
    ) -> Outcome:
        """Wait as described in `Limiter.wait`; returns a refusal if there is no turn in time."""
        patience = CallerDeadline(max_wait)
        if question.has_queue or not patience.microseconds:
            ask = question.ask(key, cost, patience.microseconds)
            return await self.settle(await self.decide(*ask))
        return await self._wait_in_line(question, key, cost, patience)

    def holding(self, outcome: Outcome) -> Slot:
        """Hold the slots of an outcome, if any, within an `async with`."""
        return Slot(self._decider, outcome, self._lines.wake)

    def give_back(self, outcome: Outcome) -> None:
        """Undo an outcome, as far as it was admitted."""
        if outcome.verdict.allowed:
            self._decider.give_back(outcome)
            self._lines.wake()

    async def _wait_turn(self, outcome: Outcome) -> Outcome:
        policy = slowest_rule(outcome).policy
        if not self._decider.may_wait(outcome):
            self._decider.give_back(outcome)
            refused = outcome._replace(verdict=without_queue(outcome.verdict))
            count(refused)
            return refused
        policy.metrics.waiting += 1
        try:
            await self._decider.wait_turn(outcome)
        finally:
            policy.metrics.waiting -= 1
        policy.metrics.delayed += 1
        policy.metrics.wait_us += outcome.verdict.wait_us
        return outcome

    async def _wait_in_line(
        self, question: LimitQuestion, key: str, cost: int, patience: CallerDeadline
    ) -> Outcome:
        """Wait for policies of which at least one has no queue."""
        name = (question, key)
        try:
            async with asyncio.timeout_at(patience.due), self._lines.wait_in_line(name):
                while True:
                    if self._is_closed:
                        raise RuntimeError("the limiter was closed")
                    ask = question.ask(key, cost, patience.microseconds)
                    outcome = await self.decide(*ask)
                    if not _may_ask_again(outcome):
                        break
                    pause_us = outcome.verdict.retry_after_us + TIMER_SLACK_US
                    if question.has_leases:
                        pause_us = min(pause_us, LOOK_US)
                    elif pause_us > patience.microseconds:
                        break
                    await self._lines.pause(name, pause_us / US)
        except TimeoutError:
            # A caller that never reached the front gets the latest refusal.
            outcome = await self.decide(*question.ask(key, cost, 0))
        return await self.settle(outcome)


def count(outcome: Outcome) -> None:
    """Count the result of a request that does not wait, in the counters of its policies."""
    if outcome.closed_by is not None:
        outcome.closed_by.metrics.store_error_refused += 1
    elif not outcome.verdict.allowed:
        refusing_rule(outcome).policy.metrics.refused += 1
    elif len(outcome.rules) == 1 and not outcome.alone:
        outcome.rules[0].policy.metrics.passed += 1
    else:
        for policy in dict.fromkeys(rule.policy for rule in outcome.rules):
            if outcome.alone:
                policy.metrics.store_error_passed += 1
            else:
                policy.metrics.passed += 1


def _may_ask_again(outcome: Outcome) -> bool:
    """Return whether it is a refusal that passes with time, other than that of a full queue."""
    verdict = outcome.verdict
    if verdict.allowed or outcome.closed_by is not None or verdict.retry_after_us == NEVER:
        return False
    return not any(
        rule.limit.max_wait_us
        for rule, decision in zip(outcome.rules, verdict.decisions, strict=True)
        if not decision.allowed
    )
