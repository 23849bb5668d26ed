"""Heartbeats: gateways that share a store count each other, and drop dead connections.

Each store defines its heartbeat; the interval and the meaning of a missing one are the same for
all.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Background
from gateway.stores.pipelining import Pipelining

MISSED_BEATS: Final = 3
"""After this many missed heartbeats a gateway counts as stopped."""
SOON_S: Final = 0.05

T = TypeVar("T")


class Heartbeat(ABC):
    """The heartbeats of one gateway in one store.

    Args:
        heartbeat_s: seconds between two of them.
        soon_s: seconds after one that failed.

    Attributes:
        heartbeat_s: see above.
        silence_s: after this long without a heartbeat a gateway counts as stopped.
    """

    def __init__(self, heartbeat_s: float, soon_s: float = SOON_S) -> None:
        self.heartbeat_s = heartbeat_s
        self.silence_s = heartbeat_s * MISSED_BEATS
        self._soon_s = min(heartbeat_s, soon_s)
        self._gateways = 1
        self._beating = Background(self.run)

    @property
    def gateways(self) -> int:
        """How many gateways share the store, as last seen; at least 1."""
        return self._gateways

    @gateways.setter
    def gateways(self, count: int) -> None:
        self._gateways = max(count, 1)

    def start(self) -> None:
        """Start in the background."""
        self._beating.start()

    async def aclose(self) -> None:
        """Stop, and sign off."""
        if not self._beating.is_running:
            return
        await self._beating.end()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self.heartbeat_s / 4):
                await self.sign_off()

    async def run(self) -> None:
        """Send one heartbeat after the other."""
        while True:
            # After an outage the next one is sent as soon as there is a connection.
            pause_s = self.heartbeat_s if await self.beat() else self._soon_s
            await asyncio.sleep(pause_s)

    @abstractmethod
    async def beat(self) -> bool:
        """Send a heartbeat and count the gateways; return whether the next one can wait."""

    @abstractmethod
    async def sign_off(self) -> None:
        """Tell the other gateways that this one leaves.

        Raises:
            StoreError: the store cannot be reached.
        """


async def answer_within(
    limit_s: float, pipe: Pipelining, ask: Callable[[], Awaitable[T]]
) -> T | None:
    """Return the answer to a call, or None; drop a connection that does not answer."""
    try:
        async with asyncio.timeout(limit_s):
            return await ask()
    except TimeoutError:
        pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))
    except StoreError:
        pass
    return None
