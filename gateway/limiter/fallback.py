"""Decides while the store is unavailable, and reports to it afterwards.

State and its rules, without I/O. `on_store_error` of each policy says what happens: with `local`
this gateway limits a key to its share of the limit, by its own counts. What it admits this way is
remembered, and reported when the store decides again, as far as it still matters by then.

An unstable store gives no key a fresh share each time: the gateway's own counts stay, and a key's
share counts as used to the extent that the store last reported for the whole limit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from gateway.base.clock import Clock, monotonic_us, wall_us
from gateway.limiter.admissions import MAX_KEYS, Key, Unreported, UnreportedKey
from gateway.limiter.outcome import Outcome, Pending
from gateway.limiter.plan import Rule
from gateway.limiter.reports import filled
from gateway.limits import ALGORITHMS
from gateway.limits.assumed import assumed_state
from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, only
from gateway.stores.memory.store import MemoryStore

CLOSED_RETRY_AFTER_US: Final = 1_000_000
"""The retry time of a request that is refused because the store is unavailable: a guess."""
MAX_ANSWERS: Final = 50_000
"""The least number of keys whose last answer is kept; the most is twice as many."""

_PASSED: Final = Verdict(True, 0, 0, ())
_CLOSED: Final = Verdict(False, 0, CLOSED_RETRY_AFTER_US, ())
_NOTHING: Final = Unreported()


class Fallback:
    """The decisions of one gateway while its store is unavailable.

    Args:
        clock: this process's time.
        calendar_clock: the time of day, for calendar windows.
        remembers: whether admissions are kept, to be reported to the store afterwards.
    """

    def __init__(
        self,
        clock: Clock = monotonic_us,
        calendar_clock: Clock = wall_us,
        *,
        remembers: bool = True,
    ) -> None:
        self._remembers = remembers
        self._clock = clock
        self._calendar_clock = calendar_clock
        advice = "it has the counts of this gateway while the store is unavailable"
        self._counts = MemoryStore(clock=clock, calendar_clock=calendar_clock, advice=advice)
        self._unreported: dict[Hashable, Unreported] = {}
        self._answers: dict[Key, tuple[Decision, int]] = {}
        self._older_answers: dict[Key, tuple[Decision, int]] = {}

    def note_answers(self, asks: Sequence[Ask], verdicts: Sequence[Verdict], now_us: int) -> None:
        """Remember the store's last answer for each key, in case the store becomes unavailable.

        Args:
            asks: the asks.
            verdicts: the answers, in the same order.
            now_us: when they arrived.
        """
        if len(self._answers) >= MAX_ANSWERS:
            self._older_answers, self._answers = self._answers, {}
        answers = self._answers
        for ask, verdict in zip(asks, verdicts, strict=True):
            limits, keys, decisions = ask.limits, ask.keys, verdict.decisions
            if len(limits) == 1:
                answers[limits[0].scope, keys[0]] = decisions[0], now_us
            else:
                for limit, key, decision in zip(limits, keys, decisions, strict=True):
                    answers[limit.scope, key] = decision, now_us

    def decide(self, pending: Pending, parts: int) -> Outcome:
        """Apply each policy's `on_store_error`.

        Args:
            pending: the ask, and its shard of the store.
            parts: how many gateways share the limits.
        """
        ask, rules = pending.ask, pending.rules
        limits: list[Limit] = []
        keys: list[str] = []
        kept: list[Rule] = []
        whole: list[Limit] = []
        costs: list[int] = []
        for limit, key, cost, rule in zip(ask.limits, ask.keys, ask.each_cost, rules, strict=True):
            if rule.policy.on_store_error == "closed":
                return Outcome(_CLOSED, (), rule.policy, True, ask)
            if rule.policy.on_store_error == "local":
                share = _share(limit, parts)
                limits.append(share)
                keys.append(key)
                kept.append(rule if share is limit else rule._replace(limit=share))
                whole.append(limit)
                costs.append(cost)
        if not limits:
            return Outcome(_PASSED, (), None, True, ask)
        for limit, share, key in zip(whole, limits, keys, strict=True):
            self._assume(limit, share, key)
        local_ask = Ask(tuple(limits), tuple(keys), 0, ask.max_wait_us).with_costs(costs)
        verdict = self._counts.decide_now(local_ask)
        if self._remembers and verdict.allowed and ask.cost:
            for limit, share, key, cost in zip(whole, limits, keys, costs, strict=True):
                # Requests in flight need no report: they end by themselves.
                if ALGORITHMS[limit.algorithm].renew is None:
                    unreported = self._unreported.setdefault(pending.shard, Unreported())
                    unreported.note(limit, share, key, cost)
        return Outcome(verdict, kept, None, True, local_ask)

    def _assume(self, limit: Limit, share: Limit, key: str) -> None:
        """Start from the store's last answer for a key, if there was a new one."""
        name = (limit.scope, key)
        older = self._older_answers.pop(name, None)
        answer = self._answers.pop(name, older)
        algorithm = ALGORITHMS[limit.algorithm]
        if answer is None or algorithm.renew is not None:
            return
        said, came_us = answer
        at_us = came_us
        if algorithm.is_calendar:
            at_us += self._calendar_clock() - self._clock()
        self._counts.assume(share, key, assumed_state(limit, share, said, at_us))

    def give_back(self, outcome: Outcome) -> None:
        """Undo an outcome; what was reported to the store meanwhile stays reported."""
        ask = outcome.ask
        self._counts.give_back_now(ask, outcome.verdict)
        for limit, key, cost in zip(ask.limits, ask.keys, ask.each_cost, strict=True):
            name = (limit.scope, key)
            for unreported in self._unreported.values():
                if name in unreported:
                    unreported.undo(name, cost)
                    break

    def renew(self, outcome: Outcome) -> bool:
        """Keep what an outcome holds for another lease."""
        return self._counts.renew_now(outcome.ask, outcome.verdict)

    @property
    def unreported(self) -> Collection[Hashable]:
        """The shards of the store that lack some admissions."""
        return self._unreported

    def probes(self, shard: Hashable) -> list[Ask]:
        """Return asks that test whether a shard answers, for the key reported to it next."""
        noted = self._unreported.get(shard, _NOTHING).first
        return [] if noted is None else [Ask(only(noted.limit), (noted.key,), 0, 0)]

    def reports(self, shard: Hashable, at_most: int) -> list[Ask]:
        """Return the reports of up to this many keys for a shard; they count as reported."""
        unreported = self._unreported.get(shard, _NOTHING)
        taken = islice(unreported.take(), at_most)
        asks = [ask for noted in taken for ask in self._report(noted)]
        if not unreported:
            self._unreported.pop(shard, None)
        return asks

    def has_unreported_of(self, asks: Sequence[Ask]) -> bool:
        """Return whether the store lacks admissions of some of these keys."""
        return bool(self._unreported) and any(True for _ in self._unreported_of(asks))

    def reports_of(self, asks: Sequence[Ask], at_most: int = MAX_KEYS) -> list[Ask]:
        """Return the reports of the keys of these asks; they count as reported."""
        reports: list[Ask] = []
        for shard, name in list(islice(self._unreported_of(asks), at_most)):
            unreported = self._unreported[shard]
            noted = unreported.pop(name)
            if noted is not None:
                reports += self._report(noted)
            if not unreported:
                del self._unreported[shard]
        return reports

    def _unreported_of(self, asks: Sequence[Ask]) -> Iterator[tuple[Hashable, Key]]:
        names = {
            (limit.scope, key): None
            for ask in asks
            for limit, key in zip(ask.limits, ask.keys, strict=True)
        }
        for name in names:
            for shard, unreported in self._unreported.items():
                if name in unreported:
                    yield shard, name

    def _report(self, noted: UnreportedKey) -> Sequence[Ask]:
        cost = self._matters(noted)
        return filled(noted.limit, noted.key, cost) if cost > 0 else ()

    def _matters(self, noted: UnreportedKey) -> int:
        """Return how much of what was admitted still counts, by this gateway's own counts."""
        look = self._counts.decide_limit(noted.share, noted.key, 0, 0)
        if noted.limit.max_wait_us and not look.remaining:
            # Turns to come count as well; the limit's own queue bounds them.
            return noted.cost
        return min(noted.cost, look.limit - look.remaining)


@lru_cache(maxsize=4096)
def _share(limit: Limit, parts: int) -> Limit:
    return limit.share(parts)
