"""What masters on one store tell each other: whom they hold, so that all gatekeepers hear of it.

Whatever a master finds it tells its own gatekeepers, and the other masters theirs. What came from
another is told to nobody else but gatekeepers, so it makes no rounds. Of what comes faster than it
can be passed on only the latest of each client is kept, and of so many clients: what is lost is
found again as soon as the client is reported here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.base.clock import Clock
from gateway.observe.metrics import FrontendMetrics
from gateway.stores.reports import SharedReports
from gateway.systems.smockron.codec import DelayUntil, MalformedMessage
from gateway.systems.smockron.relay_codec import ORIGIN_BYTES, origin_of, read_relay, write_relay

SLICE: Final = 64
"""Clients of which gatekeepers are told in one turn of the loop: some hundred microseconds."""
WAITING_MAX: Final = 10_000
"""Clients of which they are still to be told; further ones are not."""


class OtherMasters:
    """The other masters of one listener's name on one store.

    Args:
        reports: what they share.
        name: of the listener.
        domains: those that are known here; and for each, in microseconds, how far ahead of now
            there may be reason to hold somebody. What others say is believed no further: their
            clocks may be wrong, and whoever reaches the store may say anything.
        hold: tells the gatekeepers of this master; returns whether that was possible.
        metrics: counters.
        clock: the time of day, in microseconds since 1970.
    """

    def __init__(
        self,
        reports: SharedReports,
        name: str,
        domains: Mapping[str, int],
        hold: Callable[[DelayUntil], bool],
        metrics: FrontendMetrics,
        clock: Clock,
    ) -> None:
        self._relay = reports.relay(name, self._hear)
        self._domains = domains
        self._hold = hold
        self._metrics = metrics
        self._clock = clock
        self._origin = secrets.token_bytes(ORIGIN_BYTES)
        self._waiting: dict[tuple[str, str], int] = {}
        self._soon: asyncio.Handle | None = None

    def start(self) -> None:
        """Listen, in the background."""
        self._relay.start()

    async def aclose(self) -> None:
        """Hear and say nothing more."""
        await self._relay.aclose()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def tell(self, found: Sequence[DelayUntil]) -> None:
        """Tell them what was found here, if that is possible at the moment."""

        def missed() -> None:
            self._metrics.answers["DELAY_UNTIL", "not_relayed"] += len(found)

        if found:
            self._relay.tell(write_relay(self._origin, found), missed)

    def _hear(self, data: bytes) -> None:
        """Keep what another has found until the loop has time for it."""
        if origin_of(data) == self._origin:
            return
        try:
            found = read_relay(data)
        except MalformedMessage:
            self._metrics.malformed["relay"] += 1
            return
        waiting = self._waiting
        for domain, identifier, until_us in found:
            key = (domain, identifier)
            if domain not in self._domains:
                continue
            if len(waiting) < WAITING_MAX or key in waiting:
                waiting[key] = max(until_us, waiting.get(key, 0))
            else:
                self._metrics.answers["DELAY_UNTIL", "not_relayed"] += 1
        if waiting and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        waiting, now_us = self._waiting, self._clock()
        for domain, identifier in [key for key, _ in zip(waiting, range(SLICE), strict=False)]:
            until_us = min(waiting.pop((domain, identifier)), now_us + self._domains[domain])
            if until_us > now_us:
                has_held = self._hold(DelayUntil(domain, identifier, until_us))
                self._metrics.answers["DELAY_UNTIL", "relayed"] += has_held
        self._soon = asyncio.get_running_loop().call_soon(self._pass_on) if waiting else None
