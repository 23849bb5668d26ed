"""Turns asks into requests to a Throttr server, and its answers into verdicts, without I/O.

A limit of an ask is three requests in a row: create the counter if there is none, take the cost
unless less is left, and query the counter. A window begins with the first request of a key, so
windows differ from key to key, and their length is the limit's when they began.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from gateway.base.clock import Clock
from gateway.base.errors import StoreError, StoreUnavailable
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.systems.throttr.codec import DECREASE, INCREASE, PATCH, QUOTA
from gateway.systems.throttr.codec_v5 import (
    MAX_KEY,
    OK,
    REFUSED,
    Answer,
    Counter,
    ThrottrRequest,
    Ttl,
    insert,
    largest,
    query,
    ttl_of,
    update,
)

T = TypeVar("T")

ATTEMPTS: Final = 3
"""How often a limit is retried whose windows end before a cost can be taken from them."""


class BucketNames:
    """The keys of a domain.

    Args:
        domain: the namespace of a deployment.
    """

    __slots__ = ("_domain",)

    def __init__(self, domain: str) -> None:
        self._domain = domain.encode()

    def name(self, limit: Limit, key: str) -> bytes:
        """Return the key on the server of a limit's key; a digest if it is too long."""
        scope = limit.scope.encode("utf-8", "surrogatepass")
        identity = key.encode("utf-8", "surrogatepass")
        name = b"%b\0%b\0%b" % (self._domain, scope, identity)
        if len(name) <= MAX_KEY:
            return name
        # Imported here, because few keys are so long.
        from hashlib import blake2b

        return b"%b\1%b" % (self._domain, blake2b(name, digest_size=32).digest())


class Spend:
    """One limit of one ask.

    Attributes:
        limit: the limit.
        name: its key.
        cost: what is taken; 0 to query only.
        is_spent: whether it was taken.
        counter: the counter afterwards; None if there was none.
        ends_us: when the window ends at the earliest, by the caller's clock; 0 if unknown.
        is_stuck: whether there was no counter and none was created: the server is full.
    """

    __slots__ = ("cost", "counter", "ends_us", "is_spent", "is_stuck", "limit", "name")

    def __init__(self, limit: Limit, name: bytes) -> None:
        self.limit = limit
        self.name = name
        self.cost = 0
        self.is_spent = False
        self.counter: Counter | None = None
        self.ends_us = 0
        self.is_stuck = False

    @property
    def is_unsure(self) -> bool:
        """Whether the refusal is out of date: the window has ended in the meantime."""
        if self.is_spent or not self.cost:
            return False
        return self.counter is None or self.counter.quota >= self.cost

    def refuses(self, cost: int) -> bool:
        """Return whether less than a cost is left, of a limit that could have it."""
        counter = self.counter
        return counter is not None and counter.quota < cost <= self.limit.count

    def increase(self, size: int, cost: int) -> ThrottrRequest:
        """Return the request that gives back so much."""
        return ThrottrRequest(update(size, QUOTA, INCREASE, cost, self.name))

    def requests(self, size: int) -> list[ThrottrRequest]:
        """Return the requests to the server."""
        look = ThrottrRequest(query(self.name), is_query=True)
        if not self.cost:
            return [look]
        take = update(size, QUOTA, DECREASE, self.cost, self.name)
        make = insert(size, self.limit.count, _ttl(self.limit, size), self.name)
        return [ThrottrRequest(make), ThrottrRequest(take), look]

    def answered(self, answers: Sequence[Answer], sent_us: int) -> None:
        """Process the server's answers; the requests were sent no earlier than `sent_us`."""
        look = answers[-1]
        self.counter = look if isinstance(look, Counter) else None
        if self.counter is not None:
            self.ends_us = sent_us + self.counter.ttl.us
        if self.cost:
            self.is_spent = answers[1] == OK
            self.is_stuck = answers[0] == answers[1] == look == REFUSED
            if self.is_spent and answers[0] == OK:
                self.ends_us = sent_us + self.limit.period_us

    def decision(self, cost: int) -> Decision:
        """Return the decision.

        Args:
            cost: of the whole ask, which may be more than any window holds.
        """
        limit, counter = self.limit, self.counter
        remaining, reset_us = limit.count, 0
        if counter is not None:
            remaining = min(counter.quota, limit.count)
            # The server rounds down, and a client that is a moment too early is refused again.
            reset_us = min(counter.ttl.us + counter.ttl.step_us, limit.period_us)
        retry_after_us = 0
        if cost > limit.count:
            retry_after_us = NEVER
        elif self.is_unsure:
            # Windows end before a cost can be taken: none is known to have room.
            retry_after_us = reset_us = limit.period_us
        elif cost and not self.is_spent and (self.cost or remaining < cost):
            retry_after_us = reset_us
        receipt = self.ends_us if self.is_spent else 0
        return Decision(
            not retry_after_us, 0, retry_after_us, limit.count, remaining, reset_us, receipt
        )


