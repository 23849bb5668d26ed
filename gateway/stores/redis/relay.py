"""Messages between gateways that share a Redis, by its PUBLISH and SUBSCRIBE.

Messages reach the current subscribers and are not stored. A gateway that cannot be reached misses
them, and a publisher waits for nothing: if the connection is unavailable or slow it sends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import hiredis

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.stores.redis.address import RedisAddress
from gateway.stores.redis.connection import ServerPlace, SharedConnection
from gateway.stores.redis.pipe import Pipe, reply_error
from gateway.stores.reports import Hear

log = logging.getLogger(__name__)

BEAT_S: Final = 2.0
"""The interval of beats on a connection that only listens, to check that it works."""
UNANSWERED_MAX: Final = 64
"""Unanswered messages to Redis; any further ones are dropped."""


class AnyClusterServer(NamedTuple):
    """A `ServerPlace`: any server of a Cluster that answers, since each forwards to all others."""

    seeds: Sequence[RedisAddress]

    def __repr__(self) -> str:
        return f"one of {', '.join(map(str, self.seeds))}"

    async def locate(self) -> RedisAddress:
        """Return one of the addresses in the URL."""
        return random.choice(self.seeds)  # noqa: S311 - no secret

    async def check(self, pipe: Pipe) -> None:
        """Do nothing: any of them can be used."""

    async def left(self, address: RedisAddress) -> None:
        """Never return."""
        await asyncio.get_running_loop().create_future()


class Subscription(SharedConnection):
    """A connection that receives the messages of one channel.

    Args:
        place: the address of the server.
        channel: its name.
        hear: handles each message.
    """

    def __init__(self, place: ServerPlace, channel: bytes, hear: Hear) -> None:
        super().__init__(place)
        self._channel = channel
        self._hear = hear
        self._is_refused = False

    def _warn(self, address: RedisAddress, evicts: str) -> None:
        """Do nothing: nothing is stored that could be lost."""

    async def _stay(self, pipe: Pipe, address: RedisAddress) -> None:
        pipe.hear = self._hear
        beating = asyncio.get_running_loop().create_task(_beat(pipe))
        try:
            self._note(await pipe.call(("SUBSCRIBE", self._channel))[0], address)
            await super()._stay(pipe, address)
        finally:
            beating.cancel()
            await asyncio.wait((beating,))

    def _note(self, reply: object, address: RedisAddress) -> None:
        """Log once that subscribing is not permitted.

        Raises:
            StoreError: it is not permitted.
        """
        if not isinstance(reply, hiredis.ReplyError):
            self._is_refused = False
            return
        error = reply_error(reply)
        if not self._is_refused:
            self._is_refused = True
            log.warning(
                "%s does not permit subscribing to the channel %s (%s); gateways on it cannot "
                "exchange messages",
                address,
                self._channel.decode(),
                error,
            )
        raise error


async def _beat(pipe: Pipe) -> None:
    """Drop a connection on which a beat is not answered before the next one."""
    with contextlib.suppress(StoreError):
        while True:
            pipe.call(("PING",))
            await asyncio.sleep(BEAT_S)
            if pipe.oldest_us:
                pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))


class RedisRelay:
    """A `Relay` over one channel.

    Args:
        place: the address to listen at.
        channel: its name.
        hear: handles each message.
        find_pipe: returns the connection for publishing; raises `StoreError` if there is none.
    """

    def __init__(
        self, place: ServerPlace, channel: bytes, hear: Hear, find_pipe: Callable[[], Pipe]
    ) -> None:
        self._channel = channel
        self._subscription = Subscription(place, channel, hear)
        self._find_pipe = find_pipe
        self._unanswered = 0

    def start(self) -> None:
        """Subscribe in the background."""
        self._subscription.start()

    async def aclose(self) -> None:
        """Unsubscribe."""
        await self._subscription.aclose()

    def tell(self, data: bytes, missed: Callable[[], None]) -> None:
        """Send a message to all others; see `Relay`."""
        if self._unanswered >= UNANSWERED_MAX:
            missed()
            return
        try:
            (answer,) = self._find_pipe().call(("PUBLISH", self._channel, data))
        except StoreError:
            missed()
            return

        def note(answer: asyncio.Future[object]) -> None:
            self._unanswered -= 1
            if answer.exception() is not None or isinstance(answer.result(), hiredis.ReplyError):
                missed()

        self._unanswered += 1
        answer.add_done_callback(note)
