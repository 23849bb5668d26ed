"""Deciding from what was last heard of the store, which is told afterwards.

State and its rules, without I/O: the caller sends the `reports` that are due and says what the
store made of them. This gateway holds each key to its limit by itself, in a replica of its own;
beyond that a key gets no more than the store said was left, and nothing while the store counts
it as overdrawn. Where nothing was heard, that is all there is: permissive, as the name says.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.clock import Clock, monotonic_us, wall_us
from gateway.consistency.generations import Generations
from gateway.consistency.reports import report
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.limits.terms import Eventual
from gateway.stores.base import Ask
from gateway.stores.memory import MemoryStore

MAX_KEYS: Final = 200_000
"""Keys of which something is remembered; of more, the ones not used for longest are forgotten."""
HEARD_FOR_US: Final = 60_000_000
"""How long what was heard of a key is kept if nobody asks for it."""

Key = tuple[str, str]
"""The scope of a limit, and the identity that is counted."""


class Report(NamedTuple):
    """What was let through of one key since the last report."""

    limit: Limit
    key: str
    asks: tuple[Ask, ...]


class _Noted:
    """What was let through of one key, and is to be reported."""

    __slots__ = ("count", "key", "limit")

    def __init__(self, limit: Limit, key: str) -> None:
        self.limit = limit
        self.key = key
        self.count = 0


class _Heard:
    """What the store said of one key, and what was let through since."""

    __slots__ = ("at_us", "blocked_until_us", "remaining", "spent")

    def __init__(self, remaining: int, blocked_until_us: int, spent: int, at_us: int) -> None:
        self.remaining = remaining
        self.blocked_until_us = blocked_until_us
        self.spent = spent
        self.at_us = at_us

    def retry_after_us(self, limit: Limit, cost: int, now_us: int) -> int:
        """How long a request has to stay away; 0 or less if it may pass."""
        # What comes back meanwhile is estimated from the rate: the replica knows better what
        # this gateway has let through, and the next report what the others have.
        refilled = limit.count * (now_us - self.at_us) // limit.period_us
        lacking = cost + self.spent - min(limit.burst, self.remaining + refilled)
        wait_us = -(-lacking * limit.period_us // limit.count) if lacking > 0 else 0
        return max(wait_us, self.blocked_until_us - now_us)


class Hearsay:
    """What one gateway knows of the keys that are counted eventually.

    Args:
        clock: this process's time.
        calendar_clock: the time of day, for windows of the calendar.
    """

    def __init__(self, clock: Clock = monotonic_us, calendar_clock: Clock = wall_us) -> None:
        self._clock = clock
        self._replica = MemoryStore(MAX_KEYS, clock, calendar_clock)
        self._heard: Generations[Key, _Heard] = Generations(MAX_KEYS, HEARD_FOR_US)
        self._unreported: dict[int, dict[Key, _Noted]] = {}

    def __repr__(self) -> str:
        return f"<Hearsay of {len(self._heard)} keys>"

    def decide(self, limit: Limit, key: str, terms: Eventual, cost: int) -> Decision:
        """Decide on one request, at once."""
        now_us = self._clock()
        heard = self._heard.get((limit.scope, key), now_us)
        if heard is not None and cost:
            retry_after_us = heard.retry_after_us(limit, cost, now_us)
            if retry_after_us > 0:
                reset_us = retry_after_us
                return Decision(False, 0, retry_after_us, limit.burst, 0, reset_us, 0)
        decision = self._replica.decide_limit(limit, key, cost, 0)
        if decision.allowed and cost:
            self._note(limit, key, terms, cost)
            if heard is not None:
                heard.spent += cost
        return decision

    def undo(self, limit: Limit, key: str, terms: Eventual, cost: int, decision: Decision) -> None:
        """Take back an admission; one that was reported already stays reported."""
        verdict = Verdict(True, 0, 0, (decision,))
        self._replica.give_back_now(Ask((limit,), (key,), cost, 0), verdict)
        noted = self._unreported.get(terms.interval_us, {}).get((limit.scope, key))
        if noted is not None:
            noted.count = max(noted.count - cost, 0)

    def _note(self, limit: Limit, key: str, terms: Eventual, cost: int) -> None:
        all_noted = self._unreported.setdefault(terms.interval_us, {})
        noted = all_noted.get((limit.scope, key))
        if noted is None:
            if len(all_noted) >= MAX_KEYS:
                del all_noted[next(iter(all_noted))]
            noted = all_noted[limit.scope, key] = _Noted(limit, key)
        noted.count += cost

    def is_due(self, interval_us: int) -> bool:
        """Whether there is anything to report."""
        return bool(self._unreported.get(interval_us))

    def reports(self, interval_us: int) -> list[Report]:
        """Take out what has been let through under the terms of this interval."""
        noted = self._unreported.pop(interval_us, {})
        return [_report(each) for each in noted.values() if each.count]

    def heard(self, limit: Limit, key: str, decision: Decision, asked_us: int) -> None:
        """The store has answered the last piece of a report, asked at `asked_us`."""
        now_us = self._clock()
        wait_us = decision.wait_us
        if not decision.allowed:
            # Overdrawn by more than a period; that is as long as it is held against anybody.
            never = decision.retry_after_us == NEVER
            wait_us = limit.period_us if never else min(limit.period_us, decision.retry_after_us)
        name = (limit.scope, key)
        spent = sum(noted[name].count for noted in self._unreported.values() if name in noted)
        until_us = asked_us + wait_us if wait_us else 0
        heard = _Heard(decision.remaining, until_us, spent, now_us)
        self._heard.put(name, heard, now_us)


def _report(noted: _Noted) -> Report:
    return Report(noted.limit, noted.key, report(noted.limit, noted.key, noted.count))
