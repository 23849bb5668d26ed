"""The parts of one request: what a store decided, and what was decided in this gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.limiter.outcome import Outcome
from gateway.limiter.plan import Rule
from gateway.limits.decision import Decision, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask


class LocalPart(NamedTuple):
    """A decision made in this gateway: by which rule, for which key, and the decision."""

    rule: Rule
    key: str
    decision: Decision


class _RulePart(NamedTuple):
    rule: Rule
    limit: Limit
    key: str
    decision: Decision
    is_near: bool


def local_outcome(ask: Ask, rules: Sequence[Rule], taken: Sequence[LocalPart]) -> Outcome:
    """Return the outcome of what was decided here, if no store is asked."""
    verdict = combine(tuple(each.decision for each in taken))
    return _outcome(Outcome(verdict, (), None, False, ask), _sorted(rules, (), taken))


def join(far: Outcome, rules: Sequence[Rule], taken: Sequence[LocalPart]) -> Outcome:
    """Return the outcome of a store, joined with what was decided here.

    Args:
        far: the store's outcome for its part.
        rules: the rules of the whole request.
        taken: what was decided here; the verdict does not include it, since it allowed.
    """
    if not taken or far.closed_by is not None:
        return far
    # A policy with `on_store_error: open` has no decision while the store is unavailable.
    theirs = zip(far.rules, far.ask.limits, far.ask.keys, far.verdict.decisions, strict=False)
    return _outcome(far, _sorted(rules, [_RulePart(*each, False) for each in theirs], taken))


def split(outcome: Outcome) -> tuple[Outcome, list[LocalPart]]:
    """Return what `join` joined: the store's part, and what was decided in this gateway."""
    parts = list(_parts(outcome))
    far = _outcome(outcome, [part for part in parts if not part.is_near])
    return far, [LocalPart(part.rule, part.key, part.decision) for part in parts if part.is_near]


def limits_at(outcome: Outcome, places: Sequence[int]) -> Outcome:
    """Return the outcome of some of its limits, by their positions."""
    near = set(outcome.near)
    return outcome._replace(
        ask=outcome.ask.part(places),
        verdict=outcome.verdict._replace(
            decisions=tuple([outcome.verdict.decisions[place] for place in places])
        ),
        rules=tuple([outcome.rules[place] for place in places]),
        near=tuple([index for index, place in enumerate(places) if place in near]),
    )


def _parts(outcome: Outcome) -> Iterator[_RulePart]:
    ask = outcome.ask
    pairs = zip(outcome.rules, ask.limits, ask.keys, outcome.verdict.decisions, strict=False)
    for place, (rule, limit, key, decision) in enumerate(pairs):
        yield _RulePart(rule, limit, key, decision, place in outcome.near)


def _sorted(
    rules: Sequence[Rule], theirs: Sequence[_RulePart], taken: Sequence[LocalPart]
) -> list[_RulePart]:
    """Return all parts in the order of the rules; a rule limited to a share is another object."""
    ours = [_RulePart(rule, rule.limit, key, decision, True) for rule, key, decision in taken]
    places = {rule.limit.scope: place for place, rule in enumerate(rules)}
    return sorted([*theirs, *ours], key=lambda part: places[part.limit.scope])


def _outcome(whole: Outcome, parts: Sequence[_RulePart]) -> Outcome:
    return whole._replace(
        verdict=whole.verdict._replace(decisions=tuple(part.decision for part in parts)),
        rules=tuple(part.rule for part in parts),
        ask=whole.ask._replace(
            limits=tuple(part.limit for part in parts), keys=tuple(part.key for part in parts)
        ),
        near=tuple(place for place, part in enumerate(parts) if part.is_near),
    )
