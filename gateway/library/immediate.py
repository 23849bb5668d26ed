"""The fast path to a decision: one limit, and a store in this process.

It builds no question, verdict or outcome until the decision's numbers are read, or it is given
back.
"""

from __future__ import annotations

from gateway.library.decision import Decision
from gateway.library.questions import EVERYBODY, Names, Questions, check_cost
from gateway.limiter.outcome import Outcome
from gateway.limiter.plan import Rule, is_tried
from gateway.limits import ALGORITHMS
from gateway.limits.decision import Verdict
from gateway.routing.keys import identity
from gateway.stores.base import Ask
from gateway.stores.memory.scope import Spent
from gateway.stores.memory.store import MemoryStore


class ImmediateLimit:
    """Decides on requests with one limit.

    Args:
        rule: the limit.
        store: the store of its counts.
    """

    __slots__ = ("_is_shared", "_limit", "_metrics", "_rule", "_spend")

    def __init__(self, rule: Rule, store: MemoryStore) -> None:
        self._rule = rule
        self._limit = rule.limit
        self._is_shared = rule.word == EVERYBODY
        self._spend = store.scope(rule.limit).spend
        self._metrics = rule.policy.metrics

    def acquire(self, key: str, cost: int) -> Decision:
        """Decide on one request, and count it; see `Limiter.acquire`."""
        if type(cost) is not int or cost < 0:
            check_cost(cost)
        if self._is_shared:
            key = EVERYBODY
        spent = self._spend(key, cost, self._limit, 0, identity)
        if not cost:
            pass
        elif spent[3]:
            self._metrics.refused += 1
        else:
            self._metrics.passed += 1
        return _ImmediateDecision(self._rule, key, cost, spent)


def immediate_limits(questions: Questions, store: MemoryStore) -> dict[Names, ImmediateLimit]:
    """Return the policies that this can decide on: those with one limit that is enforced."""
    rules = {names: questions.question(names).rules for names in questions.names}
    return {
        names: ImmediateLimit(found[0], store)
        for names, found in rules.items()
        if len(found) == 1 and not is_tried(found)
    }


class _ImmediateDecision(Decision):
    """The decision of one limit."""

    __slots__ = ("_cost", "_key", "_rule", "_spent")

    def __init__(self, rule: Rule, key: str, cost: int, spent: Spent) -> None:
        # Not the base class's, which requires the objects that are built later here.
        self._rule = rule
        self._key = key
        self._cost = cost
        self._spent = spent
        self._is_given_back = False

    def __bool__(self) -> bool:
        return not self._spent[3]

    @property
    def allowed(self) -> bool:
        """Whether the request is admitted. If so, it was counted."""
        return not self._spent[3]

    @property
    def _outcome(self) -> Outcome:
        limit, cost = self._rule.limit, self._cost
        state, now_us, wait_us, retry_after_us = self._spent
        describe = ALGORITHMS[limit.algorithm].describe
        decision = describe(state, now_us, cost, limit, wait_us, retry_after_us)
        verdict = Verdict(decision.allowed, decision.wait_us, decision.retry_after_us, (decision,))
        return Outcome(
            verdict, (self._rule,), None, False, Ask((limit,), (identity(self._key),), cost, 0)
        )
