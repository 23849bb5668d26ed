"""A client that has ended its side of the connection: is it still reading, or has it left?

The two look alike. A client that closes sends the same FIN as one that only ends its requests (RFC
9112, section 9.6), and the difference shows when something is sent: a client that has left answers
with a reset. Servers that take every FIN for a close (nginx, Envoy, Go) never answer the second
kind; those that never do (HAProxy, Apache) work for clients that have left, and keep places in
queues for them.

Here a request that was complete is still served. If its answer takes a while, the client is sent
a `100 Continue`, which every HTTP/1.1 client must skip (RFC 9110, section 15.2.1); the reset that
comes back from a client that has left ends its request. Once an answer is being sent, its own
bytes are the test.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from gateway.proxy.client.hang_up import has_hung_up

if TYPE_CHECKING:
    from gateway.base.tasks import Portions
    from gateway.proxy.client.handler import ServedRequest

GRACE_S: Final = 0.4
"""How long to wait before sending a probe: most answers are ready before."""
FIRST_LOOK_S: Final = 0.05
"""Delay from the probe to the first check for a reset; each later delay is longer."""
LONGEST_LOOK_S: Final = 1.0

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Responding(Protocol):
    """A connection that can still be written to."""

    @property
    def peer(self) -> str:
        """Return the address at the other end."""

    @property
    def current(self) -> ServedRequest | None:
        """Return the request that is being served."""

    @property
    def writing_paused(self) -> bool:
        """Return whether the client is not reading what was sent."""

    def send(self, data: bytes) -> None:
        """Write to the client."""


class HalfClosed:
    """Handles a connection from which nothing will be read any more.

    Args:
        connection: writes to the client.
        transport: of that connection.
        crowd: defers work if many clients have ended their sides at the same time.
    """

    __slots__ = (
        "_connection",
        "_crowd",
        "_delay_s",
        "_has_asked",
        "_loop",
        "_sent",
        "_timer",
        "_transport",
    )

    def __init__(
        self, connection: Responding, transport: asyncio.Transport, crowd: Portions
    ) -> None:
        self._crowd = crowd
        self._connection = connection
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._has_asked = False
        self._sent = -1
        self._delay_s = FIRST_LOOK_S
        self._timer = self._loop.call_later(GRACE_S, self._is_due)

    def __repr__(self) -> str:
        return f"<HalfClosed {self._connection.peer}{', asked' if self._has_asked else ''}>"

    def stop(self) -> None:
        """Stop: the connection has ended."""
        self._timer.cancel()

    def _is_due(self) -> None:
        self._crowd.do(self._look)

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        request = self._connection.current
        if has_hung_up(self._transport) or (request is not None and self._is_waste(request)):
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._next_look_s(request), self._is_due)

    def _next_look_s(self, request: ServedRequest | None) -> float:
        if request is None or request.status:
            return GRACE_S
        if not self._has_asked and not request.is_http_1_0:
            self._has_asked = True
            self._connection.send(CONTINUE)
            return FIRST_LOOK_S
        self._delay_s = min(2 * self._delay_s, LONGEST_LOOK_S)
        return self._delay_s

    def _is_waste(self, request: ServedRequest) -> bool:
        """Return whether an endless stream has no other way to detect that the client left.

        A client that ends its side in the middle of one has most likely left, and events may be
        hours apart. A client that was probed before, and read the probe, is taken to be there.
        """
        if not request.status or self._has_asked or not request.is_endless:
            return False
        before, self._sent = self._sent, request.sent
        return before == request.sent and not self._connection.writing_paused
