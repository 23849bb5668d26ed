"""Tokens that this gateway has taken from the store and may spend by itself.

State and its rules, without I/O: the caller asks the store for what `wanted` says, and returns
to it what `expired` hands out. A key gets a lease when it is asked for a second time within a
lifetime; what is seen once costs the store one question, as in strict.

A grant lives from before it was asked for, so it is spent within one lifetime of the moment at
which the store counted it, whatever the network and the clocks do in between.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

from gateway.clock import Clock
from gateway.consistency.generations import Generations
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.limits.terms import Leased
from gateway.stores.base import Ask

MAX_LEASES: Final = 100_000
"""Keys with a lease at a time, at most twice as many; others are decided by the store."""


class Grant:
    """Some tokens, as the store gave them."""

    __slots__ = ("decision", "expires_us", "key", "lease", "limit", "serial", "unused")

    def __init__(
        self, serial: int, lease: Lease, limit: Limit, key: str, unused: int, decision: Decision
    ) -> None:
        self.serial = serial
        self.lease = lease
        self.limit = limit
        self.key = key
        self.unused = unused
        self.decision = decision
        self.expires_us = 0

    def as_return(self, tokens: int) -> tuple[Ask, Verdict]:
        """Some of its tokens, in the form in which a store takes them back."""
        ask = Ask((self.limit,), (self.key,), tokens, 0)
        return ask, Verdict(True, 0, 0, (self.decision,))


class Lease:
    """What is known of one key, and held of it."""

    __slots__ = (
        *("asked", "grants", "heard", "heard_us", "held", "is_warm"),
        *("refused_cost", "refused_until_us", "refused_wait_us", "seen_us", "size"),
    )

    def __init__(self, size: int, now_us: int) -> None:
        self.size = size
        self.grants: deque[Grant] = deque()
        self.held = 0
        self.asked = 0
        self.heard: Decision | None = None
        self.heard_us = 0
        self.is_warm = False
        self.seen_us = now_us
        self.refused_cost = 0
        self.refused_until_us = 0
        self.refused_wait_us = 0


class LeaseBook:
    """All leases of one gateway.

    Args:
        clock: this process's time.
        longest_us: the longest lifetime that any lease has.
    """

    def __init__(self, clock: Clock, longest_us: int) -> None:
        self._clock = clock
        self._leases: Generations[tuple[str, str], Lease] = Generations(MAX_LEASES, longest_us)
        self._live: dict[int, Grant] = {}
        self._expiry: list[tuple[int, int]] = []
        self._serial = 0

    def __repr__(self) -> str:
        return f"<LeaseBook {len(self._leases)} keys, {self.held} tokens>"

    @property
    def held(self) -> int:
        """Unspent tokens of all keys."""
        return sum(grant.unused for grant in self._live.values())

    @property
    def next_expiry_us(self) -> int | None:
        """When `expired` will have something to hand out, if ever."""
        return self._expiry[0][0] if self._expiry else None

    def spend(
        self, limit: Limit, key: str, terms: Leased, cost: int, max_wait_us: int
    ) -> Decision | None:
        """Decide on one request, or return None if the store has to.

        A refusal of the store stands until the moment that it named, one lifetime at most:
        what others return may be there sooner.
        """
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is None:
            lease = Lease(terms.size(limit), now_us)
            self._leases.put((limit.scope, key), lease, now_us)
            return None
        lease.is_warm = now_us - lease.seen_us < terms.lifetime_us
        lease.seen_us = now_us
        if not cost:
            return None
        if lease.held >= cost:
            grant = self._take(lease, cost, now_us)
            if grant is not None:
                return _spent(lease, limit, grant.serial, now_us)
        if (
            now_us < lease.refused_until_us
            and cost >= lease.refused_cost
            and min(max_wait_us, limit.max_wait_us) <= lease.refused_wait_us
        ):
            return _still_refused(lease, now_us)
        return None

    def _take(self, lease: Lease, cost: int, now_us: int) -> Grant | None:
        """Spend from the oldest grants; None if too much of what is held has expired."""
        oldest = lease.grants[0]
        if oldest.expires_us > now_us and oldest.unused > cost:
            # Nearly always so; what follows is for the last tokens of a grant.
            oldest.unused -= cost
            lease.held -= cost
            return oldest
        usable = [grant for grant in lease.grants if grant.expires_us > now_us and grant.unused]
        if sum(grant.unused for grant in usable) < cost:
            return None
        lease.held -= cost
        for grant in usable:
            taken = min(cost, grant.unused)
            grant.unused -= taken
            cost -= taken
            if not cost:
                break
        while lease.grants and not lease.grants[0].unused:
            lease.grants.popleft()
        return usable[0]

    def unspend(self, serial: int, cost: int) -> tuple[Ask, Verdict] | None:
        """Put back what `spend` took: into the oldest grant it came from, if that still lives.

        A lease never grows above its size: what was replaced meanwhile is to be returned to the
        store, in the form that is answered here.
        """
        grant = self._live.get(serial)
        if grant is None:
            return None
        lease = grant.lease
        if lease.held + lease.asked + cost > lease.size:
            return grant.as_return(cost)
        if grant not in lease.grants:
            lease.grants.appendleft(grant)
        grant.unused += cost
        lease.held += cost
        return None

    def heard(
        self, limit: Limit, key: str, terms: Leased, cost: int, decision: Decision, asked_us: int
    ) -> None:
        """The store has decided on a request of this key, asked at `asked_us`."""
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is None:
            return
        lease.heard, lease.heard_us = decision, now_us
        if not decision.allowed and decision.retry_after_us != NEVER:
            lease.refused_cost = cost
            lease.refused_wait_us = limit.max_wait_us
            lease.refused_until_us = asked_us + min(decision.retry_after_us, terms.lifetime_us)

    def wanted(self, limit: Limit, key: str) -> int:
        """How many tokens the store is to be asked for now; then `granted` or `denied` follows.

        When half of the lease is spent it is filled up, with half of what the store has at the
        most: other gateways want some too.
        """
        lease = self._leases.get((limit.scope, key), self._clock())
        if lease is None or lease.heard is None or lease.asked or not lease.is_warm:
            return 0
        left = lease.heard.remaining
        if 2 * lease.held > lease.size or left < 1:
            return 0
        lease.asked = min(lease.size - lease.held, max(left // 2, 1))
        return lease.asked

    def granted(
        self, limit: Limit, key: str, terms: Leased, tokens: int, decision: Decision, asked_us: int
    ) -> None:
        """The store gave so many tokens, asked for at `asked_us`."""
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is None:
            # Forgotten meanwhile; what it was given goes back when its time is over.
            lease = Lease(tokens, now_us)
        lease.asked = 0
        lease.heard, lease.heard_us = decision, now_us
        self._serial += 1
        grant = Grant(self._serial, lease, limit, key, tokens, decision)
        lifetime_us = terms.lifetime_us
        if limit.algorithm == "fixed_window":
            # What a window gave is not to be spent in the next one.
            lifetime_us = min(lifetime_us, decision.reset_us)
        grant.expires_us = asked_us + lifetime_us
        lease.grants.append(grant)
        lease.held += tokens
        self._live[grant.serial] = grant
        heapq.heappush(self._expiry, (grant.expires_us, grant.serial))

    def denied(self, limit: Limit, key: str, decision: Decision | None) -> None:
        """The store gave none: it refused, or did not answer."""
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is not None:
            lease.asked = 0
            if decision is not None:
                lease.heard, lease.heard_us = decision, now_us

    def expired(self) -> list[tuple[Ask, Verdict]]:
        """Take out the grants whose time is over; returns what is to be returned of them."""
        return self._take_out(self._clock())

    def close(self) -> list[tuple[Ask, Verdict]]:
        """Take out all grants; returns what is to be returned of them."""
        return self._take_out(None)

    def _take_out(self, until_us: int | None) -> list[tuple[Ask, Verdict]]:
        returns: list[tuple[Ask, Verdict]] = []
        while self._expiry and (until_us is None or self._expiry[0][0] <= until_us):
            grant = self._live.pop(heapq.heappop(self._expiry)[1])
            if grant.unused:
                returns.append(grant.as_return(grant.unused))
                grant.lease.held -= grant.unused
                grant.unused = 0
                grant.lease.grants.remove(grant)
        return returns


def _spent(lease: Lease, limit: Limit, serial: int, now_us: int) -> Decision:
    """An admission from the lease; what is left is the lease and what was last heard of."""
    heard = lease.heard
    assert heard is not None, "a grant came with a decision"
    left = min(lease.held + heard.remaining, limit.burst)
    reset_us = max(heard.reset_us - (now_us - lease.heard_us), 1)
    return Decision(True, 0, 0, heard.limit, left, reset_us, serial)


def _still_refused(lease: Lease, now_us: int) -> Decision:
    """The store's refusal, a little later."""
    heard = lease.heard
    assert heard is not None, "it was refused by a decision"
    elapsed_us = now_us - lease.heard_us
    return heard._replace(
        allowed=False,
        wait_us=0,
        retry_after_us=lease.refused_until_us - now_us,
        reset_us=max(heard.reset_us - elapsed_us, 1),
    )
