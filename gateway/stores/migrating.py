"""Moving from one store to another: both stores decide on the keys that move.

The old store counts everything until no gateway asks it any more, and the new one counts the keys
that have been chosen to move. A request passes if both admit it; if one refuses, what the other
took is given back. So gateways can be reconfigured one after the other, in any order: while some do
not move a key yet, the old store still sees all its requests; when all of them move it, the new one
does, and then the old one can be removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from gateway.base.clock import US, Clock, monotonic_us
from gateway.base.errors import StoreError, StoreReplyError
from gateway.base.tasks import Tasks, becomes
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, ShardedStore, Store, WarningStore, counts_debits
from gateway.stores.follower import Follower

log = logging.getLogger(__name__)

SHIFT: Final = 128
"""A receipt of both stores is one number: the new one's, plus one, above the old one's."""
NEW_STORE_S: Final = 0.25
"""How long a start waits for the new store."""

IsMoving = Callable[[Limit, str], bool]


def chosen(parts: int, policies: Sequence[str] = ()) -> IsMoving:
    """Return which keys move: the same ones on every gateway, and more with each larger share.

    Args:
        parts: how many of `PARTS_PER_WHOLE` keys.
        policies: the policies whose keys move; all if empty.
    """
    names = frozenset(policies)

    def is_moving(limit: Limit, key: str) -> bool:
        if names and not names & _policies_of(limit.scope):
            return False
        identity = f"{limit.scope}\0{key}".encode("utf-8", "surrogatepass")
        return crc32(identity) % PARTS_PER_WHOLE < parts

    return is_moving


def _policies_of(scope: str) -> set[str]:
    """Return what a limit's scope may be named after: a policy, or a tier or candidate of one."""
    name = scope.rpartition("/")[0]
    return {name, name.rpartition("~")[0]}


class _NewStorePart(NamedTuple):
    """The question to the new store: some limits of one ask."""

    at: int
    places: tuple[int, ...]
    ask: Ask