class SpendingPlan:
    """The steps of one ask.

    An ask of several limits queries first, and takes only if all of them have room: otherwise a
    client that is over one limit could, with every request, occupy the others for a moment.

    Args:
        ask: the ask.
        names: the keys of its limits.
    """

    __slots__ = ("_ask", "_is_new", "_spends")

    def __init__(self, ask: Ask, names: BucketNames) -> None:
        self._ask = ask
        self._is_new = True
        self._spends = [
            Spend(limit, names.name(limit, key))
            for limit, key in zip(ask.limits, ask.keys, strict=True)
        ]

    def looks(self) -> list[Spend]:
        """Limits to query first."""
        return self._spends if len(self._spends) > 1 and self._ask.cost else []

    def takes(self) -> list[Spend]:
        """Limits to take from next, or again; none if the verdict is known."""
        spends, cost = self._spends, self._ask.cost
        if not self._is_new:
            return [spend for spend in spends if spend.is_unsure]
        self._is_new = False
        for spend in spends:
            # A cost that can never pass only queries, so nothing has to be given back.
            if cost > spend.limit.count:
                return spends
        for spend in spends:
            if spend.refuses(cost):
                return []
        for spend in spends:
            spend.cost = cost
        return spends

    @property
    def is_stuck(self) -> bool:
        """Whether the server is full."""
        return any(spend.is_stuck for spend in self._spends)

    def verdict(self) -> Verdict:
        """Return the verdict."""
        return combine(tuple(spend.decision(self._ask.cost) for spend in self._spends))

    def corrections(self, size: int, surely_us: int) -> list[ThrottrRequest]:
        """Return the requests that correct a refusal: give back what it took, take what it must.

        Args:
            size: bits of a number.
            surely_us: windows that may end before this moment are left alone, because a cost given
                back to one could be counted in the next.
        """
        requests = []
        for spend in self._spends:
            if spend.is_spent:
                if spend.ends_us > surely_us:
                    requests.append(spend.increase(size, spend.cost))
            elif spend.limit.count_refused and spend.refuses(self._ask.cost):
                nothing = update(size, QUOTA, PATCH, 0, spend.name)
                requests.append(ThrottrRequest(nothing))
        return requests


Dialogue = Generator[Sequence[ThrottrRequest], tuple[Sequence[Answer], int], T]
"""The requests of one write after the other; each is resumed with the answers and a moment before
which the write was not sent, in microseconds."""


class ServerDialogue:
    """The dialogues with a server of one size, for one domain.

    Args:
        domain: the namespace of a deployment.
        size: bits of a number.
        margin_us: how long before its end nothing is given back to a window.
        clock: the time for the ends of windows.
    """

    def __init__(self, domain: str, size: int, margin_us: int, clock: Clock) -> None:
        self._names = BucketNames(domain)
        self._size = size
        self._margin_us = margin_us
        self._clock = clock

    def decide(self, asks: Sequence[Ask]) -> Dialogue[list[Verdict]]:
        """Decide on a batch.

        Raises:
            StoreUnavailable: the server creates no new counters.
            StoreError: it does not support one of the limits.
        """
        plans = [SpendingPlan(ask, self._names) for ask in asks]
        looks = [spend for plan in plans for spend in plan.looks()]
        if looks:
            yield from self._ask(looks)
        for _ in range(ATTEMPTS):
            takes = [spend for plan in plans for spend in plan.takes()]
            if not takes:
                break
            yield from self._ask(takes)
        is_full = any(plan.is_stuck for plan in plans)
        verdicts = [plan.verdict() for plan in plans]
        surely_us = self._clock() + self._margin_us
        corrections = [
            request
            for plan, verdict in zip(plans, verdicts, strict=True)
            if is_full or not verdict.allowed
            for request in plan.corrections(self._size, surely_us)
        ]
        if corrections:
            yield corrections
        if is_full:
            raise StoreUnavailable("the store makes no new counters", "full")
        return verdicts

    def give_back(self, ask: Ask, verdict: Verdict) -> Dialogue[None]:
        """Give back what an ask took.

        Only to the windows that it was taken from, and never more than it took.
        """
        surely_us = self._clock() + self._margin_us
        looks: list[Spend] = []
        receipts: list[int] = []
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            if decision.receipt > surely_us:
                looks.append(Spend(limit, self._names.name(limit, key)))
                receipts.append(decision.receipt)
        if not looks:
            return
        yield from self._ask(looks)
        requests = []
        for look, receipt in zip(looks, receipts, strict=True):
            counter = look.counter
            # A window that ends later by more than the estimates may differ began after this.
            if counter and look.ends_us <= receipt + counter.ttl.step_us + self._margin_us:
                room = look.limit.count - counter.quota
                if room > 0:
                    requests.append(look.increase(self._size, min(ask.cost, room)))
        if requests:
            yield requests

    def _ask(self, spends: Sequence[Spend]) -> Dialogue[None]:
        """Take from these, or query them, in one write."""
        asked = [spend.requests(self._size) for spend in spends]
        answers, sent_us = yield [request for each in asked for request in each]
        at = 0
        for spend, each in zip(spends, asked, strict=True):
            spend.answered(answers[at : at + len(each)], sent_us)
            at += len(each)


@lru_cache(maxsize=4096)
def _ttl(limit: Limit, size: int) -> Ttl:
    """Return the length of a window of a limit, in a unit of the server.

    Raises:
        StoreError: the server does not support the limit; `sluice check` reports this earlier.
    """
    ttl = ttl_of(limit.period_us, size)
    is_window = limit.algorithm == "fixed_window" and not limit.calendar
    if not is_window or ttl is None or limit.count > largest(size):
        raise StoreError(f"a Throttr server cannot keep the limit {limit.scope}", "unsuitable")
    return ttl
