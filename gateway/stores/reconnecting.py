"""A shared connection to a server that reconnects when it is lost.

It retries with growing, jittered pauses. No request waits for it: while there is no connection, a
call fails immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from gateway.base.clock import US, Clock
from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Background

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
STEADY_US: Final = US
"""A connection that lasted this long is replaced immediately when lost; others after a pause."""
STALLED_US: Final = US
"""When the oldest answer is overdue by this much, the server counts as stalled."""


class Pipelined(Protocol):
    """A connection on which calls are answered in order."""

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""

    @property
    def oldest_us(self) -> int:
        """The age of the oldest unanswered call."""


P = TypeVar("P", bound=Pipelined)


class ReconnectingConnection(ABC, Generic[P]):
    """Keeps one connection open.

    Args:
        clock: this process's time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pipe: P | None = None
        self._is_open = asyncio.Event()
        self._is_tried = asyncio.Event()
        self._keeping = Background(self._keep_open)
        self._why = StoreUnavailable("the store is not connected yet", "not_connected")

    @property
    def state(self) -> str:
        """Whether it is open, or why not, for logs."""
        return "open" if self._pipe is not None else f"down ({self._why.reason})"

    @property
    def is_ready(self) -> bool:
        """Whether a call would probably be answered now."""
        pipe = self._pipe
        return pipe is not None and pipe.is_open and pipe.oldest_us < STALLED_US

    @property
    def is_tried(self) -> bool:
        """Whether the outcome of the first attempt is known."""
        return self._is_tried.is_set()

    @property
    def pipe(self) -> P:
        """The open connection.

        Raises:
            StoreUnavailable: there is none; the reason is that of the last attempt.
        """
        if self._pipe is None:
            # A new one each time: an exception raised twice would grow its traceback.
            raise StoreUnavailable(str(self._why), self._why.reason)
        return self._pipe

    def start(self) -> None:
        """Connect in the background."""
        self._keeping.start()

    async def tried(self, within_s: float) -> None:
        """Wait for the first attempt to end, up to a limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_tried.wait()

    async def opened(self, within_s: float) -> P:
        """Return the connection as soon as it is open.

        Raises:
            StoreUnavailable: it did not open in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_open.wait()
        return self.pipe

    async def aclose(self) -> None:
        """Close for good."""
        await self._keeping.end()
        self._why = StoreUnavailable("the store is closed", "closed")

    @abstractmethod
    async def _serve(self) -> None:
        """Connect, stay inside `_used` until the connection is of no more use, and close it.

        Raises:
            StoreError: no usable connection was made.
        """

    @contextlib.contextmanager
    def _used(self, pipe: P) -> Iterator[None]:
        """Direct calls to this connection inside the context."""
        self._pipe = pipe
        self._is_open.set()
        self._is_tried.set()
        try:
            yield
        finally:
            self._pipe = None
            self._is_open.clear()

    async def _keep_open(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            since_us = self._clock()
            try:
                await self._serve()
            except StoreError as error:
                self._why = StoreUnavailable(str(error), error.reason)
                self._is_tried.set()
            else:
                self._why = StoreUnavailable("the connection to the store was lost")
                if self._clock() - since_us >= STEADY_US:
                    pause_s = FIRST_PAUSE_S
                    continue
            # Jitter keeps a fleet of gateways from reconnecting together.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
