"""Holds the slot of a request under a limit such as `5 at once` until the request ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import StoreError
from gateway.limiter.decider import Decider, Outcome
from gateway.limiter.parts import limits_at
from gateway.limits import ALGORITHMS

log = logging.getLogger(__name__)

RENEWALS: Final = 3
"""Renewals per lease: two may be lost before the slot is."""


class HeldLease:
    """A slot under a limit on requests in flight, kept by renewing its lease.

    Args:
        decider: renews and releases the leases.
        leases: as returned by `leases_of`.

    Attributes:
        is_held: whether the slot still counts. False if it could not be renewed for the time of a
            lease, or the store has forgotten it: another request may then have the slot.
    """

    __slots__ = ("_decider", "_keeping", "_leases", "is_held")

    def __init__(self, decider: Decider, leases: Outcome) -> None:
        self.is_held = True
        self._decider = decider
        self._leases = leases
        self._keeping = decider.holding.start(self._keep())

    def release(self) -> None:
        """Release the slot for another request."""
        self._decider.give_back(self._leases)
        self._keeping.cancel()

    async def _keep(self) -> None:
        try:
            await self._renew()
        finally:
            self.is_held = False

    async def _renew(self) -> None:
        lease_s = min(limit.period_us for limit in self._leases.ask.limits) / US
        loop = asyncio.get_running_loop()
        expires = loop.time() + lease_s
        while loop.time() < expires:
            await asyncio.sleep(lease_s / RENEWALS)
            asked = loop.time()
            try:
                if not await self._decider.renew(self._leases):
                    break
            except StoreError as error:
                log.info("a place could not be renewed (%s)", error.reason)
            else:
                expires = asked + lease_s
        log.warning("a place of policy %r was lost while in use", self._leases.rules[0].policy.name)


def leases_of(outcome: Outcome) -> Outcome | None:
    """Return the part of an allowed outcome that is held until it is released; None if nothing is.

    The rest was spent: giving that back would admit too much.
    """
    places = [
        place
        for place, limit in enumerate(outcome.ask.limits[: len(outcome.rules)])
        if ALGORITHMS[limit.algorithm].renew is not None
    ]
    if not places or not outcome.verdict.allowed:
        return None
    return limits_at(outcome, places)
