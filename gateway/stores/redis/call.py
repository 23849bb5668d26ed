"""A call of a script on the server of a Cluster that serves a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.stores.redis.clocked_connection import by_digest, by_source, failed
from gateway.stores.redis.nodes import ClusterNode, Nodes
from gateway.stores.redis.pipe import Command, Pipe, is_noscript
from gateway.stores.redis.slots import read_redirect
from gateway.stores.redis.source import Script

MAX_FOLLOWED: Final = 4
"""How many answers that redirect a call are followed: a missing script, and redirections, each
once or twice."""

ASKING: Final[Command] = (b"ASKING",)


class RoutedCall:
    """One call of a script, which follows redirections.

    Args:
        script: the script to call.
        slot: the slot of all its keys.
        encode: returns number of keys, keys and arguments, for the server that is called.

    Attributes:
        node, pipe: where it was sent last.
        reply: the answer, once there is one.
        error: why there is none.
    """

    __slots__ = (
        "_encode",
        "_future",
        "_is_asking",
        "_script",
        "_words",
        "error",
        "node",
        "pipe",
        "reply",
        "slot",
    )

    def __init__(
        self, script: Script, slot: int, encode: Callable[[ClusterNode], list[bytes]]
    ) -> None:
        self.slot = slot
        self.node: ClusterNode | None = None
        self.pipe: Pipe | None = None
        self.reply: Any = None
        self.error: StoreError | None = None
        self._script = script
        self._encode = encode
        self._words: list[bytes] = []
        self._future: asyncio.Future[Any] | None = None
        self._is_asking = False

    @property
    def is_answered(self) -> bool:
        """Whether `reply` is the script's answer."""
        return self.reply is not None and not isinstance(self.reply, hiredis.ReplyError)

    def address(self, node: ClusterNode, pipe: Pipe) -> Command:
        """Return the command for a server."""
        self.node = node
        self.pipe = pipe
        self._words = self._encode(node)
        return by_digest(self._script, self._words)

    def sent(self, future: asyncio.Future[Any]) -> None:
        """Keep the future of the answer, after the call was sent."""
        self._future = future

    async def first(self) -> None:
        """Wait for the first answer."""
        if self._future is not None:
            try:
                self.reply = await self._future
            except StoreError as error:
                self.error = error

    def look(self) -> None:
        """Take the first answer if it has arrived, without waiting."""
        future = self._future
        if future is not None and future.done() and not future.cancelled():
            error = future.exception()
            if error is None:
                self.reply = future.result()

    async def follow(self, nodes: Nodes, within_s: float) -> None:
        """Follow redirections until the call is answered or has failed.

        Args:
            nodes: the servers.
            within_s: how long to wait for a connection to a new server.
        """
        for _ in range(MAX_FOLLOWED):
            if self.error is not None or self.is_answered:
                break
            try:
                await self._once_more(nodes, within_s)
            except StoreError as error:
                self.error = error
        if self.error is None and not self.is_answered:
            self.error = StoreUnavailable("the Cluster sends a call from one to another", "moved")
        if self.error is not None:
            nodes.mark_stale()

    async def _once_more(self, nodes: Nodes, within_s: float) -> None:
        assert self.node is not None and self.pipe is not None, "it was sent"  # noqa: PT018
        text = str(self.reply)
        if is_noscript(self.reply):
            command = by_source(self._script, self._words)
        elif text.startswith("MOVED "):
            self._is_asking = False
            command = await self._towards(nodes.moved(read_redirect(text), self.node), within_s)
        elif text.startswith("ASK "):
            self._is_asking = True
            command = await self._towards(nodes.at(read_redirect(text), self.node), within_s)
        else:
            raise failed(self.pipe, self.reply)
        commands = (ASKING, command) if self._is_asking else (command,)
        self.reply = await self.pipe.call(*commands)[-1]

    async def _towards(self, node: ClusterNode, within_s: float) -> Command:
        await node.lane.connection.opened(within_s)
        return self.address(node, node.lane.open())


def send(nodes: Nodes, calls: Sequence[RoutedCall]) -> None:
    """Send calls, those of one server in one write; failures are kept in the calls."""
    grouped: dict[ClusterNode, list[RoutedCall]] = {}
    for call in calls:
        try:
            grouped.setdefault(nodes.owner(call.slot), []).append(call)
        except StoreError as error:
            call.error = error
    for node, group in grouped.items():
        try:
            pipe = node.lane.open()
            futures = pipe.call(*[call.address(node, pipe) for call in group])
        except StoreError as error:
            nodes.mark_stale()
            for call in group:
                call.error = error
        else:
            for call, future in zip(group, futures, strict=True):
                call.sent(future)


async def settle(nodes: Nodes, calls: Sequence[RoutedCall], within_s: float) -> None:
    """Wait until all calls are answered or have failed."""
    for call in calls:
        await call.first()
    troubled = [call for call in calls if not call.is_answered]
    if troubled:
        await asyncio.gather(*[call.follow(nodes, within_s) for call in troubled])
