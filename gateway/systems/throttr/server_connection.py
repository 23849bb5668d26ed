"""A connection to a Throttr server that many callers share, and that reconnects by itself."""

from __future__ import annotations

import asyncio

from gateway.base.clock import Clock, monotonic_us
from gateway.stores.reconnecting import ReconnectingConnection
from gateway.systems.throttr.pipe import ThrottrPipe, open_pipe
from gateway.systems.throttr.store_url import ThrottrAddress


class ThrottrServerConnection(ReconnectingConnection[ThrottrPipe]):
    """Keeps one `ThrottrPipe` open.

    Args:
        address: of the server.
        clock: this process's time.
    """

    def __init__(self, address: ThrottrAddress, *, clock: Clock = monotonic_us) -> None:
        super().__init__(clock)
        self._address = address

    def __repr__(self) -> str:
        return f"{self._address} {self.state}"

    async def _serve(self) -> None:
        pipe = await open_pipe(self._address, clock=self._clock)
        try:
            with self._used(pipe):
                # The future belongs to the pipe: it must not be cancelled with this task.
                await asyncio.wait((pipe.lost,))
        finally:
            pipe.close()
