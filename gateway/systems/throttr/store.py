"""Fixed windows in a Throttr server, shared by every gateway that uses the same domain.

The server has one operation that decides: take a cost from a counter unless less is left. So one
limit is exact for any number of gateways, in one round trip for a whole batch. If a request has
several limits, they are first queried and then taken; if one refuses after all, the others are
given back. Meanwhile other requests may be refused that would have passed; no request passes that
would not have. The requests are made in `spending` and `codec_v5`, and sent in `pipe`.

The server does not know deadlines: if its answer is too late, this gateway gives the cost back when
the answer arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar, Unpack

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Tasks
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.settings import StoreOptions, StoreSettings
from gateway.systems.throttr.heartbeat import ThrottrHeartbeat
from gateway.systems.throttr.pipe import ThrottrPipe
from gateway.systems.throttr.server_connection import ThrottrServerConnection
from gateway.systems.throttr.spending import Dialogue, ServerDialogue
from gateway.systems.throttr.store_url import parse_throttr_url

T = TypeVar("T")

START_WAIT_S: Final = 1.0
MARGIN_US: Final = 20_000
"""Nothing is given back to a window that ends this soon; longer if the deadline is longer."""
CLOSE_S: Final = 0.5


class ThrottrStore:
    """A `Store` in one Throttr server: fixed windows without a calendar or a queue.

    Args:
        url: `throttr+v5://host[:port][?size=8|16|32|64]`; size is the bits of the server's numbers,
            by default 16.
        domain: see `StoreSettings`.
        options: likewise.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str,
        **options: Unpack[StoreOptions],
    ) -> None:
        settings = StoreSettings(domain, **options)
        address = parse_throttr_url(url)
        self._says = ServerDialogue(
            domain, address.size, max(settings.deadline_us, MARGIN_US), settings.clock
        )
        self._clock = settings.clock
        self._link = ThrottrServerConnection(address, clock=settings.clock)
        self._heartbeat = ThrottrHeartbeat(domain, address.size, settings.heartbeat_s, self._link)
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<ThrottrStore {self._link!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        return self._link.is_ready

    @property
    def gateways(self) -> int:
        """How many gateways share this store, as last seen; at least 1."""
        return self._heartbeat.gateways

    async def start(self) -> None:
        """Connect in the background.

        Wait for it if the server is reachable: requests before that would be counted by this
        gateway alone.
        """
        self._link.start()
        await self._link.tried(START_WAIT_S)
        self._heartbeat.start()

    async def aclose(self) -> None:
        """Finish calls in progress, sign off and close; no calls may follow."""
        await self._tasks.finish(CLOSE_S)
        await self._heartbeat.aclose()
        await self._link.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch: one round trip, or two if some ask has several limits.

        Raises:
            StoreUnavailable: not connected, or too many calls are unanswered (both raised without
                waiting), or the server is full.
            StoreReplyError: the answer is invalid.
            StoreError: the server does not support a limit.
        """
        if not asks:
            return ()
        pipe = self._link.pipe
        answer: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
        # In a task, so that costs taken after the caller has left are given back.
        self._tasks.start(self._answer(pipe, asks, answer))
        return await answer

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`, only in windows that are certainly those it was taken from.

        The check and the request are not atomic: if the server stalls between them for longer than
        the rest of the window, it counts the cost in the next window.

        Raises:
            StoreError: it may be undone or not. If it stays spent, too few requests may pass, never
                too many.
        """
        if verdict.allowed and ask.cost:
            await self._talk(self._link.pipe, self._says.give_back(ask, verdict))

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Return whether it was admitted: this store has no limits with leases."""
        return verdict.allowed

    async def _answer(
        self, pipe: ThrottrPipe, asks: Sequence[Ask], answer: asyncio.Future[list[Verdict]]
    ) -> None:
        try:
            verdicts = await self._talk(pipe, self._says.decide(asks))
        except StoreError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        except BaseException:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the store is closed", "closed"))
            raise
        if not answer.done():
            answer.set_result(verdicts)
            return
        for ask, verdict in zip(asks, verdicts, strict=True):
            if verdict.allowed and ask.cost:
                try:
                    await self._talk(pipe, self._says.give_back(ask, verdict))
                except StoreError:
                    return  # It stays spent: too few requests may pass then, never too many.

    async def _talk(self, pipe: ThrottrPipe, dialogue: Dialogue[T]) -> T:
        """Run a dialogue with the server, and return its result."""
        try:
            requests = next(dialogue)
            while True:
                sent_us = self._clock()
                requests = dialogue.send((await pipe.call(requests), sent_us))
        except StopIteration as end:
            result: T = end.value
            return result
