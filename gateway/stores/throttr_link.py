"""A connection to a Throttr server that many callers share, and that mends itself.

After a loss it tries again with growing, jittered pauses. Nobody waits for it: while there is no
connection, a call fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from gateway.clock import Clock, monotonic_us
from gateway.errors import StoreError, StoreUnavailable
from gateway.stores.throttr_pipe import ThrottrAddress, ThrottrPipe, open_pipe
from gateway.tasks import Background

US: Final = 1_000_000
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
STEADY_US: Final = US
"""A connection that lasted this long is replaced at once when lost; others after a pause."""
STALLED_US: Final = US
"""When the oldest answer is overdue by this much, the server does not seem to work."""


class ThrottrLink:
    """Keeps one `ThrottrPipe` open.

    Args:
        address: where the server is.
        clock: this process's time.
    """

    def __init__(self, address: ThrottrAddress, *, clock: Clock = monotonic_us) -> None:
        self._address = address
        self._clock = clock
        self._pipe: ThrottrPipe | None = None
        self._is_tried = asyncio.Event()
        self._keeping = Background(self._keep_open)
        self._why = StoreUnavailable("the store is not connected yet", "not_connected")

    def __repr__(self) -> str:
        state = "open" if self._pipe is not None else f"down ({self._why.reason})"
        return f"{self._address} {state}"

    @property
    def is_ready(self) -> bool:
        """Whether a call would probably be answered now."""
        pipe = self._pipe
        return pipe is not None and pipe.is_open and pipe.oldest_us < STALLED_US

    @property
    def pipe(self) -> ThrottrPipe:
        """The open pipe.

        Raises:
            StoreUnavailable: there is none; the reason is that of the last attempt.
        """
        if self._pipe is None:
            # A new one each time: an exception raised twice would grow its traceback.
            raise StoreUnavailable(str(self._why), self._why.reason)
        return self._pipe

    async def start(self, within_s: float) -> None:
        """Connect in the background; wait so long at most for how the first attempt ends."""
        self._keeping.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_tried.wait()

    async def aclose(self) -> None:
        """Close for good."""
        await self._keeping.end()
        self._why = StoreUnavailable("the store is closed", "closed")

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
            # Jitter keeps a fleet of gateways from coming back all at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _serve(self) -> None:
        """Connect and stay until the connection is lost.

        Raises:
            StoreError: no usable connection came about.
        """
        pipe = await open_pipe(self._address, clock=self._clock)
        try:
            self._pipe = pipe
            self._is_tried.set()
            # A future of the pipe's own: it must not be cancelled with this task.
            await asyncio.wait((pipe.lost,))
        finally:
            self._pipe = None
            pipe.close()
