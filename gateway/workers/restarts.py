"""When children are started and restarted; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.base.clock import US

STEADY_US: Final = 5 * US
"""A child that ran this long is restarted immediately; others after a pause."""
FIRST_PAUSE_US: Final = US // 10
LONGEST_PAUSE_US: Final = 5 * US


class Restarts:
    """The schedule of starts.

    Args:
        names: the names of all children; each is due immediately.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._due_us = dict.fromkeys(names, 0)
        self._pauses_us = dict.fromkeys(self._due_us, 0)

    def __bool__(self) -> bool:
        return bool(self._due_us)

    def __contains__(self, name: str) -> bool:
        return name in self._due_us

    def due(self, now_us: int) -> list[str]:
        """Return the children that are due; each is returned once per start."""
        names = [name for name, due_us in self._due_us.items() if due_us <= now_us]
        for name in names:
            del self._due_us[name]
        return names

    def next_us(self) -> int | None:
        """Return when the next one is due; None if none is."""
        return min(self._due_us.values(), default=None)

    def ended(self, name: str, lasted_us: int, now_us: int) -> None:
        """Schedule a restart of a child that ended: later, the more often it ended early."""
        if lasted_us >= STEADY_US:
            self._pauses_us[name] = 0
        pause_us = self._pauses_us[name]
        self._due_us[name] = now_us + pause_us
        self._pauses_us[name] = min(max(FIRST_PAUSE_US, 2 * pause_us), LONGEST_PAUSE_US)

    def schedule_successor(self, name: str, now_us: int) -> None:
        """Schedule the start of a successor of a child that is about to end."""
        self._due_us[name] = now_us + FIRST_PAUSE_US

    def later(self, name: str, now_us: int) -> None:
        """Reschedule a child that cannot be started now."""
        self._due_us[name] = now_us + LONGEST_PAUSE_US

    def forget(self) -> None:
        """Start nothing any more."""
        self._due_us.clear()
