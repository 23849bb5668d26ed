"""A store that follows a script: for this project's tests and yours.

Written to the interface like any other store, so that its callers see no difference. Each call
of `decide` takes the next step of the script, each call of `give_back` or `renew` the next of
its own; after the last step, every ask is answered by a `MemoryStore` on the same clock.

>>> store = ScriptedStore()
>>> store.then(Fail(StoreUnavailable("refused")))      # the first call fails
>>> store.then(Delay(0.5))                             # the second is answered late
>>> store.asked                                        # what has been asked, batch by batch
[]
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.base.clock import Clock, monotonic_us
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """Answer a batch with these verdicts, whether or not they fit the asks."""

    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ScriptedDelay:
    """Wait this long, then do the next step; by default, decide as usual."""

    seconds: float
    then: ScriptedAnswer | Fail | None = None


@dataclass(frozen=True, slots=True)
class ScriptedHold:
    """Wait until the event is set, then decide as usual."""

    until: asyncio.Event


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """Call this (for example to block the loop), then decide as usual."""

    function: Callable[[], None]


Step = ScriptedAnswer | Fail | ScriptedDelay | ScriptedHold | ScriptedCall


class ScriptedStore:
    """A `Store` with a script.

    Args:
        clock: the time of decisions that are not scripted.

    Attributes:
        asked: the batches received, in order, including those that failed.
        given_back: the undone decisions, in order, including failed ones.
        is_ready: returned by the store's `is_ready`; True by default.
        gateways: returned by the store's `gateways`; 1 by default.
        is_started, is_closed: whether `start` and `aclose` have been called.
        cancelled: how many calls of `decide` were cancelled by the caller.
    """

    def __init__(self, clock: Clock = monotonic_us) -> None:
        self.asked: list[tuple[Ask, ...]] = []
        self.given_back: list[tuple[Ask, Verdict]] = []
        self.is_ready = True
        self.gateways = 1
        self.is_started = False
        self.is_closed = False
        self.cancelled = 0
        self.counts_debits = True
        self._counts = MemoryStore(clock=clock)
        self._steps: deque[Step] = deque()
        self._give_back_steps: deque[Step] = deque()
        self._renew_steps: deque[Step] = deque()

    def __repr__(self) -> str:
        return f"<ScriptedStore {len(self.asked)} batches asked, {len(self._steps)} steps left>"

    def then(self, *steps: Step) -> None:
        """Add steps for the next calls of `decide`, one each."""
        self._steps.extend(steps)

    def then_give_back(self, *steps: Step) -> None:
        """Add steps for the next calls of `give_back`, one each."""
        self._give_back_steps.extend(steps)

    def then_renew(self, *steps: Step) -> None:
        """Add steps for the next calls of `renew`, one each."""
        self._renew_steps.extend(steps)

    async def start(self) -> None:
        """Do nothing: there is nothing to connect to."""
        self.is_started = True

    async def aclose(self) -> None:
        """Forget everything."""
        self.is_closed = True
        await self._counts.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Do the next step of the script."""
        self.asked.append(tuple(asks))
        step = self._steps.popleft() if self._steps else None
        try:
            verdicts = await _perform(step)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await self._counts.decide(asks) if verdicts is None else verdicts

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Do the next step of its script."""
        self.given_back.append((ask, verdict))
        step = self._give_back_steps.popleft() if self._give_back_steps else None
        await _perform(step)
        await self._counts.give_back(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Do the next step of its script."""
        step = self._renew_steps.popleft() if self._renew_steps else None
        await _perform(step)
        return await self._counts.renew(ask, verdict)


async def _perform(step: Step | None) -> Sequence[Verdict] | None:
    """Do one step; return the verdicts that it names, or None to decide as usual."""
    if isinstance(step, ScriptedDelay):
        await asyncio.sleep(step.seconds)
        step = step.then
    if isinstance(step, ScriptedHold):
        await step.until.wait()
    if isinstance(step, ScriptedCall):
        step.function()
    if isinstance(step, Fail):
        raise step.error
    return step.verdicts if isinstance(step, ScriptedAnswer) else None
