"""The interface between every store and the limiter.

A store keeps the state of keys and decides on requests atomically. Its contract:

- `decide` answers a batch, one verdict per ask, in order. The limits of one ask are all
  spent or none is; asks of one batch are decided one after the other, as listed.
- The time of a decision is the store's own, the same for all gateways that share it.
- A key's state is never kept longer than it can matter.
- Only `StoreError` is raised. After an error the asks may or may not have been counted.
- `give_back` undoes an allowed ask as far as that cannot admit too much; for a limit on
  concurrency it releases the slot.
- `renew` keeps the slots of an allowed ask; other limits have nothing to renew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit


@lru_cache(maxsize=4096)
def only(limit: Limit) -> tuple[Limit, ...]:
    """Return the limits of an ask about one limit: the same object each time, as stores expect."""
    return (limit,)


PROBE: Final = "probe"
"""The scope of asks that only find out whether a store decides; it belongs to no policy."""


class Ask(NamedTuple):
    """An ask to a store: may this request pass all of these limits?

    Attributes:
        limits: the limits, in the policy's order.
        keys: for each limit the identity that is counted, such as an address. A store keeps its
            state under the limit's `scope` and the identity together.
        cost: what the request costs; 0 looks without taking.
        max_wait_us: how long the request may wait for its turn, at most. Each limit also has a
            `max_wait_us` of its own; its algorithm gets the smaller of the two (a limit without a
            queue refuses immediately whatever the others allow). `DEBIT` (`limits.decision`) is
            for what was used already; only a `DebitStore` receives it.
    """

    limits: tuple[Limit, ...]
    keys: tuple[str, ...]
    cost: int
    max_wait_us: int

    @property
    def costs(self) -> tuple[int, ...]:
        """What the request costs under each limit, if that is not the same for all; else empty.

        Each is at least 1, and `cost` is the greatest of them.
        """
        return ()

    @property
    def each_cost(self) -> tuple[int, ...]:
        """What the request costs under each limit."""
        return self.costs or (self.cost,) * len(self.limits)

    def with_costs(self, costs: Sequence[int]) -> Ask:
        """Return the same ask with these costs of its limits."""
        if not costs:
            return self
        limits, keys, _, max_wait_us = self
        most = max(costs)
        if min(costs) == most:
            return Ask(limits, keys, most, max_wait_us)
        found = WeightedAsk(limits, keys, most, max_wait_us)
        found.weights = tuple(costs)
        return found

    def part(self, places: Sequence[int], limits: tuple[Limit, ...] | None = None) -> Ask:
        """Return the ask about some of its limits.

        Args:
            places: their positions.
            limits: those limits, if there is a tuple of them that stores know already.
        """
        if limits is None:
            limits = tuple([self.limits[place] for place in places])
        found = self._replace(limits=limits, keys=tuple([self.keys[place] for place in places]))
        return found.with_costs([self.costs[place] for place in places] if self.costs else ())


class WeightedAsk(Ask):
    """An ask of a request that costs different amounts under its limits.

    Attributes:
        weights: the costs.
    """

    weights: tuple[int, ...] = ()

    @property
    def costs(self) -> tuple[int, ...]:
        """See `Ask.costs`."""
        return self.weights


class DescribedAsk(Ask):
    """An ask that also describes the request, for a store that reports it.

    Attributes:
        about: the description, for logs.
    """

    about: bytes = b""


@runtime_checkable
class Store(Protocol):
    """Keeps counts; see the module's docstring for the contract."""

    async def start(self) -> None:
        """Connect in the background; never fail because the server is not there yet."""

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch. Raises `StoreError` only."""

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`, the answer to `ask`.

        Raises:
            StoreError: it may or may not have been undone. If it stays spent, too little may pass,
                never more.
        """

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed `ask` holds for another lease.

        Only limits whose algorithm has a `renew` hold anything (concurrency: a slot for
        `Limit.period_us`); all others are ignored, and an ask without such a limit is answered
        without a call. To hold slots for long, call this well before `period_us` has passed, such
        as each third of it.

        Returns:
            Whether all of it was still held; False for a refused ask, which holds nothing. What
            had expired stays lost, since its slot may be taken; the rest is renewed all the same.

        Raises:
            StoreError: it may or may not be kept; retry until the lease expires.
        """

    async def aclose(self) -> None:
        """Close connections; nothing may be asked afterwards."""

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""

    @property
    def gateways(self) -> int:
        """How many gateways share this store, this one included, as last seen; at least 1."""


@runtime_checkable
class ShardedStore(Store, Protocol):
    """A store of several servers, some of which may fail while others serve.

    Asks of one shard are answered or fail together. Those of different shards are sent separately,
    each shard with its own deadline and breaker, so that a lost server affects only its own keys.
    """

    def shard(self, ask: Ask) -> Hashable:
        """Return which servers an ask needs, as far as is known now."""


@runtime_checkable
class NoBackfillStore(Store, Protocol):
    """Marker: after an outage, do not report to this store what was admitted without it.

    For example a store that counts each ask: reporting a thousand requests would take a thousand
    more asks, just when it has become available again.
    """

    is_told_afterwards: Literal[False]


@runtime_checkable
class DebitStore(Store, Protocol):
    """A store that may count debits: what was used already, whatever the limit says.

    Other stores receive debits as requests, which are counted if there is room.

    Attributes:
        counts_debits: whether this store counts debits.
    """

    counts_debits: bool


def counts_debits(store: Store) -> bool:
    """Return whether a store counts debits."""
    return isinstance(store, DebitStore) and store.counts_debits


@runtime_checkable
class ImmediateStore(Store, Protocol):
    """A store in this process: it decides without waiting for anything."""

    def decide_now(self, ask: Ask) -> Verdict:
        """Decide on one ask immediately."""

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo a verdict immediately."""

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what is held, immediately; see `renew`."""


@runtime_checkable
class MessagingStore(Store, Protocol):
    """A store that sends and receives messages that no request waits for.

    Attributes:
        messages: how many messages there were, by kind and result.
    """

    messages: defaultdict[tuple[str, str], int]


@runtime_checkable
class WarningStore(Store, Protocol):
    """A store that decides, and may warn about its condition.

    Attributes:
        warning: what the operator should know now; empty if there is no problem.
    """

    @property
    def warning(self) -> str:
        """See the class."""


@runtime_checkable
class PreparedStore(Store, Protocol):
    """A store that works better if it knows its limits in advance."""

    def expect(self, policies: Mapping[str, Sequence[Limit]]) -> None:
        """Take note of the limits; called before `start`, and again when a reload changes them.

        Args:
            policies: the limits, by the names of policies.
        """
