"""Telling a store what was let through without it, before it decides on the same keys again.

A store that is back knows nothing of what passed meanwhile. So whoever asks for a key of which it
was not told tells it in the same call, in front of the question; the other keys follow by
themselves. Nobody knows whether a call that failed was counted, and nothing must be counted twice:
what it told is lost. So where the last call failed, a question that takes nothing goes ahead of
it, and then the report of one key alone, for servers may answer and not count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import StoreError
from gateway.base.tasks import Tasks
from gateway.limiter.fallback import Fallback
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.shards import PROBE_AFTER_US, Shard, Shards

REPORTED_AT_ONCE: Final = 64
"""Keys of which the store is told in one call: few, since requests may have to wait for it."""

Call = Callable[[list[Ask]], Awaitable[Sequence[Verdict]]]


class Backfill:
    """Tells one store; to be used inside an event loop.

    Args:
        fallback: knows what was let through.
        shards: which of the store's servers are asked.
        call: asks the store; raises `StoreError` if there is no answer in time.
        tasks: what runs beside the requests.
    """

    def __init__(self, fallback: Fallback, shards: Shards, call: Call, tasks: Tasks) -> None:
        self._fallback = fallback
        self._shards = shards
        self._call = call
        self._tasks = tasks
        # What is set when calls do not fail any more.
        self._telling: dict[Hashable, asyncio.Event] = {}
        self._is_closing = False

    def close(self) -> None:
        """Tell nothing from now on."""
        self._is_closing = True

    def tell(self) -> None:
        """Tell those servers that are asked, in the background; where calls fail, once they do not.

        Nobody may ask again for what a store does not know.
        """
        if self._is_closing:
            return
        for name in self._fallback.unreported:
            shard = self._shards[name]
            if name in self._telling:
                if not shard.has_failed:
                    self._telling[name].set()
            elif shard.is_in_use:
                self._telling[name] = asyncio.Event()
                self._tasks.start(self._tell(name))

    async def before(self, shard: Shard, asks: Sequence[Ask]) -> list[Ask]:
        """What is to be said in front of some questions, in the same call.

        Raises:
            StoreError: it is not to be asked now; what is not told was not lost, but for one key.
        """
        if not self._fallback.has_unreported_of(asks):
            return []
        if shard.has_failed or shard.is_on_trial:
            await self._call([asks[0]._replace(cost=0)])
            first = self._fallback.reports_of(asks, at_most=1)
            if first:
                self._shards.succeeded(shard, first, await self._call(first))
        return self._fallback.reports_of(asks)

    async def _tell(self, name: Hashable) -> None:
        shard = self._shards[name]
        try:
            while shard.is_in_use and name in self._fallback.unreported:
                if shard.has_failed:
                    await self._patience(self._telling[name])
                # Requests go on meanwhile, whoever chose so many keys.
                await asyncio.sleep(0)
                if shard.is_in_use:
                    await self._tell_some(shard, name)
        finally:
            del self._telling[name]

    async def _patience(self, is_well: asyncio.Event) -> None:
        is_well.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_AFTER_US / US):
                await is_well.wait()

    async def _tell_some(self, shard: Shard, name: Hashable) -> None:
        asked = self._fallback.looks(name)
        if not asked:
            return
        try:
            if shard.has_failed:
                await self._call(asked)
            # Who has not counted anything yet may fail: that costs one key then, and not all.
            is_sure = not (shard.has_failed or shard.is_on_trial)
            asked = self._fallback.reports(name, REPORTED_AT_ONCE if is_sure else 1)
            if asked:
                self._shards.succeeded(shard, asked, await self._call(asked))
        except StoreError as error:
            self._shards.failed(shard, error, asked[0])
