"""Tokens that this gateway has taken from the store and may spend by itself.

State and its rules, without I/O: the caller asks the store for what `wanted` returns, and returns
to it what `expired` hands out. A key gets a lease when it is asked for a second time within a
lifetime; a key that is seen once costs the store one ask, as in strict.

The lifetime of a grant begins before the grant was asked for, so it is spent within one lifetime of
the moment at which the store counted it, whatever the network and the clocks do in between.

How long a refusal of the store is reused is separate from the retry time sent to clients. It is
reused for one lifetime at most, since other gateways may return tokens; clients get the store's
retry time.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from gateway.base.clock import Clock
from gateway.limiter.local.generations import Generations
from gateway.limits.consistency_mode import Leased
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, only

MAX_LEASES: Final = 100_000
"""Keys with a lease per generation, so at most twice as many; the store decides others."""
MAX_SPENT: Final = 4096
"""The most spent grants to remember, since a token of theirs may be put back; beyond that, the
oldest are forgotten, and what is put back of them is lost."""


class StoreAnswer(NamedTuple):
    """The store's answer, and when it was asked."""

    decision: Decision
    asked_us: int


class Grant:
    """Tokens granted by the store."""

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
        """Return some of its tokens, in the form in which a store takes them back."""
        ask = Ask(only(self.limit), (self.key,), tokens, 0)
        return ask, Verdict(True, 0, 0, (self.decision,))


class _Refusal(NamedTuple):
    """The store's answer to a request that was over the limit.

    Attributes:
        cost: the cost of the request; the answer says nothing about another cost.
        wait_us: how long that request would have waited.
        believed_until_us: when the store is to be asked again.
        passes_us: when the store would let the request pass, according to its answer.
    """

    cost: int
    wait_us: int
    believed_until_us: int
    passes_us: int


class Lease:
    """The held tokens of one key, and the store's last decision."""

    __slots__ = (
        *("asked", "grants", "decided_us", "decision", "held", "is_warm"),
        *("refusal", "seen_us", "size"),
    )

    def __init__(self, size: int, now_us: int) -> None:
        self.size = size
        self.grants: deque[Grant] = deque()
        self.held = 0
        self.asked = 0
        self.decision: Decision | None = None
        self.decided_us = 0
        self.is_warm = False
        self.seen_us = now_us
        self.refusal: _Refusal | None = None

    def usable(self, now_us: int) -> int:
        """Return how many tokens may be spent now."""
        if not self.held:
            return 0
        return sum(grant.unused for grant in self.grants if grant.expires_us > now_us)


