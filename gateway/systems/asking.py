"""Ask the limiter on behalf of callers that are not HTTP clients.

A caller asks whether something may proceed, and is answered immediately: nothing waits here, since
only the caller can wait. So limits refuse what would have to wait, with or without a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.limiter.decider import Decider, Outcome, Pending, refusing_rule
from gateway.limiter.plan import CompileKey, KeyOf, MissingKey, Plan
from gateway.routing.keys import compile_caller_key
from gateway.systems.base import FrontendContext


def caller_keys(
    whole: Callable[[Any], str], words: Mapping[str, Callable[[Any], str]]
) -> CompileKey:
    """Returns the key function of callers; see `gateway.routing.keys.compile_caller_key`."""

    def compile_one(per: Sequence[str], if_missing: str) -> KeyOf:  # noqa: ARG001
        return compile_caller_key(per, whole, words)

    return compile_one


class CallerQuestions:
    """The policies that apply to some callers.

    Args:
        key_of: creates their key functions, such as `caller_keys` returns.
        names: the policies, in order.
        context: has the policies and the store.
    """

    def __init__(self, key_of: CompileKey, names: Sequence[str], context: FrontendContext) -> None:
        self._plan: Plan = context.plan_of(key_of, names)
        self._decider: Decider = context.decider

    def decide(self, caller: Any, cost: int = 1) -> Outcome | Pending:
        """Ask about one caller: a result if the store is in this process, else an awaitable.

        Args:
            caller: the input of the key functions.
            cost: what it takes; 0 looks without taking.
        """
        question = self._plan.ask(caller)
        assert question is not None, "callers name all that they are counted by"
        assert not isinstance(question, MissingKey), "callers name all that they are counted by"
        ask, rules = question
        outcome = self._decider.decide(ask._replace(cost=cost, max_wait_us=0), rules)
        if isinstance(outcome, Pending):
            # A caller that leaves while it is answered does not do what it asked about.
            outcome.undo = self._decider.give_back
        return outcome


def can_answer(context: FrontendContext, names: Iterable[str]) -> Callable[[], bool]:
    """Return a function that tells whether callers should ask: the gateway can answer and stays.

    Args:
        context: has the policies and the store.
        names: the policies that apply. If the store is unavailable, those that fail closed give no
            useful answer; the others decide locally.
    """
    needs_store = any(context.policies[name].on_store_error == "closed" for name in names)
    decider, is_leaving = context.decider, context.is_leaving
    return lambda: not is_leaving() and (decider.is_ready or not needs_store)


def passes(outcome: Outcome) -> bool:
    """Return whether the request may proceed; count it for its policies."""
    rules = outcome.rules
    if outcome.closed_by is not None:
        outcome.closed_by.metrics.store_error_refused += 1
        return False
    if not outcome.verdict.allowed:
        refusing_rule(outcome).policy.metrics.refused += 1
        return False
    for policy in {id(rule.policy): rule.policy for rule in rules}.values():
        if outcome.alone:
            policy.metrics.store_error_passed += 1
        else:
            policy.metrics.passed += 1
    return True
