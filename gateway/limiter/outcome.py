"""The decision on one request, and one that a store has yet to make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, NamedTuple

from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask


class Outcome(NamedTuple):
    """The decision on one request.

    Attributes:
        verdict: the verdict, of the store or of this gateway alone.
        rules: the rules of the verdict's decisions, in the same order.
        closed_by: the policy that refuses everything while the store is unavailable, if one did.
        alone: whether this gateway decided alone because the store could not be asked.
        ask: the ask, for giving it back.
        near: the positions of the decisions that were made in this gateway.
        trials: what policies that are not enforced would have done, as `POLICY=DECISION`; it grows
            as their decisions arrive.
    """

    verdict: Verdict
    rules: Sequence[Rule]
    closed_by: CompiledPolicy | None
    alone: bool
    ask: Ask
    near: tuple[int, ...] = ()
    trials: Sequence[str] = ()


class Pending:
    """An ask that the store has yet to answer: await it, or pass a callback to `then`.

    Attributes:
        ask, rules: as given to `Decider.decide`.
        shard: the part of the store that decides; None if the store is not sharded.
        is_abandoned: no request waits any more; what was taken is given back.
        undo: called with the outcome if the awaiting task is cancelled in the same turn of the
            loop in which it arrives.
        trials: as in `Outcome`; None if every policy is enforced.
    """

    __slots__ = (
        "_awaited",
        "_done",
        "_outcome",
        "ask",
        "is_abandoned",
        "rules",
        "shard",
        "trials",
        "undo",
    )

    def __init__(self, ask: Ask, rules: Sequence[Rule]) -> None:
        self.ask = ask
        self.rules = rules
        self.shard: Hashable = None
        self.is_abandoned = False
        self.undo: Callable[[Outcome], None] | None = None
        self.trials: Sequence[str] | None = None
        self._outcome: Outcome | None = None
        self._done: Callable[[Outcome], None] | None = None
        self._awaited: asyncio.Future[None] | None = None

    def then(self, done: Callable[[Outcome], None]) -> None:
        """Call `done` once with the outcome."""
        if self._outcome is not None:
            done(self._outcome)
        else:
            self._done = done

    def abandon(self) -> None:
        """Stop waiting."""
        self.is_abandoned = True
        self._done = None

    def _give_up(self) -> None:
        if self._outcome is not None and self.undo is not None:
            self.undo(self._outcome)
        self.abandon()

    def resolve(self, outcome: Outcome) -> None:
        """Set the outcome."""
        if self.trials is not None:
            outcome = outcome._replace(trials=self.trials)
        self._outcome = outcome
        awaited = self._awaited
        if awaited is not None:
            if not awaited.done():
                awaited.set_result(None)
        elif self._done is not None:
            self._done(outcome)

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Set and return the outcome that applies if the store does not answer, if there is one."""
        self.resolve(decide_alone(self))
        return self._outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        if self._outcome is None:
            self._awaited = asyncio.get_running_loop().create_future()
            try:
                yield from self._awaited
            except asyncio.CancelledError:
                self._give_up()
                raise
        assert self._outcome is not None
        return self._outcome


DecideAlone = Callable[[Pending], Outcome]
"""Decides on an ask that the store could not decide, by the policies' `on_store_error`."""


def slowest_rule(outcome: Outcome) -> Rule:
    """Return the rule that makes an allowed request wait."""
    for rule, decision in zip(outcome.rules, outcome.verdict.decisions, strict=True):
        if decision.wait_us == outcome.verdict.wait_us:
            return rule
    raise AssertionError("a verdict waits as long as one of its decisions")


def refusing_rule(outcome: Outcome) -> Rule:
    """Return the first rule that refused a request."""
    if len(outcome.rules) == 1:
        return outcome.rules[0]
    for rule, decision in zip(outcome.rules, outcome.verdict.decisions, strict=True):
        if not decision.allowed:
            return rule
    raise AssertionError("a refusal comes from one of the decisions")


def refused_key(outcome: Outcome) -> str:
    """Return the key that a refused request is counted under by the rule that refused it."""
    pairs = zip(outcome.ask.keys, outcome.verdict.decisions, strict=False)
    return next(key for key, decision in pairs if not decision.allowed)


def without_queue(verdict: Verdict) -> Verdict:
    """Return the refusal that replaces a turn for which the queue has no room."""
    wait_us = verdict.wait_us
    decisions = tuple(
        decision._replace(allowed=False, wait_us=0, retry_after_us=wait_us, remaining=0)
        if decision.wait_us == wait_us
        else decision
        for decision in verdict.decisions
    )
    return Verdict(False, 0, wait_us, decisions)
