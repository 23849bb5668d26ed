"""Blocking work in threads that nothing waits for, not even the end of the process.

`asyncio.to_thread` is for work that ends. Reading a pipe or a file system that hangs may not, and
then the thread of a pool would keep the process from ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar, cast

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Return the result of blocking work.

    If the task is cancelled, the work continues, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(found: Result | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("Result", found))

    def run() -> None:
        found, failed = None, None
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failed = error
        # The loop may have been closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found, failed)

    Thread(target=run, name="blocking work", daemon=True).start()
    return await future
