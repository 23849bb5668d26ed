"""Signs of life: gateways count each other, and connections that lead nowhere are given up.

A connection on which a beat is not answered by the next one leads nowhere (a server that
vanished without a word looks like that) and is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Background
from gateway.stores.redis.clocked_connection import ClockedConnection, answer_within
from gateway.stores.redis.pipe import Command
from gateway.stores.redis.script import gateways_key
from gateway.stores.redis.source import HEARTBEAT

MISSED_BEATS: Final = 3
"""After so many heartbeats without a word a gateway counts as gone."""
HEARTBEAT_S: Final = 2.0
SOON_S: Final = 0.05

FindLanes = Callable[[], tuple[Sequence[ClockedConnection], ClockedConnection | None]]
"""All lanes there are, and the one to the server where gateways are counted, if it is known."""


class RedisHeartbeat:
    """Beats on all lanes of a store.

    Args:
        domain: the namespace of this deployment's keys.
        heartbeat_s: seconds between two beats.
        find_lanes: which lanes there are at the moment.

    Attributes:
        gateways: how many gateways share the store, as last seen; at least 1.
    """

    def __init__(self, domain: str, heartbeat_s: float, find_lanes: FindLanes) -> None:
        self.gateways = 1
        self._heartbeat_s = heartbeat_s
        self._find_lanes = find_lanes
        self._key = gateways_key(domain)
        self._id = secrets.token_hex(8)
        silence_ms = int(heartbeat_s * MISSED_BEATS * 1000)
        self._count: Command = ("EVAL", HEARTBEAT.source, 1, self._key, self._id, silence_ms)
        self._beating = Background(self._beat)

    def start(self) -> None:
        """Begin to beat."""
        self._beating.start()

    async def aclose(self) -> None:
        """Stop, and sign off."""
        if not self._beating.is_running:
            return
        await self._beating.end()
        lane = self._find_lanes()[1]
        with contextlib.suppress(StoreError, TimeoutError):
            if lane is not None:
                async with asyncio.timeout(self._heartbeat_s / 4):
                    await lane.open().call(("ZREM", self._key, self._id))[0]

    async def _beat(self) -> None:
        while True:
            lanes, counting = self._find_lanes()
            answers = await asyncio.gather(*[self._beat_on(lane, counting) for lane in lanes])
            # As soon as there is a connection, not a whole beat later.
            is_waiting = counting is None or None in answers
            await asyncio.sleep(min(self._heartbeat_s, SOON_S) if is_waiting else self._heartbeat_s)

    async def _beat_on(self, lane: ClockedConnection, counting: ClockedConnection | None) -> object:
        """What was answered; None if there is no connection."""
        try:
            pipe = lane.open()
        except StoreUnavailable:
            return None
        command: Command = self._count if lane is counting else ("PING",)
        count = await answer_within(self._heartbeat_s, pipe, command)
        if lane is counting and type(count) is int:
            self.gateways = max(count, 1)
        return True
