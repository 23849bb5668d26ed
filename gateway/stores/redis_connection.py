"""A connection to a Redis server that many callers share, and that mends itself.

It keeps a `Pipe` open: after a loss it looks anew for where the server is and tries again with
growing, jittered pauses. Nobody waits for it: while there is no connection, a call fails at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.clock import Clock, monotonic_us
from gateway.errors import StoreError, StoreUnavailable
from gateway.stores.redis_address import RedisAddress
from gateway.stores.redis_pipe import Pipe, open_pipe
from gateway.tasks import Background

log = logging.getLogger(__name__)

US: Final = 1_000_000
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
STEADY_US: Final = US
"""A connection that lasted this long is replaced at once when lost; others after a pause."""
STALLED_US: Final = US
"""When the oldest answer is overdue by this much, the server does not seem to work."""


class Place(Protocol):
    """Where a server is, which may change."""

    async def locate(self) -> RedisAddress:
        """Where it is now. Raises `StoreError` if nobody knows."""

    async def check(self, pipe: Pipe) -> None:
        """Raises `StoreError` if what was found there is not the server that was meant."""

    async def left(self, address: RedisAddress) -> None:
        """Return when the server is not at `address` any more; perhaps never."""


class FixedPlace(NamedTuple):
    """A server that is always at the same address."""

    address: RedisAddress

    def __repr__(self) -> str:
        return str(self.address)

    async def locate(self) -> RedisAddress:
        """The address."""
        return self.address

    async def check(self, pipe: Pipe) -> None:
        """Whoever answers there is meant."""

    async def left(self, address: RedisAddress) -> None:
        """Never."""
        await asyncio.get_running_loop().create_future()


class Connection:
    """Keeps one `Pipe` to a server open.

    Args:
        place: where the server is.
        scripts: sources that it is asked to remember after connecting.
        clock: this process's time.
    """

    def __init__(
        self, place: Place, scripts: Sequence[bytes] = (), *, clock: Clock = monotonic_us
    ) -> None:
        self._place = place
        self._scripts = scripts
        self._clock = clock
        self._pipe: Pipe | None = None
        self._is_open = asyncio.Event()
        self._keeping = Background(self._keep_open)
        self._why = StoreUnavailable("the store is not connected yet", "not_connected")
        self._warned_of = ""

    def __repr__(self) -> str:
        state = "open" if self._pipe is not None else f"down ({self._why.reason})"
        return f"<redis {self._place!r} {state}>"

    @property
    def is_ready(self) -> bool:
        """Whether a call would probably be answered now."""
        pipe = self._pipe
        return pipe is not None and pipe.is_open and pipe.oldest_us < STALLED_US

    @property
    def pipe(self) -> Pipe:
        """The open pipe.

        Raises:
            StoreUnavailable: there is none; the reason is that of the last attempt.
        """
        if self._pipe is None:
            # A new one each time: an exception raised twice would grow its traceback.
            raise StoreUnavailable(str(self._why), self._why.reason)
        return self._pipe

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._keeping.start()

    async def opened(self, within_s: float) -> Pipe:
        """The pipe, as soon as it is open.

        Raises:
            StoreUnavailable: it was not in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_open.wait()
        return self.pipe

    async def aclose(self) -> None:
        """Close for good."""
        await self._keeping.end()

    async def _keep_open(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            since_us = self._clock()
            try:
                await self._serve()
            except StoreError as error:
                self._why = StoreUnavailable(str(error), error.reason)
            else:
                self._why = StoreUnavailable("the connection to the store was lost")
                if self._clock() - since_us >= STEADY_US:
                    pause_s = FIRST_PAUSE_S
                    continue
            # Jitter keeps a fleet of gateways from coming back all at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _serve(self) -> None:
        """Connect and stay until the connection is lost, or the server is elsewhere.

        Raises:
            StoreError: no usable connection came about.
        """
        address = await self._place.locate()
        pipe = await open_pipe(address, self._scripts, clock=self._clock)
        try:
            await self._place.check(pipe)
            self._warn(address, pipe.evicts)
            self._pipe = pipe
            self._is_open.set()
            await self._stay(pipe, address)
        finally:
            self._pipe = None
            self._is_open.clear()
            pipe.close()

    def _warn(self, address: RedisAddress, evicts: str) -> None:
        """Say that counts may be lost, once and not at every connection."""
        if evicts and evicts != self._warned_of:
            log.warning(
                "%s forgets counts when it is full (maxmemory-policy %s): a client whose key is"
                " evicted begins anew; noeviction lets on_store_error decide instead",
                address,
                evicts,
            )
        self._warned_of = evicts

    async def _stay(self, pipe: Pipe, address: RedisAddress) -> None:
        leaving = asyncio.get_running_loop().create_task(self._place.left(address))
        try:
            await asyncio.wait((pipe.lost, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            # Not `await leaving`: that would take our own cancellation for its.
            await asyncio.wait((leaving,))
