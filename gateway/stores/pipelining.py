"""Start and end of a connection on which calls are sent before earlier ones are answered.

The protocols define the calls and the length of answers (`gateway.stores.redis.pipe`,
`gateway.systems.throttr.pipe`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, cast

from gateway.base.errors import StoreError, StoreUnavailable


class Pipelining(asyncio.Protocol, ABC):
    """Sends calls and matches answers in order.

    Attributes:
        lost: done when the connection has ended.
    """

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._error: StoreError = StoreUnavailable("the connection to the store was lost")

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        # A cast, not an assertion: uvloop's transports only behave like one.
        self._transport = cast("asyncio.Transport", transport)

    def drop(self, error: StoreError) -> None:
        """Close now; every unanswered call gets `error`."""
        self._error = error
        if self._transport is not None:
            self._transport.abort()
        self._fail_calls()

    def close(self) -> None:
        """Close now, on purpose."""
        self.drop(StoreUnavailable("the connection to the store was closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is unanswered, whose outcome is not known."""
        self._transport = None
        self._fail_calls()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail_calls(self) -> None:
        for future in self._take_unanswered():
            if not future.done():
                # A new one each time: an exception raised twice would grow its traceback.
                future.set_exception(type(self._error)(str(self._error), self._error.reason))
                # Not every call is awaited: its exception is marked as retrieved.
                future.exception()

    @abstractmethod
    def _take_unanswered(self) -> Iterable[asyncio.Future[Any]]:
        """Remove and return the futures that wait for answers."""
