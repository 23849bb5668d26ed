"""A shared connection to a Redis server that reconnects when it is lost.

It keeps a `Pipe` open; after a loss it looks up the server's address again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.base.clock import Clock, monotonic_us
from gateway.stores.reconnecting import ReconnectingConnection
from gateway.stores.redis.address import RedisAddress
from gateway.stores.redis.pipe import Pipe, open_pipe

log = logging.getLogger(__name__)


class ServerPlace(Protocol):
    """The address of a server, which may change."""

    async def locate(self) -> RedisAddress:
        """Return the current address. Raises `StoreError` if it is not known."""

    async def check(self, pipe: Pipe) -> None:
        """Raise `StoreError` if the server found there is not the intended one."""

    async def left(self, address: RedisAddress) -> None:
        """Return when the server is no longer at `address`; perhaps never."""


class FixedPlace(NamedTuple):
    """A server that is always at the same address."""

    address: RedisAddress

    def __repr__(self) -> str:
        return str(self.address)

    async def locate(self) -> RedisAddress:
        """Return the address."""
        return self.address

    async def check(self, pipe: Pipe) -> None:
        """Do nothing: the server is the one at this address."""

    async def left(self, address: RedisAddress) -> None:
        """Never return."""
        await asyncio.get_running_loop().create_future()


class SharedConnection(ReconnectingConnection[Pipe]):
    """Keeps one `Pipe` to a server open.

    Args:
        place: the address of the server.
        scripts: sources that the server is asked to remember after connecting.
        clock: this process's time.
    """

    def __init__(
        self, place: ServerPlace, scripts: Sequence[bytes] = (), *, clock: Clock = monotonic_us
    ) -> None:
        super().__init__(clock)
        self._place = place
        self._scripts = scripts
        self._warned_of = ""

    def __repr__(self) -> str:
        return f"<redis {self._place!r} {self.state}>"

    async def _serve(self) -> None:
        """Connect and stay until the connection is lost, or the server has moved.

        Raises:
            StoreError: no usable connection was made.
        """
        address = await self._place.locate()
        pipe = await open_pipe(address, self._scripts, clock=self._clock)
        try:
            await self._place.check(pipe)
            self._warn(address, pipe.evicts)
            with self._used(pipe):
                await self._stay(pipe, address)
        finally:
            pipe.close()

    def _warn(self, address: RedisAddress, evicts: str) -> None:
        """Warn that counts may be lost, once and not at every connection."""
        if evicts and evicts != self._warned_of:
            log.warning(
                "%s forgets counts when it is full (maxmemory-policy %s): a client whose key is"
                " evicted starts from zero; with noeviction, on_store_error applies instead",
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
            # Not `await leaving`: that would take a cancellation of this task for its own.
            await asyncio.wait((leaving,))
