"""The descriptors of one request, in the groups in which the store is asked about them.

Descriptors that cost the same are one question, so that none is spent unless all of them let the
request through. What cannot be part of it is a question of its own in the same turn: one that
costs something else, one in shadow, one that gives back, or one that is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.decider import Outcome
from gateway.frontends.envoy_rls_rules import Held
from gateway.limits.decision import Decision
from gateway.protocols.envoy_rls_messages import Descriptor, Question

MAX_HITS: Final = 1_000_000_001
"""More than any limit lets through at once, so that no more need be told apart."""


class Part(NamedTuple):
    """A descriptor that is counted.

    Attributes:
        place: of the descriptor in the request.
        held: what it is held to.
        keys: what it is counted under, for each of the limits.
    """

    place: int
    held: Held
    keys: tuple[str, ...]

    @property
    def names(self) -> list[tuple[str, str]]:
        """What tells its counts from all others."""
        scopes = [limit.scope for limit in self.held.limits]
        return list(zip(scopes, self.keys, strict=True))


class Group:
    """Descriptors that the store is asked about at once.

    Args:
        hits: what each costs; 0 looks without taking.
        refund: how much each gets back.
        is_shadow: whether the request may pass whatever comes of it.

    Attributes:
        parts: the descriptors.
        outcome: what was decided, as soon as that is known.
    """

    __slots__ = ("_seen", "hits", "is_shadow", "outcome", "parts", "refund")

    def __init__(self, hits: int, refund: int = 0, *, is_shadow: bool = False) -> None:
        self.hits = hits
        self.refund = refund
        self.is_shadow = is_shadow
        self.parts: list[Part] = []
        self.outcome: Outcome | None = None
        self._seen: set[tuple[str, str]] = set()

    def takes(self, part: Part, hits: int, refund: int) -> bool:
        """Take one more descriptor, if it can be asked about together with these."""
        is_alike = hits == self.hits and not refund and not self.refund
        if not is_alike or part.held.is_shadow or self.is_shadow:
            return False
        names = part.names
        if not self._seen.isdisjoint(names):
            return False
        self.add(part)
        return True

    def add(self, part: Part) -> None:
        """Take a descriptor."""
        self.parts.append(part)
        self._seen.update(part.names)

    def apart(self) -> list[Group]:
        """The same, each descriptor by itself."""
        groups = []
        for part in self.parts:
            group = Group(self.hits, self.refund, is_shadow=self.is_shadow)
            group.add(part)
            groups.append(group)
        return groups

    @property
    def passes(self) -> bool:
        """Whether the limits of all of them let the request through."""
        outcome = self.outcome
        return outcome is not None and outcome.verdict.allowed and outcome.closed_by is None

    def decisions(self) -> dict[tuple[str, str], Decision]:
        """What was decided, by the names of the counts; an open policy decides nothing."""
        if self.outcome is None or self.outcome.closed_by is not None:
            return {}
        ask, verdict = self.outcome.ask, self.outcome.verdict
        # A policy that is open while the store is away has left nothing but the question.
        named = zip(ask.limits, ask.keys, verdict.decisions, strict=False)
        return {(limit.scope, key): decision for limit, key, decision in named}


def grouped(question: Question, held: Sequence[Held | None], *, looks_only: bool) -> list[Group]:
    """The groups of a request.

    Args:
        question: the request.
        held: what each of its descriptors is held to.
        looks_only: nothing is to be spent, since the request is refused whatever comes of it.
    """
    groups: list[Group] = []
    for place, (one, descriptor) in enumerate(zip(held, question.descriptors, strict=True)):
        if one is None or not one.rules:
            continue
        hits, refund = cost_of(question, descriptor)
        if looks_only and not one.is_shadow:
            hits = refund = 0
        part = Part(place, one, one.keys(descriptor.entries))
        if not any(group.takes(part, hits, refund) for group in groups):
            groups.append(Group(hits, refund, is_shadow=one.is_shadow))
            groups[-1].add(part)
    return groups


def cost_of(question: Question, descriptor: Descriptor) -> tuple[int, int]:
    """What a descriptor costs, and how much it gives back: one of the two is 0.

    The request's hits are 1 if it does not say; a descriptor's own may be 0, which only looks.
    """
    hits = descriptor.hits
    if hits is None:
        hits = question.hits or 1
    hits = min(hits, MAX_HITS)
    return (0, hits) if descriptor.is_refund else (hits, 0)
