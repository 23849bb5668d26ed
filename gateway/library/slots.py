"""Slots: what a limit such as `5 at once` lets through is held while it lasts, then released."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, Self

from gateway.decider import Decider, Outcome
from gateway.errors import StoreError
from gateway.library.decision import Decision
from gateway.limits import ALGORITHMS

log = logging.getLogger(__name__)

US: Final = 1_000_000
RENEWALS: Final = 3
"""Signs of life in the time of one lease: two may be lost before the slot is."""


class Slot:
    """A place among those that go on at once.

    Args:
        decider: where it is renewed and released.
        outcome: what let it through.
        released: called when it is free again.

    Attributes:
        decision: what let it through.
        is_held: whether it still counts. False if the store could not be told for the time of
            a lease that it lasts, or has forgotten it: then somebody else may have the place.
    """

    __slots__ = ("_decider", "_keeper", "_leases", "_released", "decision", "is_held")

    def __init__(self, decider: Decider, outcome: Outcome, released: Callable[[], None]) -> None:
        self.decision = Decision(outcome)
        self.is_held = True
        self._decider = decider
        self._released = released
        self._leases = leases_of(outcome)
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._leases is not None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(self._leases))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._leases is None or self._keeper is None:
            return
        self._decider.give_back(self._leases)
        self._released()
        self._keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeper

    async def _keep(self, leases: Outcome) -> None:
        lease_s = min(limit.period_us for limit in leases.ask.limits) / US
        loop = asyncio.get_running_loop()
        expires = loop.time() + lease_s
        while loop.time() < expires:
            await asyncio.sleep(lease_s / RENEWALS)
            asked = loop.time()
            try:
                if not await self._decider.renew(leases):
                    break
            except StoreError as error:
                log.info("a slot could not be renewed (%s)", error.reason)
            else:
                expires = asked + lease_s
        self.is_held = False
        log.warning("a slot of policy %r was lost while in use", leases.rules[0].policy.name)


def leases_of(outcome: Outcome) -> Outcome | None:
    """The part of an allowed outcome that is held until it is released; None if nothing is.

    The rest was spent: giving that back would let too much through.
    """
    places = [
        place
        for place, limit in enumerate(outcome.ask.limits[: len(outcome.rules)])
        if ALGORITHMS[limit.algorithm].renew is not None
    ]
    if not places or not outcome.verdict.allowed:
        return None
    ask, verdict = outcome.ask, outcome.verdict
    return outcome._replace(
        ask=ask._replace(
            limits=tuple(ask.limits[place] for place in places),
            keys=tuple(ask.keys[place] for place in places),
        ),
        verdict=verdict._replace(decisions=tuple(verdict.decisions[place] for place in places)),
        rules=tuple(outcome.rules[place] for place in places),
    )
