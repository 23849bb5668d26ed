"""What Envoy asks, put to the limiter: all descriptors agree, or nothing is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.decider import Decider, Outcome, Pending
from gateway.frontends.asking import passes
from gateway.frontends.envoy_rls_groups import Group, grouped
from gateway.frontends.envoy_rls_rules import Domains, Held
from gateway.limits.rate import Limit
from gateway.policy import Rule
from gateway.protocols.envoy_rls_messages import Question
from gateway.stores.base import Ask

REFUNDED: Final = ("token_bucket", "fixed_window", "sliding_window_counter")
"""Algorithms that keep numbers: the others know single requests, and not which ones are meant."""
MAX_JOINED: Final = 4096
"""Combinations of limits that are asked about together; stores remember each."""


class Decided:
    """A request on which everything was decided.

    Attributes:
        held: what each descriptor is held to; None for nothing.
        groups: those that were counted.
        is_refused: whether one that is not in shadow was over its limit.
        is_over: whether any was.
    """

    __slots__ = ("groups", "held", "is_over", "is_refused")

    def __init__(
        self, held: Sequence[Held | None], groups: Sequence[Group], *, is_refused: bool
    ) -> None:
        self.held = held
        self.groups = groups
        self.is_refused = is_refused
        self.is_over = False


class Asking:
    """Puts questions to the limiter.

    Args:
        domains: what descriptors are held to.
        decider: asks the store.
    """

    def __init__(self, domains: Domains, decider: Decider) -> None:
        self._domains = domains
        self._decider = decider
        self._joined: dict[tuple[int, ...], tuple[tuple[Limit, ...], tuple[Rule, ...]]] = {}

    async def ask(self, question: Question) -> Decided:
        """Decide on a request.

        Whoever asks may leave meanwhile: what was asked is spent all the same, since Envoy lets
        a request pass if it hears nothing in time.

        Raises:
            UnknownUnitError: a descriptor brings a limit along that cannot be read.
            TooManyOverridesError: it brings one along too many.
        """
        held = self._held(question)
        is_refused = any(one is not None and one.is_refused and not one.is_shadow for one in held)
        groups = self._known(grouped(question, held, looks_only=is_refused))
        decided = Decided(held, groups, is_refused=is_refused)
        waiting = [
            (group, pending) for group in groups if (pending := self._put(group)) is not None
        ]
        if waiting:
            await self._wait(decided, waiting)
        else:
            self._conclude(decided)
        return decided

    def _held(self, question: Question) -> list[Held | None]:
        """What each descriptor is held to, without what others replace."""
        find, domain = self._domains.find, question.domain
        held = [find(domain, descriptor) for descriptor in question.descriptors]
        replaced = {name for one in held if one is not None for name in one.replaces}
        if not replaced:
            return held
        return [None if one is None or one.name in replaced else one for one in held]

    def _known(self, groups: list[Group]) -> list[Group]:
        """The groups, without new combinations of limits where there are too many already."""
        if len(self._joined) < MAX_JOINED:
            return groups
        known: list[Group] = []
        for group in groups:
            is_known = len(group.parts) == 1 or _names(group) in self._joined
            known += [group] if is_known else group.apart()
        return known

    def _put(self, group: Group) -> Pending | None:
        """Put a group's question; returns what is to be waited for, if anything is."""
        parts = group.parts
        if len(parts) == 1:
            held, keys = parts[0].held, parts[0].keys
            limits, rules = held.limits, held.rules
        else:
            names = _names(group)
            joined = self._joined.get(names)
            if joined is None:
                joined = self._joined[names] = (
                    tuple([limit for part in parts for limit in part.held.limits]),
                    tuple([rule for part in parts for rule in part.held.rules]),
                )
            limits, rules = joined
            keys = tuple([key for part in parts for key in part.keys])
        # Nobody is held back here: who would have to wait is refused.
        answer = self._decider.decide(Ask(limits, keys, group.hits, 0), rules)
        if isinstance(answer, Pending):
            return answer
        group.outcome = answer
        return None

    async def _wait(self, decided: Decided, waiting: Sequence[tuple[Group, Pending]]) -> None:
        done = asyncio.get_running_loop().create_future()
        left = len(waiting)

        def answered(group: Group, outcome: Outcome) -> None:
            nonlocal left
            group.outcome = outcome
            left -= 1
            if not left:
                self._conclude(decided)
                if not done.done():
                    done.set_result(None)

        for group, pending in waiting:
            pending.then(partial(answered, group))
        await done

    def _conclude(self, decided: Decided) -> None:
        """Undo what was spent for a request that is refused after all, and count."""
        over = [group for group in decided.groups if not group.passes]
        decided.is_over = bool(over)
        if not decided.is_refused:
            decided.is_refused = any(not group.is_shadow for group in over)
        for held in decided.held:
            if held is not None and held.is_refused and held.policy is not None:
                held.policy.metrics.refused += 1
                decided.is_over = True
        for group in decided.groups:
            outcome = group.outcome
            assert outcome is not None, "all were waited for"
            if not decided.is_refused or group.is_shadow or not group.passes:
                passes(outcome)
                if group.refund:
                    self._refund(group, outcome)
            elif group.hits:
                self._decider.give_back(outcome)

    def _refund(self, group: Group, outcome: Outcome) -> None:
        """Give back what this process did not ask for: to a count, by a look at it."""
        ask = outcome.ask
        has_counts = all(limit.algorithm in REFUNDED for limit in ask.limits)
        if group.passes and has_counts and not outcome.near:
            refund = ask._replace(cost=group.refund)
            self._decider.give_back(outcome._replace(ask=refund))
        else:
            group.refund = 0


def _names(group: Group) -> tuple[int, ...]:
    return tuple([id(part.held) for part in group.parts])
