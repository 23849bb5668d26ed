"""Slots of limits such as `5 at once`, as a context manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from gateway.library.decision import Decision
from gateway.limiter.decider import Decider, Outcome
from gateway.limiter.lease_keeper import HeldLease, leases_of


class Slot:
    """A slot among the calls in flight.

    Args:
        decider: renews and releases it.
        outcome: the outcome that admitted it.
        released: called when it is free again.

    Attributes:
        decision: the decision that admitted it.
    """

    __slots__ = ("_decider", "_holding", "_leases", "_released", "decision")

    def __init__(self, decider: Decider, outcome: Outcome, released: Callable[[], None]) -> None:
        self.decision = Decision(outcome)
        self._decider = decider
        self._released = released
        self._leases = leases_of(outcome)
        self._holding: HeldLease | None = None

    @property
    def is_held(self) -> bool:
        """Whether the slot is still held.

        False if it could not be renewed for the time of a lease, or the store has lost it: then
        another caller may have the slot.
        """
        return self._holding is None or self._holding.is_held

    async def __aenter__(self) -> Self:
        if self._leases is not None:
            self._holding = HeldLease(self._decider, self._leases)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._holding is not None:
            self._holding.release()
            self._released()
