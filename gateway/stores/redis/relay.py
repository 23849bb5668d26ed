"""Messages between gateways that share a Redis, by its PUBLISH and SUBSCRIBE.

They are told to whoever listens at the moment and kept by nobody. Who cannot be reached misses
them, and a publisher waits for nothing: where the connection is away or slow it says nothing.
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
"""How often a connection that only listens is asked whether it leads anywhere."""
UNANSWERED_MAX: Final = 64
"""Messages on their way to Redis before more are dropped."""


class AnyPlace(NamedTuple):
    """A `ServerPlace`: whichever server of a Cluster answers, since each tells all others."""

    seeds: Sequence[RedisAddress]

    def __repr__(self) -> str:
        return f"one of {', '.join(map(str, self.seeds))}"

    async def locate(self) -> RedisAddress:
        """One of those that the URL names."""
        return random.choice(self.seeds)  # noqa: S311 - no secret

    async def check(self, pipe: Pipe) -> None:
        """Each of them will do."""

    async def left(self, address: RedisAddress) -> None:
        """Never."""
        await asyncio.get_running_loop().create_future()


class Subscription(SharedConnection):
    """A connection that hears the messages of one channel.

    Args:
        place: where the server is.
        channel: its name.
        hear: what is done with each message.
    """

    def __init__(self, place: ServerPlace, channel: bytes, hear: Hear) -> None:
        super().__init__(place)
        self._channel = channel
        self._hear = hear
        self._is_refused = False

    def _warn(self, address: RedisAddress, evicts: str) -> None:
        """Nothing is kept that could be forgotten."""

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
        """Say it once if we may not listen.

        Raises:
            StoreError: so it is.
        """
        if not isinstance(reply, hiredis.ReplyError):
            self._is_refused = False
            return
        error = reply_error(reply)
        if not self._is_refused:
            self._is_refused = True
            log.warning(
                "%s does not permit subscribing to the channel %s (%s); gateways on it do not hear "
                "of each other",
                address,
                self._channel.decode(),
                error,
            )
        raise error


async def _beat(pipe: Pipe) -> None:
    """Give up a connection on which a beat is not answered by the next one."""
    with contextlib.suppress(StoreError):
        while True:
            pipe.call(("PING",))
            await asyncio.sleep(BEAT_S)
            if pipe.oldest_us:
                pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))


class RedisRelay:
    """A `Relay` by way of one channel.

    Args:
        place: where one can listen.
        channel: its name.
        hear: what is done with each message.
        find_pipe: the connection on which something can be said; raises `StoreError` if there
            is none.
    """

    def __init__(
        self, place: ServerPlace, channel: bytes, hear: Hear, find_pipe: Callable[[], Pipe]
    ) -> None:
        self._channel = channel
        self._subscription = Subscription(place, channel, hear)
        self._find_pipe = find_pipe
        self._unanswered = 0

    def start(self) -> None:
        """Listen, in the background."""
        self._subscription.start()

    async def aclose(self) -> None:
        """Listen no more."""
        await self._subscription.aclose()

    def tell(self, data: bytes, missed: Callable[[], None]) -> None:
        """Say something to all others; see `Relay`."""
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
