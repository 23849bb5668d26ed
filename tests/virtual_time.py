"""An event loop whose time passes only while nothing is to be done: no test waits for real."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.base.clock import ManualClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; if nothing is, time passes at once."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self._clock.advance(us=math.ceil(timeout * 1_000_000))
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Attributes: clock: the loop's time in microseconds; moving it by hand stalls the loop."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000_000)
        super().__init__(_Selector(self.clock))

    def time(self) -> float:
        """Seconds of `clock`."""
        return self.clock() / 1_000_000


def clock() -> ManualClock:
    """The clock of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.clock


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on a loop of virtual time, which must be left without tasks."""

    async def checked() -> T:
        result = await work
        for _ in range(3):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(checked())
