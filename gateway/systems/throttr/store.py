"""Fixed windows in a Throttr server, shared by every gateway that uses the same domain.

The server has one operation that decides: take so much of a counter unless less is left. So one
limit is exact among any number of gateways, in one round trip for a whole batch. Of several
limits of one request all are looked at and then all are taken; what was taken is given back if
one of them refuses after all. For that moment others may be refused that would have passed, and
no request passes that would not. What goes over the wire is in `spending` and `codec_v5`,
how it gets there `throttr_link`.

The server cannot be told after which time an answer is too late. What comes too late is
given back here, when the answer has come.
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
"""Nothing is given back to a window that ends so soon; longer if the deadline is."""
CLOSE_S: Final = 0.5


class ThrottrStore:
    """A `Store` in one Throttr server: fixed windows without a calendar or a queue.

    Args:
        url: `throttr+v5://host[:port][?size=8|16|32|64]`, the size being that of the numbers
            of the server, 16 bits if left out.
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

        A server that is there is waited for: what came before the connection stood would be
        counted by this gateway alone.
        """
        self._link.start()
        await self._link.tried(START_WAIT_S)
        self._heartbeat.start()

    async def aclose(self) -> None:
        """Finish what is under way, sign off and close; nothing may be asked afterwards."""
        await self._tasks.finish(CLOSE_S)
        await self._heartbeat.aclose()
        await self._link.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch: one round trip, or two if some ask has several limits.

        Raises:
            StoreUnavailable: not connected, or too much is unanswered, at once; or the server is
                full.
            StoreReplyError: the answer cannot be understood.
            StoreError: a limit cannot be kept in such a server.
        """
        if not asks:
            return ()
        pipe = self._link.pipe
        answer: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
        # A task of its own: what is taken when the caller has left is given back.
        self._tasks.start(self._answer(pipe, asks, answer))
        return await answer

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`, in windows that are certainly those it was taken from.

        Nothing says so to the server in the same breath as it is given back: one that stands
        still for longer than the rest of the window, right then, would count it in the next.

        Raises:
            StoreError: it may be undone or not. If it stays spent, too little may pass, never
                more.
        """
        if verdict.allowed and ask.cost:
            await self._talk(self._link.pipe, self._says.give_back(ask, verdict))

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """No limit in such a server holds anything."""
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
                    return  # It stays spent: too little may pass then, never too much.

    async def _talk(self, pipe: ThrottrPipe, dialogue: Dialogue[T]) -> T:
        """Say what is to be said, and hand over the answers."""
        try:
            requests = next(dialogue)
            while True:
                sent_us = self._clock()
                requests = dialogue.send((await pipe.call(requests), sent_us))
        except StopIteration as end:
            result: T = end.value
            return result
