"""Moving from one store to another: what moves is held to both.

The old store counts everything until nobody asks it any more, and the new one counts what has
been chosen to move. A request passes if both let it pass; if one refuses, what the other took is
given back. So gateways may be reconfigured one after the other, in any order: while some do not
move a key yet, the old store still sees all its requests; when all of them move it, the new one
does, and then the old one may be left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from gateway.errors import StoreError, StoreTimeout
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.limits.terms import PARTS_PER_WHOLE
from gateway.stores.base import Ask, Store

log = logging.getLogger(__name__)

US: Final = 1_000_000
SHIFT: Final = 128
"""A receipt of both stores is one number: the new one's, plus one, above the old one's."""

IsMoving = Callable[[Limit, str], bool]


def chosen(parts: int, policies: Sequence[str] = ()) -> IsMoving:
    """Which keys move: the same ones on every gateway, and more with each larger share.

    Args:
        parts: how many of `PARTS_PER_WHOLE` keys.
        policies: whose keys; everybody's if empty.
    """
    names = frozenset(policies)

    def is_moving(limit: Limit, key: str) -> bool:
        # The scope of a limit is its policy's name and what it counts by.
        if names and limit.scope.rpartition("/")[0] not in names:
            return False
        identity = f"{limit.scope}\0{key}".encode("utf-8", "surrogatepass")
        return crc32(identity) % PARTS_PER_WHOLE < parts

    return is_moving


class _Part(NamedTuple):
    """What the new store is asked: some limits of one ask."""

    at: int
    places: tuple[int, ...]
    ask: Ask


class MovingStore:
    """A `Store` that is two.

    Args:
        old: counts everything; if it does not answer, neither does this store.
        new: counts what moves. While it does not answer, the old one decides alone.
        is_moving: which keys move.
        deadline_us: how long callers wait; the new store has half of that.
    """

    def __init__(self, old: Store, new: Store, is_moving: IsMoving, *, deadline_us: int) -> None:
        self._old = old
        self._new = new
        self._is_moving = is_moving
        self._patience_s = deadline_us / 2 / US
        self._is_missed = False

    def __repr__(self) -> str:
        return f"<MovingStore from {self._old!r} to {self._new!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether the old store would answer."""
        return self._old.is_ready

    @property
    def gateways(self) -> int:
        """The most that either store has seen."""
        return max(self._old.gateways, self._new.gateways)

    async def start(self) -> None:
        """Start both."""
        await self._old.start()
        await self._new.start()

    async def aclose(self) -> None:
        """Close both."""
        await self._old.aclose()
        await self._new.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Ask both at once; a verdict of each has to be for it.

        Raises:
            StoreError: the old store failed.
        """
        parts = [part for index, ask in enumerate(asks) if (part := self._part(index, ask))]
        if not parts:
            return await self._old.decide(asks)
        old, new = await asyncio.gather(
            self._old.decide(asks),
            self._ask_new([part.ask for part in parts]),
            return_exceptions=True,
        )
        if isinstance(new, BaseException):
            raise new
        if isinstance(old, BaseException):
            await self._return(parts, new)
            raise old
        verdicts = list(old)
        undone: list[Awaitable[None]] = []
        for part, answer in zip(parts, new, strict=False):  # None, if it does not answer.
            ask, verdict = asks[part.at], verdicts[part.at]
            if verdict.allowed and not answer.allowed:
                undone.append(self._old.give_back(ask, verdict))
            elif answer.allowed and not verdict.allowed:
                undone.append(self._new.give_back(part.ask, answer))
            verdicts[part.at] = _join(verdict, part.places, answer)
        if undone:
            # What cannot be undone stays spent; the verdicts hold.
            await asyncio.gather(*undone, return_exceptions=True)
        return verdicts

    async def _return(self, parts: Sequence[_Part], verdicts: Sequence[Verdict]) -> None:
        """Give back all that the new store let through."""
        for part, verdict in zip(parts, verdicts, strict=False):
            if verdict.allowed:
                with contextlib.suppress(StoreError):
                    await self._new.give_back(part.ask, verdict)

    def _part(self, at: int, ask: Ask) -> _Part | None:
        places = tuple(
            place
            for place, (limit, key) in enumerate(zip(ask.limits, ask.keys, strict=True))
            if self._is_moving(limit, key)
        )
        return _Part(at, places, _pick(ask, places)) if places else None

    async def _ask_new(self, asks: list[Ask]) -> Sequence[Verdict]:
        """The new store's verdicts; none if it does not answer, which is logged once."""
        try:
            async with asyncio.timeout(self._patience_s):
                verdicts = await self._new.decide(asks)
        except (StoreError, TimeoutError) as error:
            reason = error.reason if isinstance(error, StoreError) else StoreTimeout.reason
            if not self._is_missed:
                self._is_missed = True
                log.warning("the store moved to does not decide (%s); the old one does", reason)
            return ()
        if self._is_missed:
            self._is_missed = False
            log.warning("the store moved to decides again")
        return verdicts

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo in both. Raises `StoreError` if one of them fails."""
        old, part, new = _split(ask, verdict)
        try:
            await self._old.give_back(ask, old)
        finally:
            if part.limits:
                await self._new.give_back(part, new)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what is held in both; the old store says whether it is."""
        old, part, new = _split(ask, verdict)
        is_held = await self._old.renew(ask, old)
        if part.limits:
            try:
                await self._new.renew(part, new)
            except StoreError as error:
                log.debug("the store moved to did not renew: %s", error)
        return is_held


def _pick(ask: Ask, places: Sequence[int]) -> Ask:
    limits = tuple(ask.limits[place] for place in places)
    keys = tuple(ask.keys[place] for place in places)
    return Ask(limits, keys, ask.cost, ask.max_wait_us)


def _join(old: Verdict, places: Sequence[int], new: Verdict) -> Verdict:
    decisions = list(old.decisions)
    for place, decision in zip(places, new.decisions, strict=True):
        decisions[place] = _stricter(decisions[place], decision)
    return combine(tuple(decisions))


def _stricter(old: Decision, new: Decision) -> Decision:
    """What holds if both must allow it."""
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
    """The old store's verdict, and what the new one was asked and answered, from the receipts."""
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
