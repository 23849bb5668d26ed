"""A store around one in memory, for tests that put something in its way."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.clock import Clock, monotonic_us
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore


class AroundMemory:
    """Does what the store in it does; a compiled class cannot be inherited from.

    Attributes:
        counts: the store in memory.
    """

    def __init__(self, clock: Clock = monotonic_us) -> None:
        self.counts = MemoryStore(clock=clock)
        self.counts_debits = True

    @property
    def is_ready(self) -> bool:
        """Always."""
        return self.counts.is_ready

    @property
    def gateways(self) -> int:
        """One."""
        return self.counts.gateways

    async def start(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Forget everything."""
        await self.counts.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """See `Store`."""
        return await self.counts.decide(asks)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """See `Store`."""
        await self.counts.give_back(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """See `Store`."""
        return await self.counts.renew(ask, verdict)
