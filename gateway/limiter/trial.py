"""Policies that are tried out: they decide and count, and nobody is refused or delayed by them.

A policy is enforced for a share of its keys: for all by default, for none in shadow mode. The
limits of a request that are not enforced are asked apart from the others, each policy for itself:
what they would do depends on no other policy, and what the others do does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from gateway.limiter.outcome import Outcome, Pending
from gateway.limiter.plan import MAX_KNOWN, Rule
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask

_Limits = tuple[tuple[Limit, ...], tuple[Rule, ...]]

_Known = tuple[Sequence[Rule], _Limits]

_ALLOWED: Final = Verdict(True, 0, 0, ())


class Question(NamedTuple):
    """A part of an ask, with the rules of its limits."""

    ask: Ask
    rules: tuple[Rule, ...]


class Split(NamedTuple):
    """An ask in parts.

    Attributes:
        enforced: the limits that are enforced; None if there are none.
        tried: the others, by policy.
    """

    enforced: Question | None
    tried: Sequence[Question]


def is_enforced(policy: str, key: str, parts: int) -> bool:
    """Return whether a policy is enforced for a key: the same on every gateway, at any time.

    Args:
        policy: the name of the policy.
        key: the identity that its first limit counts.
        parts: the share of keys, of `PARTS_PER_WHOLE`; a larger share contains every smaller one.
    """
    identity = f"{policy}\0{key}".encode("utf-8", "surrogatepass")
    return crc32(identity) % PARTS_PER_WHOLE < parts


def enforced_policies(rules: Sequence[Rule], keys: Sequence[str]) -> dict[str, bool]:
    """Return whether each policy is enforced for a request, by its name.

    Args:
        rules: the rules of the request's limits.
        keys: what each of them counts; the first of a policy decides about all of it.
    """
    found: dict[str, bool] = {}
    for rule, key in zip(rules, keys, strict=True):
        policy = rule.policy
        if policy.name not in found:
            found[policy.name] = is_enforced(policy.name, key, policy.enforced_parts)
    return found


class Trials:
    """Decides on requests under policies that are not enforced for all keys.

    Args:
        decide: as `Decider.decide`, for limits that are all enforced or all not.
    """

    __slots__ = ("_decide", "_known")

    def __init__(self, decide: Callable[[Ask, Sequence[Rule]], Outcome | Pending]) -> None:
        self._decide = decide
        # The same rules always give the same objects: stores know limits by them.
        self._known: dict[tuple[int, tuple[int, ...]], _Known] = {}

    def decide(self, ask: Ask, rules: Sequence[Rule]) -> Outcome | Pending:
        """Decide by what is enforced; the other limits are asked first, and change nothing."""
        enforced, tried = self.split(ask, rules)
        told: list[str] = []
        waits = [
            found for question in tried if isinstance(found := self._ask(told, question), Pending)
        ]
        if enforced is not None:
            # Asked after the others, and so not answered before them by one server.
            for found in waits:
                found.then(partial(_note, told))
            outcome = self._decide(*enforced)
            if isinstance(outcome, Outcome):
                return outcome._replace(trials=told)
            outcome.trials = told
            return outcome
        allowed = Outcome(_ALLOWED, (), None, False, ask.part(()), (), told)
        if not waits:
            return allowed
        # The request waits as it would if they were enforced, so that its log line can tell.
        pending = Pending(allowed.ask, ())
        left = len(waits)

        def note(outcome: Outcome) -> None:
            nonlocal left
            _note(told, outcome)
            left -= 1
            if not left:
                pending.resolve(allowed)

        for found in waits:
            found.then(note)
        return pending

    def _ask(self, told: list[str], question: Question) -> Outcome | Pending:
        found = self._decide(*question)
        if isinstance(found, Outcome):
            _note(told, found)
        return found

    def split(self, ask: Ask, rules: Sequence[Rule]) -> Split:
        """Return the parts of an ask."""
        enforced: list[int] = []
        tried: dict[str, list[int]] = {}
        judged = enforced_policies(rules, ask.keys)
        for place, rule in enumerate(rules):
            name = rule.policy.name
            if judged[name]:
                enforced.append(place)
            else:
                tried.setdefault(name, []).append(place)
        return Split(
            self._part(ask, rules, enforced) if enforced else None,
            [self._part(ask, rules, places) for places in tried.values()],
        )

    def _part(self, ask: Ask, rules: Sequence[Rule], places: Sequence[int]) -> Question:
        if len(places) == len(rules):
            return Question(ask, tuple(rules))
        name = (id(rules), tuple(places))
        known = self._known.get(name)
        if known is None or known[0] is not rules:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            chosen = tuple([rules[place] for place in places])
            known = rules, (tuple([rule.limit for rule in chosen]), chosen)
            self._known[name] = known
        limits, chosen = known[1]
        return Question(ask.part(places, limits), chosen)


def _note(told: list[str], outcome: Outcome) -> None:
    """Count what a policy that is not enforced would have done, and tell it."""
    policy, verdict = outcome.rules[0].policy, outcome.verdict
    if not verdict.allowed:
        policy.metrics.shadow_refused += 1
        result = "refuse"
    elif verdict.wait_us:
        policy.metrics.shadow_delayed += 1
        result = "delay"
    else:
        policy.metrics.shadow_passed += 1
        result = "pass"
    told.append(f"{policy.name}={result}")
