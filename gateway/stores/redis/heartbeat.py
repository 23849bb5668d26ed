"""Heartbeats in Redis: the gateways that sent one lately are members of a sorted set.

A connection on which a beat is not answered before the next one is dead (as after a server has
vanished without closing it) and is dropped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from gateway.base.errors import StoreUnavailable
from gateway.stores.heartbeat import Heartbeat, answer_within
from gateway.stores.redis.clocked_connection import ClockedConnection
from gateway.stores.redis.pipe import Command
from gateway.stores.redis.script import gateways_key
from gateway.stores.redis.source import HEARTBEAT

FindLanes = Callable[[], tuple[Sequence[ClockedConnection], ClockedConnection | None]]
"""Returns all lanes, and the one to the server where gateways are counted, if it is known."""


class RedisHeartbeat(Heartbeat):
    """Beats on all lanes of a store.

    Args:
        domain: the namespace of this deployment's keys.
        heartbeat_s: seconds between two beats.
        find_lanes: returns the current lanes.
    """

    def __init__(self, domain: str, heartbeat_s: float, find_lanes: FindLanes) -> None:
        super().__init__(heartbeat_s)
        self._find_lanes = find_lanes
        self._key = gateways_key(domain)
        self._id = secrets.token_hex(8)
        silence_ms = int(self.silence_s * 1000)
        self._count: Command = ("EVAL", HEARTBEAT.source, 1, self._key, self._id, silence_ms)

    async def beat(self) -> bool:
        """Beat on every lane; return whether all of them have a connection."""
        lanes, counting = self._find_lanes()
        answers = await asyncio.gather(*[self._beat_on(lane, counting) for lane in lanes])
        return counting is not None and None not in answers

    async def sign_off(self) -> None:
        """Remove this gateway from the set."""
        lane = self._find_lanes()[1]
        if lane is not None:
            await lane.open().call(("ZREM", self._key, self._id))[0]

    async def _beat_on(self, lane: ClockedConnection, counting: ClockedConnection | None) -> object:
        """Return the answer to a beat; None if there is no connection."""
        try:
            pipe = lane.open()
        except StoreUnavailable:
            return None
        command: Command = self._count if lane is counting else ("PING",)
        count = await answer_within(self.heartbeat_s, pipe, lambda: pipe.call(command)[0])
        if lane is counting and type(count) is int:
            self.gateways = count
        return True
