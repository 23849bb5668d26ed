"""What one request asks of the store, worked out once for all requests that are alike.

Descriptors that cost the same are one question, so that none is spent unless all of them let the
request through. What cannot be part of it is a question of its own in the same turn: one that
costs something else, one in shadow, a quota, one that gives back, or one that is there twice.

What was used already is a debit, which counts whatever the limit says, and a look asks whether
something is owed. Envoy sends debits at the end of a stream (`apply_on_stream_done`), in a call of
their own, and says nowhere that they are: they are told by that all of them say what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits.decision import DEBIT
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.systems.envoy.messages import (
    OK,
    OVER_LIMIT,
    Descriptor,
    DescriptorStatus,
    EnvoyQuestion,
    EnvoyStatus,
)
from gateway.systems.envoy.rules import Domains, Held

MAX_HITS: Final = 1_000_000_001
"""More than any limit lets through at once, so that no more need be told apart."""
UNLIMITED: Final = 2**32 - 1
"""What is left where nothing limits."""
MAX_JOINED: Final = 4096
"""Combinations of limits that are asked about together; stores remember each."""

Name = tuple[str, str]
"""What tells a count from all others: the scope of its limit, and its key."""


class PlanPart(NamedTuple):
    """A descriptor that is counted.

    Attributes:
        place: of the descriptor in the request.
        held: what it is held to.
        names: of its counts, one for each limit.
    """

    place: int
    held: Held
    names: tuple[Name, ...]


class Group(NamedTuple):
    """Descriptors that the store is asked about at once.

    Attributes:
        parts: the descriptors.
        ask: the question.
        rules: the rule behind each limit of the question.
        refund: how much each gets back.
        is_shadow: whether the request may pass whatever comes of it.
        is_quota: whether it may as long as not all quotas are over.
        is_debit: whether what it costs was used already, and is never given back.
    """

    parts: tuple[PlanPart, ...]
    ask: Ask
    rules: tuple[Rule, ...]
    refund: int
    is_shadow: bool
    is_quota: bool
    is_debit: bool


class Cost(NamedTuple):
    """What is done with the count of a descriptor.

    Attributes:
        hits: how much is taken; 0 looks.
        refund: how much is given back; one of the two is 0.
        is_debit: whether it was used already; of a look, whether what is owed refuses it.
    """

    hits: int
    refund: int
    is_debit: bool


class CallPlan(NamedTuple):
    """Everything that is to be done for a request.

    Attributes:
        question: the request.
        held: what each of its descriptors is held to; None for nothing.
        groups: those that are counted.
        statuses: what is said of each, where no store is asked about it.
        is_refused: whether one of them is refused whatever comes of the others, on which
            nothing is spent then.
        never: the policies of those that are always over their limit, in shadow or not; without
            quotas that refuse nothing by themselves.
        quotas: how many of its descriptors are quotas; some of them may still have something left.
        empty: of these, how many are always over.
    """

    question: EnvoyQuestion
    held: tuple[Held | None, ...]
    groups: tuple[Group, ...]
    statuses: tuple[EnvoyStatus, ...]
    is_refused: bool
    never: tuple[CompiledPolicy, ...]
    quotas: int
    empty: int


class _Draft:
    """A group that may still grow."""

    __slots__ = ("cost", "is_alone", "keys", "parts", "seen")

    def __init__(self, cost: Cost, *, is_alone: bool) -> None:
        self.cost = cost
        self.is_alone = is_alone
        self.parts: list[PlanPart] = []
        self.keys: list[str] = []
        self.seen: set[Name] = set()

    def takes(self, part: PlanPart, cost: Cost) -> bool:
        """Take one more descriptor, if it can be asked about together with these."""
        is_alike = cost == self.cost and not cost.refund
        if not is_alike or _is_alone(part.held) or self.is_alone:
            return False
        if not self.seen.isdisjoint(part.names):
            return False
        self.add(part)
        return True

    def add(self, part: PlanPart) -> None:
        """Take a descriptor."""
        self.parts.append(part)
        self.keys += [key for _, key in part.names]
        self.seen.update(part.names)


class Planner:
    """Makes plans.

    Args:
        domains: what descriptors are held to.
    """

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._joined: dict[tuple[int, ...], tuple[tuple[Limit, ...], tuple[Rule, ...]]] = {}

    def plan(self, question: EnvoyQuestion) -> CallPlan:
        """What is to be done for a request.

        Raises:
            UnknownUnitError: a descriptor brings a limit along that cannot be read.
            TooManyOverridesError: it brings one along too many.
        """
        held = self._held(question)
        over = [one for one in held if one is not None and one.is_refused and not one.is_shadow]
        quotas = sum(self._is_quota(one) for one in held)
        empty = sum(one.is_quota for one in over)
        is_refused = len(over) > empty or 0 < quotas == empty
        drafts = self._drafts(question, held, looks_only=is_refused)
        groups = tuple(group for draft in drafts for group in self._groups(draft))
        never = tuple(
            one.policy
            for one in held
            if one is not None and one.is_refused and one.policy
            if is_refused or one.is_shadow or not one.is_quota
        )
        statuses = tuple(_uncounted(one) for one in held)
        return CallPlan(question, held, groups, statuses, is_refused, never, quotas, empty)

    def _is_quota(self, held: Held | None) -> bool:
        """Whether a descriptor is one; what nothing limits is where all are, and has enough."""
        if held is None:
            return self._domains.all_are_quotas
        return held.is_quota and (bool(held.rules) or held.is_refused)

    def _held(self, question: EnvoyQuestion) -> tuple[Held | None, ...]:
        """What each descriptor is held to, without what others replace."""
        find, domain = self._domains.find, question.domain
        held = [find(domain, descriptor) for descriptor in question.descriptors]
        replaced = {name for one in held if one is not None for name in one.replaces}
        return tuple(
            None if one is None or (one.name and one.name in replaced) else one for one in held
        )

    def _groups(self, draft: _Draft) -> Iterator[Group]:
        """The group of a draft; or one for each part, where there are too many combinations."""
        parts = tuple(draft.parts)
        names = tuple(id(part.held) for part in parts)
        joined = self._joined.get(names)
        if joined is None and len(parts) > 1 and len(self._joined) >= MAX_JOINED:
            for part in parts:
                alone = _Draft(draft.cost, is_alone=draft.is_alone)
                alone.add(part)
                yield from self._groups(alone)
            return
        if len(parts) == 1:
            joined = parts[0].held.limits, parts[0].held.rules
        elif joined is None:
            joined = self._joined[names] = (
                tuple(limit for part in parts for limit in part.held.limits),
                tuple(rule for part in parts for rule in part.held.rules),
            )
        limits, rules = joined
        hits, refund, is_debit = draft.cost
        # No request waits here: one that would have to wait is refused.
        ask = Ask(limits, tuple(draft.keys), hits, DEBIT if is_debit else 0)
        is_shadow = any(part.held.is_shadow for part in parts)
        is_quota = any(part.held.is_quota for part in parts) and not is_shadow
        yield Group(parts, ask, rules, refund, is_shadow, is_quota, is_debit and hits > 0)

    def _drafts(
        self, question: EnvoyQuestion, held: Sequence[Held | None], *, looks_only: bool
    ) -> Sequence[_Draft]:
        drafts: list[_Draft] = []
        are_debits = _are_debits(question)
        for place, (one, descriptor) in enumerate(zip(held, question.descriptors, strict=True)):
            if one is None or not one.rules:
                continue
            hits, refund = _hits(question, descriptor)
            if looks_only and not one.is_shadow:
                hits = refund = 0
            is_debit = not refund and (are_debits or one.is_debited or not hits)
            cost = Cost(hits, refund, is_debit and self._domains.have_debits)
            scopes = [limit.scope for limit in one.limits]
            names = tuple(zip(scopes, one.keys(descriptor.entries), strict=True))
            part = PlanPart(place, one, names)
            if not any(draft.takes(part, cost) for draft in drafts):
                drafts.append(_Draft(cost, is_alone=_is_alone(one)))
                drafts[-1].add(part)
        return drafts


def _is_alone(held: Held) -> bool:
    """Whether others are asked about apart from it, since it may not have the same word."""
    return held.is_shadow or held.is_quota


def _uncounted(held: Held | None) -> EnvoyStatus:
    """What is said of a descriptor that no store is asked about."""
    if held is None:
        return EnvoyStatus(OK)
    if held.is_refused:
        told = held.told[0] if held.told else DescriptorStatus(0, 0, held.name)
        return EnvoyStatus(OK if held.is_shadow else OVER_LIMIT, told)
    return EnvoyStatus(OK, remaining=UNLIMITED)


def _are_debits(question: EnvoyQuestion) -> bool:
    """Whether a call tells what was used already: all of its descriptors say what they cost."""
    said = [one.hits for one in question.descriptors if not one.is_refund]
    return all(said)


def _hits(question: EnvoyQuestion, descriptor: Descriptor) -> tuple[int, int]:
    """What a descriptor costs, and how much it gives back: one of the two is 0.

    The request's hits are 1 if it does not say; a descriptor's own may be 0, which only looks.
    """
    hits = descriptor.hits
    if hits is None:
        hits = question.hits or 1
    hits = min(hits, MAX_HITS)
    return (0, hits) if descriptor.is_refund else (hits, 0)
