"""The questions of one request to the store, computed once for all equal requests.

Descriptors of the same cost form one question, so that none is spent unless all of them let the
request through. Others are separate questions in the same turn: a descriptor with another cost, in
shadow, of a quota, with a refund, or listed twice.

A debit reports usage that has already happened: it counts regardless of the limit, and a query asks
whether a debt is left. Envoy sends debits at the end of a stream (`apply_on_stream_done`), in a
separate call, without a mark: they are recognised because each states its cost.
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
from gateway.systems.envoy.rules import ApplicableLimits, Domains

MAX_HITS: Final = 1_000_000_001
"""More than the burst of any limit, so that larger numbers need no distinction."""
UNLIMITED: Final = 2**32 - 1
"""The remaining count where nothing limits."""
MAX_JOINED: Final = 4096
"""Combinations of limits that are asked about together; stores cache each."""

Name = tuple[str, str]
"""The identity of a count: the scope of its limit, and its key."""


class PlanPart(NamedTuple):
    """A descriptor that is counted.

    Attributes:
        place: of the descriptor in the request.
        held: the limits that apply to it.
        names: of its counts, one for each limit.
    """

    place: int
    held: ApplicableLimits
    names: tuple[Name, ...]


class Group(NamedTuple):
    """Descriptors in one question to the store.

    Attributes:
        parts: the descriptors.
        ask: the question.
        rules: the rule behind each limit of the question.
        refund: how much to give back to each.
        is_shadow: whether the request may pass whatever the result.
        is_quota: whether it may pass unless all quotas are exceeded.
        is_debit: whether its cost was already used, and is never given back.
    """

    parts: tuple[PlanPart, ...]
    ask: Ask
    rules: tuple[Rule, ...]
    refund: int
    is_shadow: bool
    is_quota: bool
    is_debit: bool


class Cost(NamedTuple):
    """The operation on the count of a descriptor.

    Attributes:
        hits: how much is taken; 0 for a query.
        refund: how much is given back; one of the two is 0.
        is_debit: whether it was already used; for a query, whether a debt refuses it.
    """

    hits: int
    refund: int
    is_debit: bool


class CallPlan(NamedTuple):
    """All steps of a request.

    Attributes:
        question: the request.
        held: the limits of each of its descriptors; None for nothing.
        groups: the descriptors that are counted.
        statuses: the status of each, where no store is asked about it.
        is_refused: whether one of them is always refused, so that nothing is spent on the
            others.
        never: the policies of those that are always over their limit, in shadow or not; without
            quotas that refuse nothing by themselves.
        quotas: how many of its descriptors are quotas; some of them may still have something left.
        empty: of these, how many are always over.
    """

    question: EnvoyQuestion
    held: tuple[ApplicableLimits | None, ...]
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
        """Add a descriptor, if it can be asked about together with the others."""
        is_alike = cost == self.cost and not cost.refund
        if not is_alike or _is_alone(part.held) or self.is_alone:
            return False
        if not self.seen.isdisjoint(part.names):
            return False
        self.add(part)
        return True

    def add(self, part: PlanPart) -> None:
        """Add a descriptor."""
        self.parts.append(part)
        self.keys += [key for _, key in part.names]
        self.seen.update(part.names)


class Planner:
    """Creates plans.

    Args:
        domains: the limits of descriptors.
    """

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._joined: dict[tuple[int, ...], tuple[tuple[Limit, ...], tuple[Rule, ...]]] = {}

    def plan(self, question: EnvoyQuestion) -> CallPlan:
        """Return the steps of a request.

        Raises:
            UnknownUnitError: the limit in a descriptor cannot be read.
            TooManyOverridesError: it has one limit too many.
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

    def _is_quota(self, held: ApplicableLimits | None) -> bool:
        """Return whether a descriptor is a quota, or unlimited where every other one is a quota."""
        if held is None:
            return self._domains.all_are_quotas
        return held.is_quota and (bool(held.rules) or held.is_refused)

    def _held(self, question: EnvoyQuestion) -> tuple[ApplicableLimits | None, ...]:
        """Return the limits of each descriptor, without those that others replace."""
        find, domain = self._domains.find, question.domain
        held = [find(domain, descriptor) for descriptor in question.descriptors]
        replaced = {name for one in held if one is not None for name in one.replaces}
        return tuple(
            None if one is None or (one.name and one.name in replaced) else one for one in held
        )

    def _groups(self, draft: _Draft) -> Iterator[Group]:
        """Return the group of a draft, or one for each part if there are too many combinations."""
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
        self, question: EnvoyQuestion, held: Sequence[ApplicableLimits | None], *, looks_only: bool
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


def _is_alone(held: ApplicableLimits) -> bool:
    """Return whether it needs a group of its own, since its result may not count."""
    return held.is_shadow or held.is_quota


def _uncounted(held: ApplicableLimits | None) -> EnvoyStatus:
    """Return the status of a descriptor without a question to the store."""
    if held is None:
        return EnvoyStatus(OK)
    if held.is_refused:
        reported = held.reported[0] if held.reported else DescriptorStatus(0, 0, held.name)
        return EnvoyStatus(OK if held.is_shadow else OVER_LIMIT, reported)
    return EnvoyStatus(OK, remaining=UNLIMITED)


def _are_debits(question: EnvoyQuestion) -> bool:
    """Return whether a call reports what was already used: all of its descriptors have a cost."""
    said = [one.hits for one in question.descriptors if not one.is_refund]
    return all(said)


def _hits(question: EnvoyQuestion, descriptor: Descriptor) -> tuple[int, int]:
    """Return the cost of a descriptor and its refund: one of the two is 0.

    The request's hits default to 1; a descriptor's own may be 0, which only looks.
    """
    hits = descriptor.hits
    if hits is None:
        hits = question.hits or 1
    hits = min(hits, MAX_HITS)
    return (0, hits) if descriptor.is_refund else (hits, 0)
