"""The parts of one request: what a store decided of it, and what was decided in this gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.limiter.outcome import Outcome
from gateway.limiter.plan import Rule
from gateway.limits.decision import Decision, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask


class LocalPart(NamedTuple):
    """What was decided here: by which rule, for which key, how."""

    rule: Rule
    key: str
    decision: Decision


class _Part(NamedTuple):
    rule: Rule
    limit: Limit
    key: str
    decision: Decision
    is_near: bool


def near_outcome(ask: Ask, rules: Sequence[Rule], taken: Sequence[LocalPart]) -> Outcome:
    """The outcome of what was decided here, where no store is asked."""
    verdict = combine(tuple(each.decision for each in taken))
    return _outcome(Outcome(verdict, (), None, False, ask), _sorted(rules, (), taken))


def join(far: Outcome, rules: Sequence[Rule], taken: Sequence[LocalPart]) -> Outcome:
    """The outcome of a store, with what was decided here.

    Args:
        far: what the store made of its part.
        rules: those of the whole request.
        taken: what was decided here; it is no part of the verdict, since it allowed.
    """
    if not taken or far.closed_by is not None:
        return far
    # A policy that is open has no decision while the store is away.
    theirs = zip(far.rules, far.ask.limits, far.ask.keys, far.verdict.decisions, strict=False)
    return _outcome(far, _sorted(rules, [_Part(*each, False) for each in theirs], taken))


def split(outcome: Outcome) -> tuple[Outcome, list[LocalPart]]:
    """What `join` joined: the store's part, and what was decided in this gateway."""
    parts = list(_parts(outcome))
    far = _outcome(outcome, [part for part in parts if not part.is_near])
    return far, [LocalPart(part.rule, part.key, part.decision) for part in parts if part.is_near]


def _parts(outcome: Outcome) -> Iterator[_Part]:
    ask = outcome.ask
    pairs = zip(outcome.rules, ask.limits, ask.keys, outcome.verdict.decisions, strict=False)
    for place, (rule, limit, key, decision) in enumerate(pairs):
        yield _Part(rule, limit, key, decision, place in outcome.near)


def _sorted(
    rules: Sequence[Rule], theirs: Sequence[_Part], taken: Sequence[LocalPart]
) -> list[_Part]:
    """All parts in the order of the rules; one that is held to a share is another object."""
    ours = [_Part(rule, rule.limit, key, decision, True) for rule, key, decision in taken]
    places = {rule.limit.scope: place for place, rule in enumerate(rules)}
    return sorted([*theirs, *ours], key=lambda part: places[part.limit.scope])


def _outcome(whole: Outcome, parts: Sequence[_Part]) -> Outcome:
    return whole._replace(
        verdict=whole.verdict._replace(decisions=tuple(part.decision for part in parts)),
        rules=tuple(part.rule for part in parts),
        ask=whole.ask._replace(
            limits=tuple(part.limit for part in parts), keys=tuple(part.key for part in parts)
        ),
        near=tuple(place for place, part in enumerate(parts) if part.is_near),
    )
