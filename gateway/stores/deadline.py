"""The deadline of one call to a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask, Store

log = logging.getLogger(__name__)

SLICES: Final = 4
"""A deadline is looked at so many times, so that it is known for how much of it this loop ran."""
LATE_BY: Final = 1.25
"""A look that comes after so many times its slice is late, and this loop was."""
MOST_LOOKS: Final = 3 * SLICES
"""After so many looks it is over, however late they were."""
QUESTIONS: Final = 3
"""How often a batch is asked at most, if the store gets to it too late each time."""


class Deadline:
    """Interrupts its task with `StoreTimeout` once the store has had its time.

    `asyncio.timeout` would do the same, but cannot distinguish a slow store from a stall of this
    process, during which the question may not have been sent, and after which the answer may lie
    unread. So the time of a store passes in slices. Of one that took longer than it should, since
    this loop was late, only the slice itself counts, and it is never the last. Create it in the
    `with` statement that uses it: its time begins when it is created.
    """

    __slots__ = ("_is_over", "_looks", "_loop", "_rest", "_since", "_slice", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._task = asyncio.current_task()
        self._rest = seconds
        self._slice = seconds / SLICES
        self._since = loop.time()
        self._looks = 0
        self._is_over = False
        self._timer = loop.call_later(self._slice, self._look)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise StoreTimeout("no answer within the deadline") from None

    def _look(self) -> None:
        self._looks += 1
        now = self._loop.time()
        passed, self._since = now - self._since, now
        if passed > self._slice * LATE_BY:
            self._rest = max(self._rest - self._slice, self._slice)
        else:
            self._rest -= passed
        if self._rest < 1e-6 or self._looks >= MOST_LOOKS:
            self._is_over = True
            if self._task is not None:
                self._task.cancel()
        else:
            self._timer = self._loop.call_later(min(self._slice, self._rest), self._look)


async def decide_within(store: Store, asks: Sequence[Ask], seconds: float) -> Sequence[Verdict]:
    """Return a store's answers; a late answer counts as none, unless this loop itself was late.

    Raises:
        StoreError: there is no answer, or not one verdict for each ask. Anything else that a
            store raises, against its contract, is converted to one.
    """
    with Deadline(asyncio.get_running_loop(), seconds):
        verdicts = await _ask(store, asks)
    if len(verdicts) != len(asks):
        raise StoreReplyError("not one verdict for each ask")
    return verdicts


async def _ask(store: Store, asks: Sequence[Ask], questions: int = QUESTIONS) -> Sequence[Verdict]:
    try:
        return await store.decide(asks)
    except StoreTimeout as error:
        if questions <= 1 or error.reason != "late":
            raise
    except StoreError:
        raise
    except Exception as error:
        # Against the contract; but the requests that wait must not wait forever.
        log.exception("The store failed in a way that it must not")
        raise StoreError("an error of another kind") from error
    # Nothing was spent, and there is time left: this loop was late too.
    return await _ask(store, asks, questions - 1)
