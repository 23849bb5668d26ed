"""What every store is to the limiter.

A store keeps the state of keys and decides on requests atomically. Its contract:

- `decide` answers a batch, one verdict per ask, in order. The limits of one ask are all
  spent or none is; asks of one batch are decided one after the other, as listed.
- The time of a decision is the store's own, the same for everybody who shares it.
- A key's state is never kept longer than it can matter.
- Only `StoreError` is raised. After an error the asks may or may not have been counted.
- `give_back` undoes an allowed ask as far as that cannot let too much through; of a limit on
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
    """The limits of asks about one limit: the same object each time, which stores know it by."""
    return (limit,)


PROBE: Final = "probe"
"""The scope of questions that only find out whether a store decides; it belongs to no policy."""


class Ask(NamedTuple):
    """A question to a store: may this request pass all of these limits?

    Attributes:
        limits: the limits, in the policy's order.
        keys: for each limit the identity that is counted, such as an address. What a store
            keeps it under is the limit's `scope` and the identity together.
        cost: what the request costs; 0 looks without taking.
        max_wait_us: how long the request would wait for its turn, at most. Each limit also
            has a `max_wait_us` of its own: the smaller of the two is what its algorithm is
            given (a limit without a queue refuses at once whatever the others allow). `DEBIT`
            (`limits.decision`) is what was used already; only a `DebitStore` is asked that.
    """

    limits: tuple[Limit, ...]
    keys: tuple[str, ...]
    cost: int
    max_wait_us: int


class Introduced(Ask):
    """An ask that also says something about the request, for a store that reports it.

    Attributes:
        about: for logs.
    """

    about: bytes = b""


@runtime_checkable
class Store(Protocol):
    """Keeps counts; see the module's docstring for the contract."""

    async def start(self) -> None:
        """Connect in the background; never fails because the store is not there yet."""

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch. Raises `StoreError` only."""

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`, which `ask` got.

        Raises:
            StoreError: it may be undone or not. If it stays spent, too little may pass, never
                more.
        """

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed `ask` holds for another lease.

        Only limits whose algorithm has a `renew` hold anything (concurrency: a slot for
        `Limit.period_us`); all others are passed over, and an ask of none but those is
        answered without asking anybody. Whoever holds slots for long calls this well before
        `period_us` has passed, such as each third of it.

        Returns:
            Whether all of it was still held; False for a refused ask, which holds nothing. What
            had expired stays lost: its place may be taken. The rest is renewed all the same.

        Raises:
            StoreError: it may or may not be kept; it may be tried again until the lease is over.
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

    Asks of one shard are answered or fail together; those of different ones are asked apart, each
    under a deadline and a breaker of its own, so that a server that is lost concerns its keys only.
    """

    def shard(self, ask: Ask) -> Hashable:
        """Which servers an ask needs, as far as is known now."""


@runtime_checkable
class NoBackfillStore(Store, Protocol):
    """Marker: after an outage, do not report to this store what was admitted without it.

    For example a store that counts each question: reporting a thousand requests would be a thousand
    more questions, just when it has come back.
    """

    is_told_afterwards: Literal[False]


@runtime_checkable
class DebitStore(Store, Protocol):
    """A store that may count debits: what was used already, whatever the limit says.

    To others they are put as requests, which are counted if there is room.

    Attributes:
        counts_debits: whether it does.
    """

    counts_debits: bool


def counts_debits(store: Store) -> bool:
    """Whether a store counts debits."""
    return isinstance(store, DebitStore) and store.counts_debits


@runtime_checkable
class ImmediateStore(Store, Protocol):
    """A store in this process: it decides without waiting for anything."""

    def decide_now(self, ask: Ask) -> Verdict:
        """Decide on one ask at once."""

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo at once."""

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what is held at once; see `renew`."""


@runtime_checkable
class MessagingStore(Store, Protocol):
    """A store that sends and receives messages that no request waits for.

    Attributes:
        messages: how many there were, by what they say and what came of them.
    """

    messages: defaultdict[tuple[str, str], int]


@runtime_checkable
class WarningStore(Store, Protocol):
    """A store that decides, and may warn of how well.

    Attributes:
        warning: what the operator should know now; empty if all is well.
    """

    @property
    def warning(self) -> str:
        """See the class."""


@runtime_checkable
class PreparedStore(Store, Protocol):
    """A store that works better if it knows beforehand what it will be asked about."""

    def expect(self, policies: Mapping[str, Sequence[Limit]]) -> None:
        """Take note; called at most once, before `start`.

        Args:
            policies: their limits, by the names of policies.
        """
