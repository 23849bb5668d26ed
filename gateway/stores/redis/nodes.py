"""The primaries of a Redis Cluster: the server of each slot, and a lane to each server.

The map of slots comes from CLUSTER SLOTS, asked of any node that answers. It is read again from
time to time, and immediately when an answer shows that it is out of date. Nothing waits for it:
the servers themselves correct its errors, by redirecting.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import hiredis

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Background, Tasks
from gateway.stores.redis.address import RedisAddress
from gateway.stores.redis.clocked_connection import ClockedConnection
from gateway.stores.redis.pipe import Pipe, open_pipe, reply_error
from gateway.stores.redis.slots import SLOTS, Redirect, SlotRange, read_slots

ANSWER_TIMEOUT_S: Final = 0.5
FRESH_S: Final = 5.0
"""How long a map is trusted if nothing contradicts it."""
STALE_S: Final = 0.1
"""How long a map is kept that was found wrong, or has a server that does not answer."""


class ClusterNode:
    """A server and the lane to it."""

    __slots__ = ("address", "is_named", "lane", "slots")

    def __init__(self, address: RedisAddress, lane: ClockedConnection) -> None:
        self.address = address
        self.lane = lane
        self.slots = 0
        self.is_named = True

    def __repr__(self) -> str:
        return f"<{self.lane.connection!r} {self.slots} slots>"

    @property
    def name(self) -> str:
        """Host and port."""
        return str(self.address)


class Nodes:
    """The map of a Cluster.

    Args:
        seeds: the nodes that a URL names, at least one.
        make_lane: returns a lane to an address.
    """

    def __init__(
        self, seeds: Sequence[RedisAddress], make_lane: Callable[[RedisAddress], ClockedConnection]
    ) -> None:
        self._seeds = tuple(seeds)
        self._make_lane = make_lane
        self._nodes: dict[str, ClusterNode] = {}
        self._owners: list[ClusterNode | None] = [None] * SLOTS
        self._stale = asyncio.Event()
        self._why = StoreUnavailable("the Cluster is not connected yet", "not_connected")
        self._refreshing = Background(self._keep_fresh)
        self._tasks = Tasks()

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(list(self._nodes.values()))

    def __repr__(self) -> str:
        if not self._nodes:
            return f"down ({self._why.reason})"
        return ", ".join(map(repr, self._nodes.values()))

    @property
    def is_ready(self) -> bool:
        """Whether most of the slots are served, and no more are about to be.

        A start that waits for this would otherwise begin without the slots of a slower server.
        """
        is_settled = all(node.lane.connection.is_tried for node in self if node.slots)
        return is_settled and self._served > SLOTS // 2

    @property
    def _served(self) -> int:
        """Return how many slots are served."""
        return sum(node.slots for node in self if node.lane.connection.is_ready)

    def owner(self, slot: int) -> ClusterNode:
        """Return the server of a slot.

        Raises:
            StoreUnavailable: no server serves it, as far as is known.
        """
        node = self._owners[slot]
        if node is None:
            self.mark_stale()
            if not self._nodes:
                raise StoreUnavailable(str(self._why), self._why.reason)
            raise StoreUnavailable("no server has this slot of the Cluster", "clusterdown")
        return node

    def name_of(self, slot: int) -> str:
        """Return the name of the server of a slot; empty if none is known."""
        node = self._owners[slot]
        return node.name if node is not None else ""

    def mark_stale(self) -> None:
        """Mark the map as out of date."""
        self._stale.set()

    def moved(self, redirect: Redirect, by: ClusterNode) -> ClusterNode:
        """Record the new server of a slot, as another server reports it."""
        node = self.at(redirect, by)
        self._own(redirect.slot, node)
        self.mark_stale()
        return node

    def at(self, place: Redirect | SlotRange, by: ClusterNode | RedisAddress) -> ClusterNode:
        """Return the node that a server names."""
        asked = by.address if isinstance(by, ClusterNode) else by
        address = replace(asked, host=place.host or asked.host, port=place.port)
        node = self._nodes.get(str(address))
        if node is None:
            node = self._nodes[str(address)] = ClusterNode(address, self._make_lane(address))
            node.lane.connection.start()
        node.is_named = True
        return node

    def start(self) -> None:
        """Read the map in the background, and keep it current."""
        self._refreshing.start()

    async def aclose(self) -> None:
        """Close every lane for good."""
        await self._refreshing.end()
        for node in self:
            await node.lane.connection.aclose()
        await self._tasks.finish(1)
        self._nodes.clear()
        self._owners = [None] * SLOTS

    async def _keep_fresh(self) -> None:
        while True:
            self._stale.clear()
            await self._read()
            # Jitter keeps a fleet of gateways from asking together.
            await asyncio.sleep(STALE_S * random.uniform(0.5, 1.0))  # noqa: S311
            if self._served == SLOTS:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FRESH_S):
                        await self._stale.wait()

    async def _read(self) -> None:
        """Ask one node after the other until one returns the map."""
        known = [node for node in self if node.lane.connection.is_ready]
        random.shuffle(known)
        for node in known:
            with contextlib.suppress(StoreError, TimeoutError):
                self._adopt(await _ask(node.lane.open()), node.address)
                return
        for seed in self._seeds:
            try:
                pipe = await open_pipe(seed)
                try:
                    self._adopt(await _ask(pipe), seed)
                finally:
                    pipe.close()
            except StoreError as error:
                self._why = StoreUnavailable(str(error), error.reason)
            except TimeoutError:
                self._why = StoreUnavailable(f"{seed} does not answer", "connect")
            else:
                return

    def _adopt(self, ranges: Sequence[SlotRange], told_by: RedisAddress) -> None:
        self._owners = [None] * SLOTS
        for node in self._nodes.values():
            node.slots = 0
        for each in ranges:
            node = self.at(each, told_by)
            for slot in range(each.first, each.last + 1):
                self._own(slot, node)
        for name, node in list(self._nodes.items()):
            # Redirections may name a node without slots: slots are moving to it.
            if not node.slots and not node.is_named:
                del self._nodes[name]
                self._tasks.start(node.lane.connection.aclose())
            node.is_named = False

    def _own(self, slot: int, node: ClusterNode) -> None:
        before = self._owners[slot]
        if before is not None:
            before.slots -= 1
        self._owners[slot] = node
        node.slots += 1


async def _ask(pipe: Pipe) -> list[SlotRange]:
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        reply = await pipe.call(("CLUSTER", "SLOTS"))[0]
    if isinstance(reply, hiredis.ReplyError):
        raise reply_error(reply)
    return read_slots(reply)
