"""Messages between masters on one store: which clients they hold, so that all gatekeepers know.

A master sends its results to its own gatekeepers and to the other masters, which send them to
theirs. A result from another master is only sent to gatekeepers, so it does not circulate. If they
arrive faster than they can be sent, only the latest of each client is kept, and of a bounded number
of clients: a lost one is found again as soon as the client is reported here.
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
"""Clients published in one turn of the loop: some hundred microseconds."""
WAITING_MAX: Final = 10_000
"""The most clients waiting to be published; further ones are dropped."""


class OtherMasters:
    """The other masters of one listener's name on one store.

    Args:
        reports: the store that they share.
        name: of the listener.
        domains: the domains of this listener, each with how long a client may have to be held, in
            microseconds. Longer times from other masters are shortened to that: their clocks may be
            wrong, and any program with access to the store may send messages.
        hold: publishes to the gatekeepers of this master; returns whether that was possible.
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
        self._relay = reports.relay(name, self._receive)
        self._domains = domains
        self._hold = hold
        self._metrics = metrics
        self._clock = clock
        self._origin = secrets.token_bytes(ORIGIN_BYTES)
        self._waiting: dict[tuple[str, str], int] = {}
        self._soon: asyncio.Handle | None = None

    def reconfigure(self, domains: Mapping[str, int]) -> None:
        """Serve these domains from now on; see the constructor."""
        self._domains = domains

    def start(self) -> None:
        """Receive messages in the background."""
        self._relay.start()

    async def aclose(self) -> None:
        """Stop receiving and sending."""
        await self._relay.aclose()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def tell(self, found: Sequence[DelayUntil]) -> None:
        """Send results to the other masters, if that is possible at the moment."""

        def missed() -> None:
            self._metrics.answers["DELAY_UNTIL", "not_relayed"] += len(found)

        if found:
            self._relay.tell(write_relay(self._origin, found), missed)

    def _receive(self, data: bytes) -> None:
        """Keep the results of another master until the loop has time for them."""
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
            until_us = min(waiting.pop((domain, identifier)), now_us + self._domains.get(domain, 0))
            if until_us > now_us:
                has_held = self._hold(DelayUntil(domain, identifier, until_us))
                self._metrics.answers["DELAY_UNTIL", "relayed"] += has_held
        self._soon = asyncio.get_running_loop().call_soon(self._pass_on) if waiting else None