class LeaseBook:
    """All leases of one gateway.

    Args:
        clock: this process's time.
        longest_us: the longest lifetime of any lease.

    Attributes:
        is_low: whether at most half of the lease that was last spent from is left.
    """

    def __init__(self, clock: Clock, longest_us: int) -> None:
        self.is_low = False
        self._clock = clock
        self._leases: Generations[tuple[str, str], Lease] = Generations(MAX_LEASES, longest_us)
        self._live: dict[int, Grant] = {}
        self._spent: OrderedDict[int, Grant] = OrderedDict()
        self._shares: OrderedDict[int, list[tuple[int, int]]] = OrderedDict()
        self._expiry: list[tuple[int, int]] = []
        self._serial = 0

    def keep_for(self, longest_us: int) -> None:
        """Keep leases that live as long as this, too."""
        self._leases.age_us = max(self._leases.age_us, longest_us)

    def __repr__(self) -> str:
        return f"<LeaseBook {len(self._leases)} keys, {self.held} tokens>"

    @property
    def held(self) -> int:
        """Unspent tokens of all keys."""
        return sum(grant.unused for grant in self._live.values())

    @property
    def next_expiry_us(self) -> int | None:
        """When `expired` has something to hand out; None if never."""
        while self._expiry and self._expiry[0][1] not in self._live:
            heapq.heappop(self._expiry)
        return self._expiry[0][0] if self._expiry else None

    def spend(
        self, limit: Limit, key: str, terms: Leased, cost: int, max_wait_us: int
    ) -> Decision | None:
        """Decide on one request, or return None if the store must decide."""
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
            serial = self._take(lease, cost, now_us)
            if serial is not None:
                self.is_low = 2 * lease.held <= lease.size
                return _spent(lease, limit, serial, now_us)
        refusal = lease.refusal
        if refusal is None or refusal.cost != cost or now_us >= refusal.believed_until_us:
            return None
        wait_us = min(max_wait_us, limit.max_wait_us)
        if wait_us > refusal.wait_us:
            return None
        return _still_refused(lease, refusal, wait_us, now_us)

    def _take(self, lease: Lease, cost: int, now_us: int) -> int | None:
        """Spend from the oldest grants; return None if too many held tokens have expired."""
        oldest = lease.grants[0]
        if oldest.expires_us > now_us and oldest.unused > cost:
            # Almost always true; the rest is for the last tokens of a grant.
            oldest.unused -= cost
            lease.held -= cost
            return oldest.serial
        if lease.usable(now_us) < cost:
            return None
        lease.held -= cost
        shares: list[tuple[int, int]] = []
        for grant in lease.grants:
            if grant.expires_us <= now_us or not cost:
                continue
            taken = min(cost, grant.unused)
            grant.unused -= taken
            cost -= taken
            shares.append((grant.serial, taken))
            if not grant.unused:
                self._forget(grant)
        lease.grants = deque(grant for grant in lease.grants if grant.unused)
        if len(shares) == 1:
            return shares[0][0]
        self._serial += 1
        self._shares[self._serial] = shares
        if len(self._shares) > MAX_SPENT:
            self._shares.popitem(last=False)
        return self._serial

    def _forget(self, grant: Grant) -> None:
        """Forget a spent grant. Its place in the order of expiry stays empty for a short time."""
        del self._live[grant.serial]
        self._spent[grant.serial] = grant
        if len(self._spent) > MAX_SPENT:
            self._spent.popitem(last=False)
        if len(self._expiry) > 2 * len(self._live) + MAX_SPENT:
            self._expiry = [(each.expires_us, each.serial) for each in self._live.values()]
            heapq.heapify(self._expiry)

    def _keep(self, grant: Grant) -> None:
        self._live[grant.serial] = grant
        heapq.heappush(self._expiry, (grant.expires_us, grant.serial))

    def unspend(self, serial: int, cost: int) -> list[tuple[Ask, Verdict]]:
        """Put back what `spend` took, into its grants as far as these are still kept.

        A lease never grows above its size: tokens that were replaced meanwhile, or have expired,
        are returned here, in the form in which the store takes them back.
        """
        shares = self._shares.pop(serial, None) or [(serial, cost)]
        returns = [self._unspend(*share) for share in shares]
        return [each for each in returns if each is not None]

    def _unspend(self, serial: int, cost: int) -> tuple[Ask, Verdict] | None:
        grant = self._live.get(serial) or self._spent.get(serial)
        if grant is None:
            return None
        lease = grant.lease
        is_over = grant.expires_us <= self._clock()
        if is_over or lease.held + lease.asked + cost > lease.size:
            return grant.as_return(cost)
        if serial in self._spent:
            del self._spent[serial]
            self._keep(grant)
            lease.grants.appendleft(grant)
        grant.unused += cost
        lease.held += cost
        return None

    def answered(
        self, limit: Limit, key: str, terms: Leased, ask: Ask, answer: StoreAnswer
    ) -> Decision:
        """Process the store's decision on `ask`, a request of this key.

        Returns:
            The decision with what is held here counted as remaining: it could pass now, too.
        """
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        decision, asked_us = answer
        if lease is None:
            return decision
        held = lease.usable(now_us)
        retry_after_us = decision.retry_after_us
        if ask.cost:
            lease.decision, lease.decided_us = decision, now_us
            lease.refusal = None
        # The store's time at which a request passes leaves out what is held here.
        if not decision.allowed and retry_after_us != NEVER and not held and not lease.asked:
            lease.refusal = _Refusal(
                ask.cost,
                min(ask.max_wait_us, limit.max_wait_us),
                asked_us + min(retry_after_us, terms.lifetime_us),
                now_us + retry_after_us,
            )
        if not held:
            return decision
        return decision._replace(remaining=min(decision.remaining + held, limit.burst))

    def lacking(self, limit: Limit, key: str, cost: int) -> int | None:
        """Return how many tokens a request that the store has just refused lacks here.

        Returns:
            0 if enough is held, so that it may pass after all; how many to ask the store for if it
            has as many left; None if the request is over the limit.
        """
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        held = lease.usable(now_us) if lease is not None else 0
        if lease is None or lease.decision is None or not held:
            return None
        if held >= cost:
            return 0
        return cost - held if held + lease.decision.remaining >= cost else None

    def is_asked(self, limit: Limit, key: str) -> bool:
        """Return whether an ask for tokens is in flight."""
        lease = self._leases.get((limit.scope, key), self._clock())
        return lease is not None and lease.asked > 0

    def fill(self, limit: Limit, key: str, tokens: int) -> None:
        """Note that the store is asked for tokens that one request lacks; an answer follows."""
        lease = self._leases.get((limit.scope, key), self._clock())
        if lease is not None:
            lease.asked = tokens

    def surplus(self, limit: Limit, key: str) -> list[tuple[Ask, Verdict]]:
        """Remove what a lease holds above its size; return it as returns to the store."""
        lease = self._leases.get((limit.scope, key), self._clock())
        returns: list[tuple[Ask, Verdict]] = []
        while lease is not None and lease.held > lease.size:
            grant = lease.grants[-1]
            tokens = min(grant.unused, lease.held - lease.size)
            returns.append(grant.as_return(tokens))
            grant.unused -= tokens
            lease.held -= tokens
            if not grant.unused:
                lease.grants.pop()
                del self._live[grant.serial]
        return returns

    def wanted(self, limit: Limit, key: str) -> int:
        """Return how many tokens to ask the store for now; then `granted` or `denied` follows.

        When half of the lease is spent it is refilled, with at most half of what the store has:
        other gateways need some too.
        """
        lease = self._leases.get((limit.scope, key), self._clock())
        if lease is None or lease.decision is None or lease.asked or not lease.is_warm:
            return 0
        left = lease.decision.remaining
        if 2 * lease.held > lease.size or left < 1:
            return 0
        lease.asked = min(lease.size - lease.held, max(left // 2, 1))
        return lease.asked

    def granted(
        self, limit: Limit, key: str, terms: Leased, tokens: int, decision: Decision, asked_us: int
    ) -> None:
        """Add the tokens that the store granted, asked for at `asked_us`."""
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is None:
            # Forgotten meanwhile; what was granted goes back when it expires.
            lease = Lease(tokens, now_us)
        lease.asked = 0
        lease.decision, lease.decided_us = decision, now_us
        self._serial += 1
        grant = Grant(self._serial, lease, limit, key, tokens, decision)
        lifetime_us = terms.lifetime_us
        if limit.algorithm == "fixed_window":
            # What a window granted must not be spent in the next one.
            lifetime_us = min(lifetime_us, decision.reset_us)
        grant.expires_us = asked_us + lifetime_us
        lease.grants.append(grant)
        lease.held += tokens
        self._keep(grant)

    def denied(self, limit: Limit, key: str, decision: Decision | None) -> None:
        """Note that the store granted none: it refused, or did not answer."""
        now_us = self._clock()
        lease = self._leases.get((limit.scope, key), now_us)
        if lease is not None:
            lease.asked = 0
            if decision is not None:
                lease.decision, lease.decided_us = decision, now_us

    def expired(self) -> list[tuple[Ask, Verdict]]:
        """Remove the expired grants; return their tokens for the store."""
        return self._take_out(self._clock())

    def close(self) -> list[tuple[Ask, Verdict]]:
        """Remove all grants; return their tokens for the store."""
        return self._take_out(None)

    def _take_out(self, until_us: int | None) -> list[tuple[Ask, Verdict]]:
        returns: list[tuple[Ask, Verdict]] = []
        while self._expiry and (until_us is None or self._expiry[0][0] <= until_us):
            grant = self._live.pop(heapq.heappop(self._expiry)[1], None)
            if grant is not None:
                returns.append(grant.as_return(grant.unused))
                grant.lease.held -= grant.unused
                grant.unused = 0
                grant.lease.grants.remove(grant)
        return returns


def _spent(lease: Lease, limit: Limit, serial: int, now_us: int) -> Decision:
    """Return an admission from the lease; its remainder is the lease plus the store's last one."""
    last = lease.decision
    assert last is not None, "a grant came with a decision"
    left = min(lease.held + last.remaining, limit.burst)
    reset_us = max(last.reset_us - (now_us - lease.decided_us), 1)
    return Decision(True, 0, 0, last.limit, left, reset_us, serial)


def _still_refused(lease: Lease, refusal: _Refusal, wait_us: int, now_us: int) -> Decision:
    """Return the store's refusal, a little later; a shorter permitted wait passes later."""
    last = lease.decision
    assert last is not None, "it was refused by a decision"
    elapsed_us = now_us - lease.decided_us
    return last._replace(
        allowed=False,
        wait_us=0,
        retry_after_us=refusal.passes_us + refusal.wait_us - wait_us - now_us,
        reset_us=max(last.reset_us - elapsed_us, 1),
    )
