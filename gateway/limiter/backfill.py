"""Report admissions to a store that is available again, before it decides on the same keys.

After an outage the store does not know what was admitted without it. A request for an unreported
key therefore carries the report in the same call, ahead of its own ask; the other keys are reported
in the background. A failed call may or may not have been counted, and nothing may be counted
twice, so the reports in a failed call are dropped. To limit that loss, after a failed call an ask
that takes nothing goes first, and then the report of a single key, since a server may answer
without counting.
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
"""Keys reported in one call: few, since requests may have to wait for it."""

Call = Callable[[list[Ask]], Awaitable[Sequence[Verdict]]]


class Backfill:
    """Reports to one store; use it inside an event loop.

    Args:
        fallback: holds what was admitted.
        shards: tells which of the store's servers are in use.
        call: sends asks to the store; raises `StoreError` if there is no answer in time.
        tasks: runs background work.
    """

    def __init__(self, fallback: Fallback, shards: Shards, call: Call, tasks: Tasks) -> None:
        self._fallback = fallback
        self._shards = shards
        self._call = call
        self._tasks = tasks
        # Set when calls succeed again.
        self._telling: dict[Hashable, asyncio.Event] = {}
        self._is_closing = False

    def close(self) -> None:
        """Stop reporting."""
        self._is_closing = True

    def tell(self) -> None:
        """Report to the servers in use, in the background; where calls fail, once they succeed.

        Keys that no request asks for again are reported this way.
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
        """Return the reports to send ahead of these asks, in the same call.

        Raises:
            StoreError: the asks must not be sent now. At most the report of one key was lost.
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
                    await self._timeout(self._telling[name])
                # Let requests run in between, however many keys clients have chosen.
                await asyncio.sleep(0)
                if shard.is_in_use:
                    await self._report_some(shard, name)
        finally:
            del self._telling[name]

    async def _timeout(self, is_well: asyncio.Event) -> None:
        is_well.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_AFTER_US / US):
                await is_well.wait()

    async def _report_some(self, shard: Shard, name: Hashable) -> None:
        asked = self._fallback.probes(name)
        if not asked:
            return
        try:
            if shard.has_failed:
                await self._call(asked)
            # A server that has not counted anything yet may fail: that then costs one key, not all.
            is_sure = not (shard.has_failed or shard.is_on_trial)
            asked = self._fallback.reports(name, REPORTED_AT_ONCE if is_sure else 1)
            if asked:
                self._shards.succeeded(shard, asked, await self._call(asked))
        except StoreError as error:
            self._shards.failed(shard, error, asked[0])
