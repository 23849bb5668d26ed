"""Host names of targets, looked up repeatedly in the background.

The system's resolver does not report how long its answers are valid, so names are looked up at
fixed intervals, and immediately after a connection failed. A name that cannot be resolved keeps
its addresses.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.base.errors import UpstreamConnectError
from gateway.base.tasks import Tasks
from gateway.proxy.upstream.addresses import Addresses

log = logging.getLogger(__name__)

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, or raises OSError."""

PAUSE_S: Final = 1.0
"""Shortest interval between two look-ups of a name, whatever fails."""
UNKNOWN_S: Final = 5.0
"""Longest interval between two look-ups of a name without known addresses."""
LOG_AGAIN_S: Final = 60.0


async def resolve(host: str) -> list[str]:
    """Ask the system, in a thread: files, DNS, and whatever else it is configured to use."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Name:
    """One host name.

    Args:
        host: the name.
        every_s: how often to look it up again, in seconds; None for only after a failure.
        on_gone: called with those of its addresses that are gone.
        look_up: returns its addresses.

    Attributes:
        addresses: those that are known.
    """

    def __init__(
        self,
        host: str,
        every_s: float | None,
        on_gone: Callable[[frozenset[str]], None],
        look_up: Resolve = resolve,
    ) -> None:
        self._host = host
        self._every_s = every_s
        self._on_gone = on_gone
        self._look_up = look_up
        self._tasks = Tasks()
        self._looked = asyncio.Event()
        self._is_retired = False
        self._is_wanted = asyncio.Event()
        self._error: OSError | None = None
        self._logged_at: float | None = None
        self.addresses = Addresses()

    def __repr__(self) -> str:
        return f"<Name {self._host}: {self.addresses}>"

    def start(self) -> None:
        """Look it up now, and then repeatedly."""
        if not len(self._tasks) and not self._is_retired:
            self._tasks.start(self._keep())

    def close(self) -> None:
        """Stop looking it up."""
        self._tasks.cancel()

    def retire(self) -> None:
        """Look it up once more at most: it has hardly any users left."""
        self._is_retired = True
        self._tasks.cancel()

    def refresh_soon(self) -> None:
        """Look it up soon: it may have changed."""
        self._is_wanted.set()

    async def ready(self) -> None:
        """Wait until it was looked up for the first time.

        Raises:
            UpstreamConnectError: no address of it is known.
        """
        self.start()
        if self._is_retired and not self._looked.is_set():
            await self._look_up_now()
        await self._looked.wait()
        if not self.addresses.known:
            self.refresh_soon()
            reason = self._error.strerror if self._error is not None else "it has no address"
            raise UpstreamConnectError(f"{self._host} cannot be resolved: {reason}")

    async def _keep(self) -> None:
        while True:
            await self._look_up_now()
            await asyncio.sleep(PAUSE_S)
            every_s = self._every_s if self.addresses.known else UNKNOWN_S
            wait_s = None if every_s is None else max(every_s - PAUSE_S, 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._is_wanted.wait()
            self._is_wanted.clear()

    async def _look_up_now(self) -> None:
        try:
            found = await self._look_up(self._host)
        except OSError as error:
            self._error = error
            self._log_problem(error)
        else:
            if self._logged_at is not None:
                self._logged_at = None
                log.info("%s is resolved again: %s", self._host, ", ".join(found))
            if gone := self.addresses.replace(found):
                self._on_gone(gone)
        self._looked.set()

    def _log_problem(self, error: OSError) -> None:
        now = asyncio.get_running_loop().time()
        if self._logged_at is not None and now < self._logged_at + LOG_AGAIN_S:
            return
        self._logged_at = now
        then = "it keeps its addresses" if self.addresses.known else "requests to it fail"
        log.warning("%s cannot be resolved (%s); %s", self._host, error.strerror or error, then)
