"""Time limits without timers.

A timer of the event loop for each phase of each request costs more than the rest of a small
request's bookkeeping. Here a connection only notes when its time will be over, and all
connections are looked at a few times within the shortest limit: a limit is kept to within a
quarter of itself, or a quarter of a second for long ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sized
from typing import Final, Protocol

LONGEST_TICK_S: Final = 0.25
SHORTEST_TICK_S: Final = 0.005


class Expiring(Protocol):
    """What can be watched."""

    due: float

    def expire(self) -> None:
        """Called once the loop's time is past `due`; must set `due` again."""


class ExpiringSet(Sized, Iterable[Expiring], Protocol):
    """The connections that are open at the moment; may change at any time."""


class Watch:
    """Looks after the items of a collection, as long as it has any.

    Args:
        items: iterated again each time.
        shortest: the shortest limit that items may have, in seconds.
    """

    __slots__ = ("_items", "_loop", "_tick_s", "_timer")

    def __init__(self, items: ExpiringSet, shortest: float) -> None:
        self._items = items
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._tick_s = 0.0
        self.set(shortest)

    def start(self) -> None:
        """An item was added: begin to look, if not yet begun."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._look)

    def keep_to(self, shortest: float) -> None:
        """Look often enough for a limit of so many seconds as well."""
        self._tick_s = min(self._tick_s, max(shortest / 4, SHORTEST_TICK_S))

    def set(self, shortest: float) -> None:
        """Look often enough for a limit of so many seconds, in place of all others so far."""
        self._tick_s = min(max(shortest / 4, SHORTEST_TICK_S), LONGEST_TICK_S)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for item in [item for item in self._items if item.due <= now]:
            item.expire()
        if len(self._items):
            self.start()