class MovingStore:
    """A `Store` made of two; `moving_store` makes the one that fits the old store.

    Args:
        old: counts everything; if it does not answer, neither does this store.
        new: counts what moves. While it does not answer, the old one decides alone.
        is_moving: returns whether a key moves.
        deadline_us: how long callers wait; the new store has half of that.
        metrics: counters of the new store's calls; those of the old one are kept by the caller.
        clock: this process's time.
    """

    def __init__(
        self,
        old: Store,
        new: Store,
        is_moving: IsMoving,
        *,
        deadline_us: int,
        metrics: StoreMetrics,
        clock: Clock = monotonic_us,
    ) -> None:
        self.counts_debits = counts_debits(old) and counts_debits(new)
        self._old = old
        self._both = (old, new)
        self._timeout_s = deadline_us / 2 / US
        self._new = Follower(new, metrics, timeout_us=deadline_us // 2, clock=clock)
        self._is_moving = is_moving
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<MovingStore from {self._old!r} to {self._new!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether the old store would answer."""
        return self._old.is_ready

    @property
    def is_new_ready(self) -> bool:
        """Whether the new store would answer."""
        return self._new.is_ready

    @property
    def gateways(self) -> int:
        """The larger number of the two stores."""
        return max(self._old.gateways, self._new.gateways)

    @property
    def warning(self) -> str:
        """The warnings of both stores."""
        said = [one.warning for one in self._both if isinstance(one, WarningStore)]
        return "; ".join(filter(None, said))

    async def start(self) -> None:
        """Start both, and wait a moment for the new one: it would miss what is asked before."""
        await self._old.start()
        await self._new.start()
        await becomes(lambda: self._new.is_ready, NEW_STORE_S)

    @property
    def parts(self) -> tuple[Store, Store]:
        """Return the old store and the new one."""
        return self._both

    async def aclose(self) -> None:
        """Close both."""
        await self.aclose_but(None)

    async def aclose_but(self, kept: Store | None) -> None:
        """Close both, but for one that is still in use elsewhere."""
        await self._tasks.finish(1)
        try:
            if self._old is not kept:
                await self._old.aclose()
        finally:
            await self._new.finish()
            if self._both[1] is not kept:
                await self._both[1].aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Ask both concurrently; both must admit a request.

        Raises:
            StoreError: the old store failed.
        """
        parts = [part for index, ask in enumerate(asks) if (part := self._part(index, ask))]
        if not parts:
            return await self._old.decide(asks)
        loop = asyncio.get_running_loop()
        is_due = loop.time() + self._timeout_s
        asking = loop.create_task(self._new.decide([part.ask for part in parts]))
        old: Sequence[Verdict] = ()
        try:
            old = await self._ask_old(asks)
            await asyncio.wait({asking})
        except BaseException:
            # Also after the caller's deadline: the decision reaches no request.
            self._tasks.start(self._take_back(asks, old, parts, asking))
            raise
        verdicts, undone = self._join(asks, old, parts, asking.result())
        # The next request should find it given back; but no decision is lost over the wait.
        await _wait(undone, is_due)
        return verdicts

    async def _ask_old(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        verdicts = await self._old.decide(asks)
        if len(verdicts) != len(asks):
            raise StoreReplyError("not one verdict for each ask")
        return verdicts

    def _part(self, at: int, ask: Ask) -> _NewStorePart | None:
        places = tuple(
            place
            for place, (limit, key) in enumerate(zip(ask.limits, ask.keys, strict=True))
            if self._is_moving(limit, key)
        )
        return _NewStorePart(at, places, _pick(ask, places)) if places else None

    def _join(
        self,
        asks: Sequence[Ask],
        old: Sequence[Verdict],
        parts: Sequence[_NewStorePart],
        new: Sequence[Verdict | None],
    ) -> tuple[list[Verdict], list[asyncio.Task[None]]]:
        """Return the joined verdicts, and tasks that give back what one store took for nothing."""
        verdicts = list(old)
        undone = []
        for part, answer in zip(parts, new, strict=True):
            if answer is None:
                continue
            ask, verdict = asks[part.at], verdicts[part.at]
            if verdict.allowed and not answer.allowed:
                undone.append(self._tasks.start(self._take_back_old(ask, verdict)))
            elif answer.allowed and not verdict.allowed:
                undone.append(self._tasks.start(self._new.give_back(part.ask, answer)))
            verdicts[part.at] = _join(verdict, part.places, answer)
        return verdicts, undone

    async def _take_back(
        self,
        asks: Sequence[Ask],
        old: Sequence[Verdict],
        parts: Sequence[_NewStorePart],
        asking: asyncio.Task[Sequence[Verdict | None]],
    ) -> None:
        """Give back everything that was admitted, once it is known."""
        pairs = zip(parts, await asking, strict=True)
        await asyncio.gather(
            *(
                self._new.give_back(part.ask, answer)
                for part, answer in pairs
                if answer is not None and answer.allowed
            ),
            *(
                self._take_back_old(ask, verdict)
                for ask, verdict in zip(asks, old, strict=False)  # None, if there was no answer.
                if verdict.allowed
            ),
        )

    async def _take_back_old(self, ask: Ask, verdict: Verdict) -> None:
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                await self._old.give_back(ask, verdict)
        except (StoreError, TimeoutError) as error:
            # It stays spent: too few requests may pass then, never too many.
            log.debug("the old store did not undo a decision that it made alone: %r", error)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo in both stores, whichever of them answers.

        Raises:
            StoreError: the old store did not answer.
        """
        is_due = asyncio.get_running_loop().time() + self._timeout_s
        old, part, new = _split(ask, verdict)
        undoing = [self._tasks.start(self._new.give_back(part, new))] if part.limits else []
        await self._old.give_back(ask, old)
        await _wait(undoing, is_due)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what is held in both stores, whichever of them answers.

        Returns:
            Whether the old store still held it.

        Raises:
            StoreError: the old store did not answer.
        """
        is_due = asyncio.get_running_loop().time() + self._timeout_s
        old, part, new = _split(ask, verdict)
        renewing = [self._tasks.start(self._new.renew(part, new))] if part.limits else []
        is_held = await self._old.renew(ask, old)
        await _wait(renewing, is_due)
        return is_held


class ShardedMovingStore(MovingStore):
    """A `ShardedStore` made of two, of which the old one is sharded."""

    _old: ShardedStore

    def shard(self, ask: Ask) -> Hashable:
        """Return which servers of the old store an ask needs: those must answer."""
        return self._old.shard(ask)


def moving_store(
    old: Store,
    new: Store,
    is_moving: IsMoving,
    *,
    deadline_us: int,
    metrics: StoreMetrics,
    clock: Clock = monotonic_us,
) -> MovingStore:
    """Return a store that moves from one to another, sharded if the old one is."""
    kind = ShardedMovingStore if isinstance(old, ShardedStore) else MovingStore
    return kind(old, new, is_moving, deadline_us=deadline_us, metrics=metrics, clock=clock)


async def _wait(tasks: Sequence[asyncio.Task[None]], is_due: float) -> None:
    """Wait for tasks until a given loop time; they continue in any case."""
    if tasks:
        rest = is_due - asyncio.get_running_loop().time()
        await asyncio.wait(tasks, timeout=max(rest, 0))


def _pick(ask: Ask, places: Sequence[int]) -> Ask:
    return ask.part(places)


def _join(old: Verdict, places: Sequence[int], new: Verdict) -> Verdict:
    decisions = list(old.decisions)
    for place, decision in zip(places, new.decisions, strict=True):
        decisions[place] = _stricter(decisions[place], decision)
    return combine(tuple(decisions))


def _stricter(old: Decision, new: Decision) -> Decision:
    """Return the stricter of two decisions, both of which must allow the request."""
    never = NEVER in (old.retry_after_us, new.retry_after_us)
    return Decision(
        old.allowed and new.allowed,
        max(old.wait_us, new.wait_us),
        NEVER if never else max(old.retry_after_us, new.retry_after_us),
        min(old.limit, new.limit),
        min(old.remaining, new.remaining),
        max(old.reset_us, new.reset_us),
        (new.receipt + 1 << SHIFT) + old.receipt,
    )


def _split(ask: Ask, verdict: Verdict) -> tuple[Verdict, Ask, Verdict]:
    """Return the old store's verdict, and the new one's ask and verdict, from the receipts."""
    decisions = verdict.decisions
    mask = (1 << SHIFT) - 1
    places = [place for place, each in enumerate(decisions) if each.receipt >> SHIFT]
    old = tuple(each._replace(receipt=each.receipt & mask) for each in decisions)
    new = tuple(
        decisions[place]._replace(receipt=(decisions[place].receipt >> SHIFT) - 1)
        for place in places
    )
    return (
        verdict._replace(decisions=old),
        _pick(ask, places),
        verdict._replace(decisions=new),
    )
