"""Which children have answered an order about a new configuration; pure.

All children prepare a configuration before one of them uses it. One that ends meanwhile has a
successor, which must prepare it as well: otherwise a configuration that ends every process would be
used because nobody objects.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.base.clock import US

ANSWER_US: Final = 10 * US
"""How long the children may take to answer."""


class Answers:
    """The answers of all children to one order.

    Args:
        required: the names of the children that must answer; if one ends, its successor must.
        now_us: the current time.

    Attributes:
        due_us: when answers are too late.
    """

    def __init__(self, required: Collection[str], now_us: int) -> None:
        self.due_us = now_us + ANSWER_US
        self._required = frozenset(required)
        self._waiting: dict[int, str] = {}
        self._answered: dict[int, str] = {}

    def expect(self, pid: int, name: str) -> None:
        """Wait for the answer of a child."""
        self._waiting[pid] = name

    def receive(self, pid: int) -> None:
        """Note that a child has answered."""
        if pid in self._waiting:
            self._answered[pid] = self._waiting.pop(pid)

    def forget(self, pid: int) -> None:
        """Do not wait for a child, which has ended or is about to."""
        self._waiting.pop(pid, None)
        self._answered.pop(pid, None)

    def extend(self, now_us: int) -> None:
        """Allow as much time again: whatever stopped this process may have stopped all."""
        self.due_us = now_us + ANSWER_US

    @property
    def missing(self) -> list[str]:
        """The names of the children whose answers are missing."""
        answered = set(self._answered.values())
        return sorted({*self._waiting.values(), *(self._required - answered)})
