"""The deadline of one call to a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask, Store

log = logging.getLogger(__name__)


class Deadline:
    """Interrupts its task with `StoreTimeout`.

    `asyncio.timeout` would do the same, but cannot distinguish a slow store from a stall of this
    process. After a stall the answer may already be in the socket, so there is one more period to
    read it. Create it in the `with` statement that uses it: its time begins when it is created.
    """

    __slots__ = ("_due", "_is_extended", "_is_over", "_loop", "_seconds", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._task = asyncio.current_task()
        self._due = loop.time() + seconds
        self._timer = loop.call_later(seconds, self._end)
        self._is_extended = False
        self._is_over = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise StoreTimeout("no answer within the deadline") from None

    def _end(self) -> None:
        if not self._is_extended and self._loop.time() - self._due > self._seconds / 4:
            self._is_extended = True
            self._timer = self._loop.call_later(self._seconds, self._end)
        elif self._task is not None:
            self._is_over = True
            self._task.cancel()


async def decide_within(store: Store, asks: Sequence[Ask], seconds: float) -> Sequence[Verdict]:
    """Return a store's answers; a late answer counts as none, unless this loop itself was late.

    Raises:
        StoreError: there is no answer, or not one verdict for each ask. Anything else that a
            store raises, against its contract, is converted to one.
    """
    with Deadline(asyncio.get_running_loop(), seconds):
        try:
            verdicts = await store.decide(asks)
        except StoreError:
            raise
        except Exception as error:
            # Against the contract; but the requests that wait must not wait forever.
            log.exception("The store failed in a way that it must not")
            raise StoreError("an error of another kind") from error
    if len(verdicts) != len(asks):
        raise StoreReplyError("not one verdict for each ask")
    return verdicts
